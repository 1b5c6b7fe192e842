"""Mutants that no test can notice, by key, with the reason. They are shown, and do not count in the share.

A key stays the same while its function does: a changed function is judged anew.
"""

EQUIVALENTS: dict[str, str] = {
    "8b2cc5ab1e893910": "only process 1 of our own namespace differs, and it has no container's mark in its arguments",
    "3cc88092a0b541b6": "compileall asks only whether `quiet` is 0, and whether it is less than 2",
    "bddaf6fe9fecba49": "a random mark of 17 bytes is as good as one of 16",
    "e7e5fa1a19452f79": "whether two processes share a namespace does not depend on their order",
    "a802a43617783c97": "the search for a slash begins at the second character or later, so it never finds one at 0",
    "2d270589abc3eae5": "what is forgotten is too old to be looked at, now and later",
    "0475ce49850cddff": "a frame of that very size is read alike, whether or not garbage is collected meanwhile",
}

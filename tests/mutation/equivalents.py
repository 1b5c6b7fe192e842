"""Mutants that no test can notice, by key, with the reason. They are shown, and do not count in the share.

A key stays the same while its function does: a changed function is judged anew.
"""

EQUIVALENTS: dict[str, str] = {}

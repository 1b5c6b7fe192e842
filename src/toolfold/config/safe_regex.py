"""A person's own regular expressions, as far as they can be matched in bounded time.

`re` tries every way in which a pattern can match; two repeats that can share characters make that many ways. Patterns
that allow this are refused, and every repeat is held to a length.
"""

from __future__ import annotations

import importlib
import re
from typing import Any, cast

LONGEST_REPEAT = 256
"""What `*`, `+` and `{n,}` go up to."""
_LONGEST_PATTERN = 500
_MOST_WAYS = 10_000
_SAMPLES = (*range(0x250), 0x0416, 0x0663, 0x2014, 0x4E2D, 0x1F600)
"""Characters by which sets are compared: all Latin ones, and one each of other letters, digits and signs."""
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")

# The library's own parser: what a pattern means is not guessed. It is not public, and the same from 3.11 on.
_parser: Any = importlib.import_module("re._parser")
_compiler: Any = importlib.import_module("re._compiler")

_Characters = frozenset[int]
_Items = list[tuple[Any, Any]]
"""What a pattern is made of: operations and their arguments, one after the other."""


class UnsafeRegexError(ValueError):
    """The pattern is wrong, or it could take too long. The text says what to change."""


def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, ready to be searched for. Raises UnsafeRegexError."""
    if len(pattern) > _LONGEST_PATTERN:
        raise UnsafeRegexError(f"expected a pattern of at most {_LONGEST_PATTERN} characters")
    try:
        re.compile(pattern)
        tree = _parser.parse(pattern)
        if _ways(list(tree)) > _MOST_WAYS:
            raise UnsafeRegexError("expected fewer alternatives and optional parts")
        _Checker(tree.state.flags).check(list(tree), frozenset())
        bounded = cast("re.Pattern[str]", _compiler.compile(_bounded(tree), tree.state.flags))
    except (re.error, RecursionError, OverflowError) as error:
        raise UnsafeRegexError(f"expected a regular expression: {error}") from None
    if bounded.fullmatch(""):
        raise UnsafeRegexError("expected a pattern that does not match an empty text")
    return bounded


def _inner(operation: Any, argument: Any) -> list[_Items]:
    """The alternatives inside a group; what is no group has none."""
    match str(operation):
        case "BRANCH":
            return [list(branch) for branch in argument[1]]
        case "SUBPATTERN":
            return [list(argument[3])]
        case "ATOMIC_GROUP":
            return [list(argument)]
        case _:
            return []


def _ways(items: _Items) -> int:
    """In how many ways alternatives and optional parts can be taken."""
    ways = 1
    for operation, argument in items:
        if str(operation) in _REPEATS:
            ways *= _ways(list(argument[2])) + (argument[0] == 0 and argument[1] == 1)
        elif inner := _inner(operation, argument):
            ways *= sum(map(_ways, inner))
    return ways


def _is_fixed(items: _Items) -> bool:
    """Whether all that it matches has one length and is matched in one way."""
    for operation, argument in items:
        if str(operation) in _REPEATS:
            if argument[0] != argument[1] or not _is_fixed(list(argument[2])):
                return False
        else:
            # Alternatives of one character each are a set of characters.
            inner = _inner(operation, argument)
            if not all(map(_is_fixed, inner)) or (len(inner) > 1 and any(len(one) != 1 for one in inner)):
                return False
    return True


class _Checker:
    """Refuses what can be matched in many ways."""

    def __init__(self, flags: int) -> None:
        self._flags = flags

    def check(self, items: _Items, after: _Characters, *, repeated: bool = False) -> None:
        """`after` are the characters that may follow all of it."""
        for index, (operation, argument) in enumerate(items):
            self._first_of(operation, argument)
            follows, can_end = self._first(items[index + 1 :])
            follows = follows | after if can_end else follows
            name = str(operation)
            if name in _REPEATS:
                self._check_repeat(argument, follows, repeated=repeated)
            elif name in ("ASSERT", "ASSERT_NOT") and not _is_fixed(list(argument[1])):
                raise UnsafeRegexError("expected a look-around of fixed length")
            for inner in _inner(operation, argument):
                self.check(inner, follows, repeated=repeated)

    def _check_repeat(self, argument: Any, follows: _Characters, *, repeated: bool) -> None:
        least, most, body = int(argument[0]), int(argument[1]), list(argument[2])
        if (repeated and least != most) or (most > 1 and not _is_fixed(body)):
            raise UnsafeRegexError("a repeat inside a repeat can take very long: write it without one of them")
        self.check(body, follows, repeated=repeated or most > 1)
        taken = self._first(body)[0] | self._first(body[::-1])[0]
        if least != most and most > 1 and taken & follows:
            raise UnsafeRegexError(
                "what follows a repeat must not begin with a character that the repeat takes: it can take very long."
                " Give it a fixed length, or put another character between"
            )

    def _first(self, items: _Items) -> tuple[_Characters, bool]:
        """The characters with which a match can begin, and whether it can be empty."""
        found: _Characters = frozenset()
        for operation, argument in items:
            characters, empty = self._first_of(operation, argument)
            found |= characters
            if not empty:
                return found, False
        return found, True

    def _first_of(self, operation: Any, argument: Any) -> tuple[_Characters, bool]:
        name = str(operation)
        if name in ("GROUPREF", "GROUPREF_EXISTS"):
            raise UnsafeRegexError("a reference to a group can take very long: write it without")
        if name in _REPEATS:
            characters, empty = self._first(list(argument[2]))
            return characters, empty or argument[0] == 0
        if inner := _inner(operation, argument):
            each = [self._first(one) for one in inner]
            return frozenset[int]().union(*(characters for characters, _ in each)), any(empty for _, empty in each)
        if name in ("AT", "ASSERT", "ASSERT_NOT"):
            return frozenset(), True
        return self._set(operation, argument), False

    def _set(self, operation: Any, argument: Any) -> _Characters:
        """The characters that one place of the pattern takes: `re` itself is asked."""
        tree = _parser.parse("")
        tree.data.append((operation, argument))
        single = cast("re.Pattern[str]", _compiler.compile(tree, self._flags))
        samples = (*_SAMPLES, argument) if str(operation) == "LITERAL" else _SAMPLES
        return frozenset(code for code in samples if single.fullmatch(chr(code)))


def _bounded(tree: Any) -> Any:
    """The same pattern with every repeat held to `LONGEST_REPEAT`."""
    for index, (operation, argument) in enumerate(tree.data):
        match str(operation):
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, body = argument
                if int(least) > LONGEST_REPEAT:
                    raise UnsafeRegexError(f"expected a repeat of at most {LONGEST_REPEAT} characters")
                tree.data[index] = (operation, (least, min(int(most), LONGEST_REPEAT), _bounded(body)))
            case "SUBPATTERN":
                _bounded(argument[3])
            case "BRANCH":
                for branch in argument[1]:
                    _bounded(branch)
            case "ATOMIC_GROUP":
                _bounded(argument)
            case _:
                pass
    return tree

"""A person's own regular expressions, as far as they can be matched in bounded time.

`re` tries every way in which a pattern can match; two repeats that can share characters make that many ways. Patterns
that allow this are refused, and every repeat is held to a length.
"""

from __future__ import annotations

import re
from typing import Any, cast

LONGEST_REPEAT = 256
"""What `*`, `+` and `{n,}` go up to."""
_LONGEST_PATTERN = 500
_MOST_WAYS = 10_000
_SAMPLES = (*range(0x250), 0x0416, 0x0663, 0x2014, 0x4E2D, 0x1F600)
"""Characters by which sets are compared: all Latin ones, and one each of other letters, digits and signs."""

_Characters = frozenset[int]


class UnsafeRegexError(ValueError):
    """The pattern is wrong, or it could take too long. The text says what to change."""


def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, ready to be searched for. Raises UnsafeRegexError."""
    if len(pattern) > _LONGEST_PATTERN:
        raise UnsafeRegexError(f"expected a pattern of at most {_LONGEST_PATTERN} characters")
    try:
        re.compile(pattern)
        # The parser's own tree: what the pattern means is not guessed.
        tree: Any = re._parser.parse(pattern)  # type: ignore[attr-defined]  # pyright: ignore
        if _ways(list(tree)) > _MOST_WAYS:
            raise UnsafeRegexError("expected fewer alternatives and optional parts")
        _check(list(tree), tree.state.flags)
        bounded = re._compiler.compile(_bounded(tree), tree.state.flags)  # type: ignore[attr-defined]  # pyright: ignore
    except (re.error, RecursionError, OverflowError) as error:
        raise UnsafeRegexError(f"expected a regular expression: {error}") from None
    if cast("re.Pattern[str]", bounded).fullmatch(""):
        raise UnsafeRegexError("expected a pattern that does not match an empty text")
    return cast("re.Pattern[str]", bounded)


def _name(operation: Any) -> str:
    return str(operation)


def _check(items: list[Any], flags: int, *, in_repeat: bool = False) -> None:
    """Refuse what can be matched in many ways."""
    for index, (operation, argument) in enumerate(items):
        match _name(operation):
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, body = argument
                inner = list(body)
                varies = least != most
                if varies and in_repeat:
                    raise UnsafeRegexError("a repeat inside a repeat can take very long: write it without one of them")
                if not _is_fixed(inner) and int(most) > 1:
                    raise UnsafeRegexError("a repeat inside a repeat can take very long: write it without one of them")
                _check(inner, flags, in_repeat=in_repeat or int(most) > 1)
                follows, _ = _first(items[index + 1 :], flags)
                if varies and int(most) > 1 and (_last(inner, flags) | _first(inner, flags)[0]) & follows:
                    raise UnsafeRegexError(
                        "what follows a repeat must not begin with a character that the repeat takes:"
                        " it can take very long. Give it a fixed length, or put a character between"
                    )
            case "BRANCH":
                for branch in argument[1]:
                    _check(list(branch), flags, in_repeat=in_repeat)
            case "SUBPATTERN":
                _check(list(argument[3]), flags, in_repeat=in_repeat)
            case "ATOMIC_GROUP":
                _check(list(argument), flags, in_repeat=in_repeat)
            case "ASSERT" | "ASSERT_NOT":
                if not _is_fixed(list(argument[1])):
                    raise UnsafeRegexError("expected a look-around of fixed length")
            case "GROUPREF" | "GROUPREF_EXISTS":
                raise UnsafeRegexError("a reference to a group can take very long: write it without")
            case _:
                pass


def _ways(items: list[Any]) -> int:
    """In how many ways alternatives and optional parts can be taken."""
    ways = 1
    for operation, argument in items:
        match _name(operation):
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                ways *= _ways(list(argument[2])) + (argument[0] == 0 and argument[1] == 1)
            case "BRANCH":
                ways *= sum(_ways(list(branch)) for branch in argument[1])
            case "SUBPATTERN":
                ways *= _ways(list(argument[3]))
            case "ATOMIC_GROUP":
                ways *= _ways(list(argument))
            case _:
                pass
    return ways


def _is_fixed(items: list[Any]) -> bool:
    """Whether all that it matches has one length and is matched in one way."""
    for operation, argument in items:
        match _name(operation):
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                if argument[0] != argument[1] or not _is_fixed(list(argument[2])):
                    return False
            case "SUBPATTERN":
                if not _is_fixed(list(argument[3])):
                    return False
            case "BRANCH":
                branches = [list(branch) for branch in argument[1]]
                # Alternatives of one character are a set.
                if not all(len(branch) == 1 and _is_fixed(branch) for branch in branches):
                    return False
            case "ATOMIC_GROUP":
                if not _is_fixed(list(argument)):
                    return False
            case _:
                pass
    return True


def _first(items: list[Any], flags: int) -> tuple[_Characters, bool]:
    """The characters with which a match can begin, and whether it can be empty."""
    found: _Characters = frozenset()
    for operation, argument in items:
        characters, empty = _first_of(operation, argument, flags)
        found |= characters
        if not empty:
            return found, False
    return found, True


def _last(items: list[Any], flags: int) -> _Characters:
    return _first(list(reversed(items)), flags)[0]


def _first_of(operation: Any, argument: Any, flags: int) -> tuple[_Characters, bool]:
    match _name(operation):
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            characters, empty = _first(list(argument[2]), flags)
            return characters, empty or argument[0] == 0
        case "SUBPATTERN":
            return _first(list(argument[3]), flags)
        case "ATOMIC_GROUP":
            return _first(list(argument), flags)
        case "BRANCH":
            all_first = [_first(list(branch), flags) for branch in argument[1]]
            return frozenset[int]().union(*(each[0] for each in all_first)), any(each[1] for each in all_first)
        case "AT" | "ASSERT" | "ASSERT_NOT":
            return frozenset(), True
        case _:
            return _set(operation, argument, flags), False


def _set(operation: Any, argument: Any, flags: int) -> _Characters:
    """The characters that one place of the pattern takes: `re` itself is asked."""
    try:
        single = re._compiler.compile(_tree(operation, argument), flags)  # type: ignore[attr-defined]  # pyright: ignore
    except (re.error, TypeError, AttributeError):
        return frozenset(_SAMPLES)
    samples = (*_SAMPLES, argument) if _name(operation) == "LITERAL" else _SAMPLES
    return frozenset(code for code in samples if cast("re.Pattern[str]", single).fullmatch(chr(code)))


def _tree(operation: Any, argument: Any) -> Any:
    tree: Any = re._parser.parse("")  # type: ignore[attr-defined]  # pyright: ignore
    tree.data.append((operation, argument))
    return tree


def _bounded(tree: Any) -> Any:
    """The same pattern with every repeat held to `LONGEST_REPEAT`."""
    for index, (operation, argument) in enumerate(tree.data):
        match _name(operation):
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

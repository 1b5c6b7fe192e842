"""Word lists, one topic a file: plain text that anyone can read and correct."""

from __future__ import annotations

from importlib.resources import files


def lines(name: str) -> list[list[str]]:
    """The words of each line of `<name>.txt`; what follows `#` is for people."""
    text = files(__name__).joinpath(f"{name}.txt").read_text("utf-8")
    return [words for line in text.splitlines() if (words := line.partition("#")[0].split())]


def words(name: str) -> frozenset[str]:
    """All words of `<name>.txt`."""
    return frozenset(word for line in lines(name) for word in line)

"""The text of a Logseq page that a person and Toolfold both write.

    type:: skill                        page properties: ours are set, all others stay
    description:: Titles of open issues
    tags:: github, report

    - a person's own blocks
    - ## Managed by Toolfold            the managed block: this bullet with everything below it
      toolfold:: 0f1e2d3c4b5a6978       the hash of what we wrote there
        - …

Everything else is kept byte for byte. What a person wrote inside the managed block is moved out of it, never lost.
Logseq itself rewrites pages (indentation, `id::` and `collapsed::` of blocks); that is no change of ours or theirs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

MARK = "toolfold"
TITLE = "- ## Managed by Toolfold"
MOVED = "- Moved here from the block that Toolfold manages:"
_PROPERTY = re.compile(r"(?P<lead>- |  |)(?P<key>[^\s:`]+)::(?:[ \t]+(?P<value>.*?))?[ \t]*(?P<end>\r?)")
_INNER_PROPERTY = re.compile(r"[ \t]+(?P<key>[^\s:`]+)::(?:[ \t].*)?")
_KEPT_BY_LOGSEQ = frozenset({"id", "collapsed"})
_TAG = re.compile(r"\s*#?\[\[(?P<linked>[^\[\]]*)\]\]\s*(?=,|$)|(?P<plain>[^,]+)")


@dataclass(frozen=True)
class PageText:
    """A page, split into its lines. Only `\\n` ends a line, as in Logseq; a `\\r` before it belongs to the line."""

    lines: tuple[str, ...]
    start: str = ""
    """A byte order mark."""

    @classmethod
    def of(cls, text: str) -> PageText:
        start = "\ufeff" if text.startswith("\ufeff") else ""
        return cls(tuple(text.removeprefix(start).split("\n")), start)

    def __str__(self) -> str:
        return self.start + "\n".join(self.lines)

    @property
    def end(self) -> str:
        """How this page ends its lines."""
        return "\r" if self.lines[0].endswith("\r") else ""

    # Properties

    @property
    def properties(self) -> dict[str, str]:
        """The page properties by key, as Logseq counts them: `My_Key` is `my-key`, and the first of two counts."""
        found: dict[str, str] = {}
        for line in self._property_lines():
            found.setdefault(_key(line["key"]), line["value"] or "")
        return found

    def with_properties(self, values: Mapping[str, str]) -> PageText:
        """These properties set, each in its place if it has one; an empty value removes it."""
        region = list(self._property_lines())
        lines: list[str] = []
        done: set[str] = set()
        for line in region:
            key = _key(line["key"])
            if key not in values or key in done or (line["value"] or "") == values[key]:
                lines.append(line[0])
            elif values[key]:
                lines.append(f"{line['lead']}{line['key']}:: {values[key]}{line['end']}")
            done.add(key)
        lead = "  " if region and region[0]["lead"] == "- " else ""
        lines += [f"{lead}{key}:: {value}{self.end}" for key, value in values.items() if value and key not in done]
        if lead and lines and lines[0].startswith("  "):  # the first line of the block is gone
            lines[0] = f"- {lines[0][2:]}"
        if lines and not region:
            lines.append(self.end)  # as Logseq does: a blank line after the properties
        return PageText((*lines, *self.lines[len(region) :]), self.start)

    def _property_lines(self) -> Iterator[re.Match[str]]:
        bulleted = self.lines[0].startswith("- ")
        for number, line in enumerate(self.lines):
            found = _PROPERTY.fullmatch(line)
            if found is None or found["lead"] != (("- " if number == 0 else "  ") if bulleted else ""):
                return
            yield found

    # The managed block

    @property
    def managed(self) -> tuple[int, int] | None:
        """The lines of the managed block: from its bullet to before the next line that is not below it."""
        for start, line in enumerate(self.lines):
            if line.startswith("- ") and _is_marked(self.lines, start):
                end = start + 1
                while end < len(self.lines) and (not self.lines[end].strip() or self.lines[end][0] in " \t"):
                    end += 1
                while not self.lines[end - 1].strip():
                    end -= 1
                return start, end
        return None

    @property
    def managed_lines(self) -> tuple[str, ...]:
        """What is written in the managed block, without indentation and what Logseq adds."""
        place = self.managed
        return () if place is None else tuple(_content(self.lines[place[0] : place[1]]))

    def with_managed(self, block: Sequence[str]) -> tuple[PageText, bool]:
        """The managed block replaced by `block`, or put at the end; and whether a person's lines were moved out of it.

        `block` are the lines below the bullet, indented by tabs.
        """
        wanted = [*_content([TITLE, *block])]
        mark = sha256("\n".join(wanted).encode()).hexdigest()[:16]
        fresh = [TITLE, f"  {MARK}:: {mark}", *block]
        place = self.managed
        if place is None:
            lines = list(self.lines)
            if lines[-1].strip():
                lines.append("")
            return PageText((*lines[:-1], *(f"{line}{self.end}" for line in fresh), lines[-1]), self.start), False
        old = self.lines[place[0] : place[1]]
        there = [*_content(old)]
        if there == wanted and _mark_of(old) == mark:
            return self, False
        ours = _mark_of(old) == sha256("\n".join(there).encode()).hexdigest()[:16]
        moved = [] if ours else _foreign(old, wanted)
        lines = [f"{line}{self.end}" for line in _with_additions(fresh, old)]
        if moved:
            lines += [f"{MOVED}{self.end}", *moved]
        return PageText((*self.lines[: place[0]], *lines, *self.lines[place[1] :]), self.start), bool(moved)


def tags_text(tags: Iterable[str]) -> str:
    return ", ".join(" ".join(tag.split()) for tag in tags)


def tags_in(text: str) -> tuple[str, ...]:
    """The tags of a `tags::` value: `a, #b, [[c d]], #[[e]]`."""
    found: list[str] = []
    for match in _TAG.finditer(text):
        tag = match["linked"] if match["linked"] is not None else match["plain"].strip().removeprefix("#")
        tag = " ".join(tag.split())
        if tag and tag not in found:
            found.append(tag)
    return tuple(found)


def _key(written: str) -> str:
    return written.lower().replace("_", "-")


def _is_marked(lines: Sequence[str], start: int) -> bool:
    """Whether the block that starts here has our property, among its properties."""
    for line in lines[start + 1 :]:
        found = _INNER_PROPERTY.fullmatch(line.rstrip())
        if found is None:
            return False
        if found["key"] == MARK:
            return True
    return False


def _mark_of(block: Sequence[str]) -> str:
    return next((line.partition("::")[2].strip() for line in block if line.strip().startswith(f"{MARK}::")), "")


def _is_added(line: str) -> bool:
    """Whether Logseq wrote this line, for its own use."""
    found = _INNER_PROPERTY.fullmatch(line.rstrip())
    return found is not None and (found["key"] in _KEPT_BY_LOGSEQ or found["key"].startswith("logseq."))


def _content(block: Iterable[str]) -> Iterator[str]:
    for line in block:
        if line.strip() and not _is_added(line) and not line.strip().startswith(f"{MARK}::"):
            yield line.strip()


def _foreign(old: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The lines of a block that are not ours; where ours have changed, the former ones are among them."""
    ours = Counter(wanted)
    found: list[str] = []
    is_theirs = False
    for line in old:
        content = line.strip()
        if not content or content.startswith(f"{MARK}::"):
            continue
        if not _is_added(line):
            is_theirs = ours[content] < 1
            ours[content] -= not is_theirs
        if is_theirs:
            found.append(line if line[0] in " \t" else f"\t{line}")
    return found


def _with_additions(fresh: Sequence[str], old: Sequence[str]) -> Iterator[str]:
    """The new lines, with what Logseq had added to the old ones: references to these blocks go on working."""
    added: dict[str, list[str]] = {}
    last = ""
    for line in old:
        if _is_added(line):
            added.setdefault(last, []).append(line.strip())
        elif line.strip().startswith("- "):
            last = line.strip()
    for line in fresh:
        yield line
        indent = line[: len(line) - len(line.lstrip())]
        for addition in added.pop(line.strip(), ()):
            yield f"{indent}  {addition}"

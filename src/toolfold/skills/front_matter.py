"""The YAML block at the top of a SKILL.md, read strictly where it could do harm and kindly where people slip."""

from __future__ import annotations

import re
from typing import Any, cast

import yaml

from toolfold.errors import SkillError

MAX_FRONT_MATTER = 64 * 1024
_BLOCK = re.compile(r"---[ \t]*\n(?:(.*?)\n)?---[ \t]*(?:\n|\Z)", re.DOTALL)
_UNQUOTED = re.compile(r"^([A-Za-z][\w-]*): +([^\s'\"|>\[{&*!#].*: .*)$", re.MULTILINE)


class _Loader(yaml.SafeLoader):
    """Plain data without aliases or repeated keys. Numbers and dates stay text, exactly as they were written."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):  # pyright: ignore[reportUnknownMemberType]
            raise yaml.YAMLError("aliases are not allowed")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise yaml.YAMLError(f"the key {twice!r} is there twice")
        return super().construct_mapping(node, deep)


_BOOL = ("tag:yaml.org,2002:bool", re.compile(r"(?:true|false)\Z", re.IGNORECASE))
_NULL = ("tag:yaml.org,2002:null", re.compile(r"(?:~|null|)\Z"))
_Loader.yaml_implicit_resolvers = {first: [_BOOL] for first in "tTfF"} | {first: [_NULL] for first in ("~", "n", "")}


def split(text: str) -> tuple[dict[str, Any], str]:
    """The fields and the Markdown body of a SKILL.md."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    found = _BLOCK.match(text)
    if found is None:
        raise SkillError("SKILL.md has no front matter: it must begin with a block between two lines of `---`")
    return _fields(found[1] or ""), text[found.end() :].strip("\n")


def join(fields: dict[str, Any], body: str) -> str:
    """A SKILL.md. The fields keep their order."""
    block = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=10_000, default_flow_style=False)
    return f"---\n{block}---\n\n{body}\n"


def _fields(block: str) -> dict[str, Any]:
    if len(block) > MAX_FRONT_MATTER:
        raise SkillError(f"the front matter of SKILL.md is longer than {MAX_FRONT_MATTER:,} characters")
    try:
        try:
            found = _load(block)
        except yaml.MarkedYAMLError:
            # `description: Use this when: …` is no YAML, and common.
            found = _load(_UNQUOTED.sub(lambda line: f"{line[1]}: {_quoted(line[2])}", block))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        deep = isinstance(error, RecursionError)
        reason = "it is nested too deeply" if deep else getattr(error, "problem", None) or error
        raise SkillError(f"invalid YAML in the front matter of SKILL.md: {reason}") from None
    if not isinstance(found, dict):
        raise SkillError("the front matter of SKILL.md must be `key: value` lines")
    fields = cast(dict[Any, Any], found)
    if not all(isinstance(key, str) for key in fields):
        raise SkillError("the keys in the front matter of SKILL.md must be text")
    return fields


def _load(block: str) -> Any:
    return yaml.load(block, Loader=_Loader)  # noqa: S506 - a SafeLoader that allows less


def _quoted(value: str) -> str:
    return "'" + value.strip().replace("'", "''") + "'"

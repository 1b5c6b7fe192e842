"""A skill's two names: `sales-report` for its folder (Agent Skills), `sales_report` for its module and function."""

from __future__ import annotations

import builtins
import keyword
import re
import sys

from toolfold.errors import SkillError

MAX_NAME = 64
_FOLDER_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_OWN = frozenset({"skills", "servers", "toolfold", "client", "tool_discovery", "workspace"})


def folder_name(name: str) -> str:
    """`sales-report` for `sales_report`, `sales-report` or `SalesReport`. SkillError where that cannot be a name."""
    if len(name) > 500:
        raise SkillError(f"the skill's name has {len(name):,} characters; at most {MAX_NAME} are allowed")
    joined = _HUMP.sub("_", name).lower().replace("_", "-") if name.replace("-", "_").isidentifier() else name
    return check_folder_name(joined)


def check_folder_name(name: str) -> str:
    """`name`, if it is a skill's name as the Agent Skills specification has it."""
    if len(name) > MAX_NAME:
        raise SkillError(f"the skill's name has {len(name):,} characters; at most {MAX_NAME} are allowed")
    if not _FOLDER_NAME.fullmatch(name):
        raise SkillError(
            f"invalid skill name {name!r}: use lowercase letters, digits and single hyphens or underscores between them"
        )
    return name


def module_name(name: str) -> str:
    """What programs import: `sales_report` for `sales-report`."""
    return name.replace("-", "_")


def check_module_name(module: str) -> None:
    """Refuse a name that programs could not import, or that would hide something of theirs."""
    if not module.isidentifier() or keyword.iskeyword(module):
        raise SkillError(f"a skill that programs import cannot be called {module!r}: that is no name in Python")
    if module in sys.stdlib_module_names or module in _OWN:
        raise SkillError(f"a skill cannot be called {module!r}: that is a module; choose another name")
    if hasattr(builtins, module):
        raise SkillError(f"a skill cannot be called {module!r}: that is a built-in of Python; choose another name")

"""From what a program or a person wrote to a skill that can be saved: checked in every way that needs no sandbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from toolfold.errors import SkillError
from toolfold.skills.folder import MAX_DESCRIPTION, Skill
from toolfold.skills.function import MAX_SOURCE, Function, document, named, read_function
from toolfold.skills.names import check_module_name, folder_name, module_name

Dependencies = Callable[[str], Sequence[str] | None]
"""The skills that a skill imports, by modules; None where there is no such skill."""


@dataclass(frozen=True)
class Draft:
    """What is to be saved, as it was written."""

    name: str
    source: str
    description: str = ""
    tags: Sequence[str] = ()
    document: str = ""


def checked(
    draft: Draft, dependencies: Dependencies, taken: Callable[[str], str] = lambda module: ""
) -> tuple[Skill, Function]:
    """The skill and its function. SkillError with the first reason why it cannot be saved.

    `taken` says what else has a module's name; empty where nothing does.
    """
    name = folder_name(draft.name)
    module = module_name(name)
    check_module_name(module)
    if what := taken(module):
        raise SkillError(f"a skill cannot be called {module!r}: that is {what}; choose another name")
    if len(draft.source) > MAX_SOURCE:
        raise SkillError(
            f"the source of the skill has {len(draft.source):,} characters; at most {MAX_SOURCE:,} are allowed"
        )
    source = named(draft.source.replace("\r\n", "\n").strip("\n") + "\n", module)
    function = read_function(source, module)
    _ = function.has_examples  # those that cannot be read are refused
    check_dependencies(module, function.skills, dependencies)
    description = " ".join((draft.description or function.summary or module.replace("_", " ")).split())
    if not draft.description:
        description = description[:MAX_DESCRIPTION]
    skill = Skill(
        name=name,
        description=description,
        source=source,
        body=draft.document.strip("\n") or document(name, description, function),
        tags=tuple(dict.fromkeys(tag.strip() for tag in draft.tags if tag.strip())),
    )
    return skill, function


def check_dependencies(module: str, imports: Sequence[str], dependencies: Dependencies) -> None:
    """Refuse a skill that imports one which is not there, or one that leads back to it."""
    for other in imports:
        if other != module and dependencies(other) is None:
            raise SkillError(f"it imports the skill {other!r}, which is not saved")
    way = _way_back(module, imports, dependencies, [module], set())
    if way:
        raise SkillError(f"skills must not import each other in a circle: {' → '.join(way)}")


def _way_back(
    goal: str, imports: Sequence[str], dependencies: Dependencies, way: list[str], seen: set[str]
) -> list[str]:
    for other in imports:
        if other == goal:
            return [*way, goal]
        if other not in seen:
            seen.add(other)
            found = _way_back(goal, dependencies(other) or (), dependencies, [*way, other], seen)
            if found:
                return found
    return []

"""From a package, an archive or a folder to a skill that is installed: what a person is shown, checked and pinned."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import unified_diff
from pathlib import Path

from toolfold.codegen.names import ApiNames, identifier
from toolfold.errors import SkillError
from toolfold.skills import front_matter
from toolfold.skills.adopt import adopted
from toolfold.skills.contained import ContainedFolder
from toolfold.skills.folder import Skill, files_of_skill, read_skill, skill_of_files
from toolfold.skills.index import record_of
from toolfold.skills.keys import Pin, Pins
from toolfold.skills.library import Library, fetch, find, read_index, version_key
from toolfold.skills.names import check_module_name
from toolfold.skills.needs import needs_of, satisfies
from toolfold.skills.package import LONGEST_ARCHIVE, Package, is_signed, read_archive, skill_in, unpack
from toolfold.skills.store import Saved, SkillStore


@dataclass(frozen=True)
class Offer:
    """A skill that could be installed, with what a person should know before."""

    skill: Skill
    package: Package | None = None
    """None for a plain folder or archive, which nobody has signed."""
    library: str = ""

    @property
    def tools(self) -> tuple[str, ...]:
        return needs_of(self.skill.source).tools

    def difference(self, installed: Skill) -> str:
        """Line by line, from the skill that is here to this one."""
        before, after = (_texts(files_of_skill(one)) for one in (_bare(installed), _bare(self.skill)))
        return "\n".join(
            line
            for path in sorted({*before, *after})
            for line in unified_diff(before.get(path, []), after.get(path, []), path, path, lineterm="")
        )


def offer_at(path: Path) -> Offer:
    """What a folder in the Agent Skills layout, a package or another archive of one skill holds."""
    path = path.resolve()  # the person has named it: only links inside of it are not followed
    if path.is_dir():
        return _offer(read_skill(path))
    data = ContainedFolder(path.parent).read(path.name, LONGEST_ARCHIVE)
    if data is None:
        raise SkillError(f"There is no file {path}.", hint="Name a skill's folder, or a package of it.")
    if is_signed(data):
        package = unpack(data)
        return _offer(package.skill, package)
    files = skill_in(read_archive(data))
    name = front_matter.split(files["SKILL.md"].decode("utf-8", "replace"))[0].get("name", "")
    return _offer(skill_of_files(str(name), files))


def offers_in(library: Library, name: str, version: str, store: SkillStore, pins: Pins) -> list[Offer]:
    """A skill of a library, after those of the same library that it needs and that are not here."""
    index = read_index(library)
    found: dict[str, Offer] = {}

    def add(wanted: str, exact: str, ranges: str, above: tuple[str, ...]) -> None:
        if wanted in found or wanted in above:
            return
        if ranges:
            fitting = [one.manifest.version for one in index if one.manifest.name == wanted]
            exact = next((one for one in reversed(fitting) if satisfies(one, ranges)), "")
        package = fetch(library, find(library, wanted, exact, index))
        pin = pins.check(package)
        if not exact and pin is not None and version_key(package.manifest.version) < version_key(pin.version):
            raise SkillError(
                f"{library.location} offers {wanted} {package.manifest.version}, but {pin.version} is installed.",
                hint="The library may have been set back. `--version` installs an older version on purpose.",
            )
        for other, needed in package.manifest.requires.items():
            is_skill = other not in {"toolfold", "python"}
            if (
                is_skill
                and not _is_here(other, needed, store, pins)
                and any(one.manifest.name == other for one in index)
            ):
                add(other, "", needed, (*above, wanted))
        found[wanted] = _offer(package.skill, package, library.location)

    add(name, version, "", ())
    return list(found.values())


def unmet(offer: Offer, toolfold: str, store: SkillStore, pins: Pins, coming: Mapping[str, str]) -> list[str]:
    """The requirements of a package that are not met here, in words. `coming` is installed with it."""
    required = offer.package.manifest.requires if offer.package is not None else {}
    python = ".".join(map(str, sys.version_info[:3]))
    problems: list[str] = []
    for name, wanted in required.items():
        if name in {"toolfold", "python"}:
            has = toolfold if name == "toolfold" else python
            if not satisfies(has, wanted):
                problems.append(f"{name} {wanted} (here is {has})")
        elif not (name in coming and satisfies(coming[name], wanted)) and not _is_here(name, wanted, store, pins):
            problems.append(f"the skill {name} {wanted}".rstrip())
    needed = {module.replace("_", "-") for module in needs_of(offer.skill.source).skills} - required.keys()
    here = {name for name in needed if name in coming or _is_here(name, "", store, pins)}
    return problems + [f"the skill {name}" for name in sorted(needed - here - {offer.skill.name})]


def missing_tools(tools: tuple[str, ...], names: ApiNames, servers: Mapping[str, object]) -> list[str]:
    """Servers that a skill needs and that are not configured, and tools that their servers do not have."""
    configured = {identifier(server, "server") for server in servers}
    absent: dict[str, None] = {}
    for tool in tools:
        module, _, function = tool.partition(".")
        if names.behind(module) is None:
            if module not in configured:
                absent[f"the server {module}"] = None
        elif function != "*" and names.resolve(module, function) is None:
            absent[f"the tool {tool}"] = None
    return list(absent)


def install(offer: Offer, store: SkillStore, pins: Pins) -> Saved:
    """Keep the skill, and pin its package."""
    if offer.package is not None:
        pins.check(offer.package)
    origin = {"created": datetime.now(UTC).isoformat(timespec="seconds")}
    if offer.package is not None:
        manifest = offer.package.manifest
        origin |= {"publisher": manifest.publisher, "published": manifest.version, "package": offer.package.sha256}
    kept = {key: value for key, value in offer.skill.provenance.items() if key in {"author", "made"}}
    saved = store.save(dataclasses.replace(offer.skill, provenance=kept | origin))
    if offer.package is not None:
        manifest = offer.package.manifest
        pin = Pin(manifest.publisher, manifest.version, offer.package.sha256, saved.skill.digest, offer.library)
        pins.put(offer.skill.name, pin)
    return saved


def _offer(skill: Skill, package: Package | None = None, library: str = "") -> Offer:
    usable = adopted(skill)
    check_module_name(usable.module)
    record_of(usable)  # a skill.py that is broken is refused before anybody is asked
    return Offer(usable, package, library)


def _is_here(name: str, wanted: str, store: SkillStore, pins: Pins) -> bool:
    record = store.find(name)
    if record is None or record.problem:
        return False
    pin = pins.all().get(name)
    return satisfies(pin.version if pin is not None else str(record.version), wanted)


def _bare(skill: Skill) -> Skill:
    """Without what differs in any case."""
    return dataclasses.replace(skill, version=1, provenance={})


def _texts(files: Mapping[str, bytes]) -> dict[str, list[str]]:
    return {path: content.decode("utf-8", "backslashreplace").splitlines() for path, content in files.items()}

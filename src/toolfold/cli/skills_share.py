"""`toolfold skills export|import|publish|install|update|key|unpin|sync`: skills that come from or go elsewhere."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolfold.cli.console import note, printable, write_json
from toolfold.cli.options import Config, DataDir, Json
from toolfold.errors import ConfigError, SkillError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from toolfold.catalog.catalog import Catalog
    from toolfold.config.settings import Settings
    from toolfold.skills.folder import Skill
    from toolfold.skills.install import Offer
    from toolfold.skills.keys import Pins
    from toolfold.skills.library import Library
    from toolfold.skills.store import SkillStore

Name = Annotated[str, typer.Argument(help="The skill's name: sales-report or sales_report.")]
LibraryOption = Annotated[
    str, typer.Option("--library", "-l", help="A folder, a bare git repository, or its https or ssh address.")
]
ScopeOption = Annotated[str, typer.Option("--scope", help="Whose skills: user, shared or project.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
_LONGEST_CODE = 200_000


def add_to(skills: typer.Typer) -> None:
    for command in (export, import_, publish, install, update, key, unpin, sync):
        skills.command(command.__name__.rstrip("_"))(command)


def export(
    name: Name,
    to: Annotated[Path, typer.Option("--to", help="The folder to put the skill's folder into.")] = Path(),
    package: Annotated[Path | None, typer.Option("--package", help="Write a signed package to this file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
    scope: ScopeOption = "user",
    config: Config = None,
    data: DataDir = None,
) -> None:
    """Write a skill as a folder in the Agent Skills layout, which Claude Code and others read, or as a package.

    Examples: toolfold skills export sales-report --to ~/.claude/skills
              toolfold skills export sales-report --package sales-report.skill.zip
    """
    from toolfold.config import edge
    from toolfold.skills.adopt import outgoing
    from toolfold.skills.contained import ContainedFolder
    from toolfold.skills.folder import write_skill

    place = _Place(config, data, scope)
    skill = outgoing(place.skill(name))
    target = edge.host().absolute(package if package is not None else to / skill.name)
    if target.exists() and not force:
        raise ConfigError(f"{target} is there already.", hint="--force replaces it.")
    if package is None:
        if target.exists() and not (target / "SKILL.md").is_file():
            raise ConfigError(f"{target} is there already, and it is no skill.", hint="Choose another folder.")
        write_skill(skill, target)
    else:
        if not target.parent.is_dir():
            raise ConfigError(f"There is no folder {target.parent}.")
        ContainedFolder(target.parent).write(target.name, _packed(skill, place).data)
    sys.stdout.write(f"{target}\n")


def import_(
    path: Annotated[Path, typer.Argument(help="A skill's folder (with a SKILL.md), or an archive of it.")],
    yes: Yes = False,
    scope: ScopeOption = "user",
    config: Config = None,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """Add a skill from a folder in the Agent Skills layout, from a package, or from a zip archive.

    Its code, its risk and its tools are shown first. A skill without Python functions can be read by programs.

    Examples: toolfold skills import ~/.claude/skills/pdf-forms
              toolfold skills import sales-report.skill.zip --yes
    """
    from toolfold.config import edge
    from toolfold.skills.install import offer_at

    _install(_Place(config, data, scope), [offer_at(edge.host().absolute(path))], yes=yes, json=json)


def publish(
    name: Name,
    library: LibraryOption,
    scope: ScopeOption = "user",
    config: Config = None,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """Sign a skill and put it into a library.

    The first time, a key is made in the data folder; `toolfold skills key` shows its public part.

    Examples: toolfold skills publish sales-report --library ~/team-skills
              toolfold skills publish sales-report --library git@example.org:team/skills.git
    """
    from toolfold.skills.adopt import outgoing
    from toolfold.skills.library import publish as put

    place = _Place(config, data, scope)
    package = _packed(outgoing(place.skill(name)), place)
    opened = place.library(library)
    is_new = put(opened, package, place.key())
    manifest = package.manifest
    if json:
        write_json({"name": manifest.name, "version": manifest.version, "sha256": package.sha256, "new": is_new})
    elif is_new:
        note(f"Published {manifest.name} {manifest.version} to {opened.location}.")
    else:
        note(f"{manifest.name} {manifest.version} is in {opened.location} already.")


def install(
    name: Annotated[str, typer.Argument(help="A skill of the library; without it, list what there is.")] = "",
    library: LibraryOption = "",
    version: Annotated[str, typer.Option("--version", help="This version, not the newest.")] = "",
    yes: Yes = False,
    scope: ScopeOption = "user",
    config: Config = None,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """Install a skill from a library, or from a folder or archive. Its code, risk and tools are shown first.

    The publisher's key and the package's hash are pinned: another key, or a changed package, is refused later.

    Examples: toolfold skills install --library ~/team-skills
              toolfold skills install sales-report --library ~/team-skills
              toolfold skills install ./my-skill
    """
    from toolfold.skills.install import offers_in
    from toolfold.skills.names import folder_name

    if not library:
        if not name:
            raise ConfigError("Nothing to install.", hint="Name a folder, or a library with --library.")
        import_(Path(name), yes=yes, scope=scope, config=config, data=data, json=json)
        return
    place = _Place(config, data, scope)
    opened = place.library(library)
    if not name:
        _list(opened, json=json)
        return
    offers = offers_in(opened, folder_name(name), version, place.store, place.pins)
    if why := getattr(opened, "stale", ""):
        note(f"{why} The copy of the last time is used.", "yellow")
    _install(place, offers, yes=yes, json=json)


def update(
    names: Annotated[list[str] | None, typer.Argument(help="Only these skills.")] = None,
    yes: Yes = False,
    scope: ScopeOption = "user",
    config: Config = None,
    data: DataDir = None,
) -> None:
    """Look for newer versions of installed skills in their libraries; show what changes, and ask.

    Examples: toolfold skills update
              toolfold skills update sales-report --yes
    """
    from toolfold.skills.install import offers_in
    from toolfold.skills.library import find, version_key
    from toolfold.skills.names import folder_name

    place = _Place(config, data, scope)
    known = {name: pin for name, pin in place.pins.all().items() if pin.library and place.store.find(name)}
    wanted = [folder_name(name) for name in names or []] or list(known)
    failed = False
    for name in wanted:
        if name not in known:
            raise SkillError(f"{name} was not installed from a library.", hint="`toolfold skills list` shows them.")
        opened = place.library(known[name].library)
        try:
            newest = find(opened, name).manifest.version
            if version_key(newest) == version_key(known[name].version):
                # The same version must still be the same package.
                offers_in(opened, name, newest, place.store, place.pins)
                note(f"{name} {newest} is the newest.")
                continue
            _install(place, offers_in(opened, name, "", place.store, place.pins), yes=yes, json=False)
        except SkillError as error:
            note(f"{name}: {error}", "red")
            failed = True
    if not known:
        note("No skill was installed from a library.")
    if failed:
        raise SystemExit(1)


def key(data: DataDir = None, config: Config = None) -> None:
    """Show the public key that signs what you publish. It is made if there is none.

    Example: toolfold skills key
    """
    sys.stdout.write(f"{_Place(config, data, 'user').key().public}\n")


def unpin(name: Name, data: DataDir = None, config: Config = None) -> None:
    """Forget the publisher's key and the hash of a skill. The next install pins them afresh.

    Example: toolfold skills unpin sales-report
    """
    from toolfold.skills.names import folder_name

    if not _Place(config, data, "user").pins.forget(folder_name(name)):
        raise SkillError(f"{name} is not pinned.")
    note(f"The pin of {name} is gone.")


def sync(
    graph: Annotated[Path | None, typer.Option("--graph", help="The Logseq graph; default: `logseq.graph`.")] = None,
    prefer: Annotated[str, typer.Option("--prefer", help="Where both sides changed: page or skill.")] = "",
    scope: ScopeOption = "user",
    config: Config = None,
    data: DataDir = None,
    json: Json = False,
) -> None:
    """Write a page for every skill into a Logseq graph, and take over edits of descriptions and tags.

    Examples: toolfold skills sync
              toolfold skills sync --graph ~/notes --prefer page
    """
    import dataclasses

    from toolfold.config import edge
    from toolfold.skills.logseq import LogseqSkillsIntegration

    place = _Place(config, data, scope)
    chosen = edge.host().absolute(graph) if graph is not None else place.settings.logseq.graph
    if chosen is None:
        raise ConfigError("No Logseq graph is named.", hint='Set `graph = "DIR"` under [logseq], or use --graph.')
    if prefer not in {"", "page", "skill"}:
        raise ConfigError(f"--prefer cannot be {prefer!r}.", hint="Write --prefer page or --prefer skill.")
    integration = LogseqSkillsIntegration(chosen, place.store, prefer=prefer)  # pyright: ignore[reportArgumentType]
    report = integration.sync(_told_now_and_then())
    if json:
        write_json(dataclasses.asdict(report))
    else:
        for what in ("created", "updated", "unchanged", "pulled"):
            if listed := getattr(report, what):
                label = "edits taken over from the page" if what == "pulled" else what
                sys.stdout.write(f"{label}: {', '.join(listed)}\n")
        for text in report.conflicts + report.problems:
            note(text, "yellow")
    if report.conflicts or report.problems:
        raise SystemExit(1)


def _told_now_and_then() -> Callable[[int, int], None]:
    """Says how far it has come, every two seconds."""
    last = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > 2:
            last = time.monotonic()
            note(f"{done:,} of {total:,} skills", "dim")

    return tell


class _Place:
    """Where the skills of this command are, and what belongs to sharing them."""

    def __init__(self, config: Path | None, data: Path | None, scope: str) -> None:
        from toolfold.config.load import load_here
        from toolfold.skills.keys import Pins
        from toolfold.skills.skills import SCOPES, scope_folder
        from toolfold.skills.store import SkillStore

        if scope not in SCOPES:
            raise ConfigError(f"There is no scope {scope!r}.", hint=f"Use {', '.join(SCOPES)}.")
        self.settings: Settings = load_here(config, data_dir=data).settings
        root = self.settings.data_dir / "skills"
        self._sharing = root / "sharing"
        self.store: SkillStore = SkillStore(scope_folder(root, self.settings.skills.project, scope))
        self.pins: Pins = Pins(self._sharing)

    def skill(self, name: str) -> Skill:
        from toolfold.skills.names import folder_name

        return self.store.read(folder_name(name))

    def key(self) -> Any:
        from toolfold.skills.keys import SigningKey

        return SigningKey.of(self._sharing)

    def library(self, location: str) -> Library:
        from toolfold.config import edge
        from toolfold.skills.git_library import GitLibrary, open_library

        here = edge.host()
        found = open_library(location, here.cwd, self._sharing / "libraries", here.env)
        if isinstance(found, GitLibrary) and not found.is_local:
            note(f"Asking {found.location} …", "dim")
        return found


def _packed(skill: Skill, place: _Place) -> Any:
    from toolfold import __version__
    from toolfold.skills.package import pack

    return pack(skill, place.key(), __version__)


def _install(place: _Place, offers: Sequence[Offer], *, yes: bool, json: bool) -> None:
    """Show what would be installed, ask, and do it."""
    from toolfold.catalog.catalog import Catalog
    from toolfold.skills.install import install as keep

    coming = {offer.skill.name: offer.package.manifest.version for offer in offers if offer.package is not None}
    catalog = Catalog.open(place.settings)
    for offer in offers:
        if offer.package is not None:
            place.pins.check(offer.package)
        if other := catalog.names.behind(offer.skill.module):
            raise SkillError(f"A skill cannot be called {offer.skill.name}: that is the server {other}.")
        _show(place, offer, catalog, coming)
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError("Nothing was installed: there is no terminal to ask at.", hint="Add --yes.")
        if not typer.confirm(f"Install {', '.join(offer.skill.name for offer in offers)}?", err=True):
            raise SystemExit(1)
    done = [keep(offer, place.store, place.pins) for offer in offers]
    if json:
        write_json(
            [
                {"name": one.skill.name, "module": one.skill.module, "version": one.skill.version, "new": one.is_new}
                for one in done
            ]
        )
        return
    for one in done:
        note(
            f"{'Installed' if one.is_new else 'Already installed:'} {one.skill.name}. "
            f"Programs use it: from skills import {one.skill.module}"
        )


def _show(place: _Place, offer: Offer, catalog: Catalog, coming: dict[str, str]) -> None:
    from toolfold import __version__
    from toolfold.review.risk import assess
    from toolfold.skills.install import missing_tools, unmet

    skill, package = offer.skill, offer.package
    risk = assess(skill.source, catalog.names, catalog.tool, catalog.named)
    note(f"\n{skill.name}{f' {package.manifest.version}' if package is not None else ''}", "bold")
    note(skill.description)
    if package is None:
        note("Not signed: nobody vouches for it.", "yellow")
    else:
        others = place.pins.met(package.manifest.publisher)
        known = f"known from {', '.join(others[:5])}" if others else "new here: compare it with what they tell you"
        note(f"Signed by {package.manifest.publisher} ({known})")
        note(f"Package sha256 {package.sha256}")
    if "made" in skill.provenance:
        note("It was written for other agents: programs can read its text, and import functions of its scripts.")
    note(f"Tools: {', '.join(offer.tools) or 'none'}")
    note(f"Risk: {str(risk).replace(' risk', '', 1)}", "" if risk.level == "low" else "yellow")
    outside = [name for name in risk.imports if name not in sys.stdlib_module_names]
    if outside:
        note(f"It imports packages that `sandbox.packages` must name: {', '.join(outside)}", "yellow")
    needed = missing_tools(offer.tools, catalog.names, place.settings.servers)
    if needed:
        note(f"Missing here: {', '.join(needed)}. Add the server before you use the skill.", "yellow")
    if problems := unmet(offer, __version__, place.store, place.pins, coming):
        note(f"It also needs {', '.join(problems)}.", "yellow")
    record = place.store.find(skill.name)
    if record is not None and not record.problem:
        here = place.store.read(skill.name)
        difference = offer.difference(here)
        if difference:
            note(f"It replaces version {record.version}, which stays in the history:", "bold")
            _write(difference)
        return
    is_made = "made" in skill.provenance
    note("Its text:" if is_made else "Its code:", "bold")
    _write(skill.body if is_made else skill.source)
    for path in sorted(skill.files) if is_made else ():
        if path.endswith(".py"):  # its functions may be in the skill.py that is made
            note(f"{path}:", "bold")
            _write(skill.files[path].decode("utf-8", "backslashreplace"))
    if skill.files:
        note(f"Other files: {', '.join(sorted(skill.files)[:50])}")


def _write(text: str) -> None:
    sys.stderr.write(printable(text[:_LONGEST_CODE]).rstrip("\n") + "\n")
    if len(text) > _LONGEST_CODE:
        note(f"… and {len(text) - _LONGEST_CODE:,} more characters", "yellow")


def _list(library: Library, *, json: bool) -> None:
    from toolfold.skills.library import read_index

    newest = {entry.manifest.name: entry for entry in read_index(library)}
    if json:
        write_json([{"sha256": entry.sha256, **_public(entry.manifest)} for entry in newest.values()])
        return
    for entry in newest.values():
        manifest = entry.manifest
        sys.stdout.write(printable(f"{manifest.name}  {manifest.version}  {manifest.description}\n"))
    if not newest:
        note(f"{library.location} is empty.")


def _public(manifest: Any) -> dict[str, Any]:
    return {name: getattr(manifest, name) for name in ("name", "version", "description", "tags", "tools", "publisher")}

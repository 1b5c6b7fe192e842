"""The API tree on disk: one module per tool, lazy packages, replaced as a whole.

`dest/servers` is a link to one finished version below `dest/.trees/`. A new version is built elsewhere, taking over by
hard link every file whose tool did not change, and the link is swapped in one step: a reader sees the old tree or the
new one, never a mixture. The previous versions stay for a while, since a sandbox may still be reading one.

Sandboxes see all of `dest`. So nothing else is in it: the writers' lock, their notes and what they build are in a
folder of their own, where no program can hold what a writer waits for.
"""

from __future__ import annotations

import contextlib
import os
import py_compile
import shutil
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, cast

import msgspec

from toolfold.codegen import render
from toolfold.codegen.annotations import WIDTH
from toolfold.codegen.names import INDEX, ApiNames
from toolfold.definitions import ToolDefinition
from toolfold.errors import ConfigError
from toolfold.locks import locked
from toolfold.schema import text

_KEPT_VERSIONS = 3
_STORE = ".trees"
_LINK = "servers"
_SHARED = "_call.py"
_UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH
_LOCK_SECONDS = 30.0
"""How long a writer waits for another one. One that takes longer has been suspended; both can go on safely."""


@dataclass(frozen=True, slots=True)
class TreeReport:
    """What `write_tree` did. The counts are of tools."""

    version: str
    """Equal for equal catalogs, and for nothing else."""
    path: Path
    """The finished `servers` folder itself, behind the link: it stays as it is when the link moves on."""
    written: int
    unchanged: int
    removed: int


class _Manifest(msgspec.Struct):
    """What the next version can take over from this one."""

    files: dict[str, str]
    """Relative path → fingerprint of all that the file's text depends on."""


def write_tree(
    tools: Sequence[ToolDefinition], dest: Path, *, names: ApiNames | None = None, state: Path | None = None
) -> TreeReport:
    """Makes `dest/servers` the API tree of `tools`. The same tools give the same bytes, whatever their order.

    `names` are the names of more tools than these: what is left out of a tree does not change how the rest is called.
    `state` is the folder for lock, notes and unfinished versions, on the same file system. By default it is beside
    `dest`; put it inside only where no sandbox sees `dest`.
    """
    catalog = {(tool.server, tool.name): tool for tool in tools}
    ordered = [catalog[key] for key in sorted(catalog)]
    spelled = names.only(catalog).digest if names is not None else ""
    version = _digest(f"{_generator()} {_fingerprint(ordered)}{spelled}".encode())
    home = dest / _STORE / version
    if _current(dest / _LINK) == version and home.is_dir():
        return TreeReport(version, home / _LINK, 0, len(ordered), 0)
    home.parent.mkdir(parents=True, exist_ok=True)
    if state is None:
        place = dest.resolve()
        state = place.with_name(f".{place.name}.state")
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(state):
        return _replace(dest / _LINK, home, state, ordered, names.only(catalog) if names else ApiNames.of(ordered))


def _replace(link: Path, home: Path, state: Path, ordered: list[ToolDefinition], names: ApiNames) -> TreeReport:
    store, version = home.parent, home.name
    current = _current(link)
    before = _manifest(state, current) if current else {}
    files = _files(ordered, names)
    tool_files = {path for path, (_, tool) in files.items() if tool is not None}
    written = sum(before.get(path) != files[path][0] for path in tool_files)
    removed = sum(_is_tool_file(path) and path not in tool_files for path in before)
    if not home.is_dir():
        _build(home, state, files, store / current if current else None, before, names, ordered)
    _point(link, Path(_STORE) / version / _LINK)
    _prune(store, state, version)
    return TreeReport(version, home / _LINK, written, len(tool_files) - written, removed)


@contextlib.contextmanager
def _alone(state: Path) -> Generator[None]:
    """One writer at a time, so that none removes the version that another is about to use. The wait has a limit."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(TimeoutError):
            stack.enter_context(locked(state, os.O_RDONLY | os.O_DIRECTORY, seconds=_LOCK_SECONDS))
        yield


_Files = dict[str, tuple[str, ToolDefinition | None]]


def _files(ordered: list[ToolDefinition], names: ApiNames) -> _Files:
    """Every file of the tree, with the fingerprint of its text and, for a module, its tool."""
    generator = _generator()
    files: _Files = {}
    members: dict[str, list[str]] = {}
    for tool in ordered:
        module, function = names.server(tool.server), names.function(tool.server, tool.name)
        own = _digest(f"{generator} {_fingerprint(tool)} {module} {function}".encode())
        files[f"{module}/{function}.py"] = (own, tool)
        members.setdefault(module, []).append(own)
    for module, prints_ in members.items():
        own = _digest(" ".join(prints_).encode())
        files |= {f"{module}/{file}": (own, None) for file in ("__init__.py", "__init__.pyi", f"{INDEX}.py")}
    own = _digest(" ".join([generator, *(f"{m} {len(p)}" for m, p in sorted(members.items()))]).encode())
    for path in ("__init__.py", "__init__.pyi", _SHARED):
        files[path] = (own, None)
    return files


def _build(
    home: Path,
    state: Path,
    files: _Files,
    old: Path | None,
    before: dict[str, str],
    names: ApiNames,
    tools: list[ToolDefinition],
) -> None:
    """Writes a version aside and moves it to `home` when it is whole."""
    aside = Path(mkdtemp(dir=state, prefix="new-"))
    try:
        root = aside / _LINK
        by_server: dict[str, list[ToolDefinition]] = {}
        for tool in tools:
            by_server.setdefault(tool.server, []).append(tool)
        for server in by_server:
            (root / names.server(server)).mkdir(parents=True, exist_ok=True)
        root.mkdir(exist_ok=True)
        for path, (own, tool) in files.items():
            if old is not None and before.get(path) == own and _took_over(old / _LINK / path, root / path):
                continue
            content = render.module(names, tool) if tool is not None else _package_file(path, names, by_server)
            (root / path).write_text(content, encoding="utf-8", newline="\n")
        # Every program that imports a tool imports this, and a sandbox keeps nothing that it compiles.
        py_compile.compile(str(root / _SHARED), dfile=_SHARED, doraise=True, invalidation_mode=_UNCHECKED)
        manifest = _Manifest({path: own for path, (own, _) in sorted(files.items())})
        _notes(state, home.name).write_bytes(msgspec.json.encode(manifest))
        aside.chmod(0o755)
        try:
            aside.rename(home)
        except OSError:
            if not home.is_dir():  # else a writer that did not wait for this one built the same
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _package_file(path: str, names: ApiNames, by_server: dict[str, list[ToolDefinition]]) -> str:
    """The files that are no tool's: indexes, stubs for editors, the shared runtime."""
    if path == _SHARED:
        return (Path(__file__).parent / "tree_runtime.py").read_text(encoding="utf-8")
    module, _, file = path.rpartition("/")
    if not module:
        servers = names.modules()
        if file.endswith(".pyi"):
            return "".join(f"{_exported('.', name)}\n" for name in servers)
        return _lazy(render.catalog_index(names, {server: len(by_server[server]) for server in by_server}))
    server = names.modules()[module]
    if file.endswith(".pyi"):
        return "".join(f"{_exported(f'.{name}', name)}\n" for name in names.functions(server))
    if file == f"{INDEX}.py":
        return _same_as(module, render.server_index(names, server, by_server[server]))
    return _lazy(render.server_index(names, server, by_server[server]))


def _exported(source: str, name: str) -> str:
    line = f"from {source} import {name} as {name}"
    return line if text.columns(line) <= WIDTH else f"from {source} import (\n    {name} as {name},\n)"


def _lazy(index: str) -> str:
    lines = text.docstring(index, "")
    return "\n".join([*lines, "", "from servers._call import lazy", "", "lazy(__name__)", ""])


def _same_as(module: str, index: str) -> str:
    """Another name of a server's package, with the same index to read."""
    lines = [
        *text.docstring(index, ""),
        "",
        "from typing import TYPE_CHECKING",
        "",
        "if TYPE_CHECKING:",
        f"    from servers.{module} import *",
        "else:",
        "    import sys",
        "",
        "    sys.modules[__name__] = sys.modules[__package__]",
        "",
    ]
    return "\n".join(lines)


def _took_over(old: Path, new: Path) -> bool:
    try:
        os.link(old, new)
    except OSError:
        return False
    return True


def _point(link: Path, target: Path) -> None:
    """Makes `link` name `target` in one step."""
    fresh = link.with_name(f".{link.name}-{os.urandom(8).hex()}")
    fresh.symlink_to(target)
    try:
        fresh.replace(link)
    except IsADirectoryError:
        raise ConfigError(f"{link} is a folder of its own.", hint="Move it away, or choose another place.") from None
    finally:
        fresh.unlink(missing_ok=True)


def _current(link: Path) -> str:
    try:
        target = link.readlink()
    except OSError:
        return ""
    return target.parent.name if target.parent.parent.name == _STORE else ""


def _notes(state: Path, version: str) -> Path:
    return state / f"{version}.json"


def _manifest(state: Path, version: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(_notes(state, version).read_bytes(), type=_Manifest).files
    except (OSError, msgspec.MsgspecError):
        return {}


def _prune(store: Path, state: Path, version: str) -> None:
    """Removes all but the newest versions; the one in use counts as the newest."""
    os.utime(store / version)
    versions = [home for home in store.iterdir() if not home.name.startswith(".")]
    versions.sort(key=lambda home: (home.name == version, home.stat().st_mtime_ns), reverse=True)
    for home in versions[_KEPT_VERSIONS:]:
        _notes(state, home.name).unlink(missing_ok=True)
        shutil.rmtree(home, ignore_errors=True)


def _is_tool_file(path: str) -> bool:
    server, _, file = path.rpartition("/")
    return bool(server) and not file.startswith("_") and file != f"{INDEX}.py"


# --- fingerprints


def _generator() -> str:
    """Changes whenever the generator does, so that a tree of an older release is never taken for current."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return _digest(b"".join(source.read_bytes() for source in sources))


def _fingerprint(definitions: ToolDefinition | list[ToolDefinition]) -> str:
    try:
        return _digest(msgspec.json.encode(definitions))
    except (TypeError, ValueError, OverflowError, RecursionError):
        # Lone surrogates, huge numbers, endless nesting: slower, but everything has a fingerprint.
        tools = definitions if isinstance(definitions, list) else [definitions]
        return _digest(_canonical([msgspec.structs.asdict(tool) for tool in tools]))


def _canonical(value: Any) -> bytes:
    """Bytes that differ when values differ, without recursion."""
    out: list[str] = []
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            pairs = cast(dict[Any, Any], item)
            out.append(f"{{{len(pairs)}")
            for key, inner in pairs.items():
                stack += [inner, key]
        elif isinstance(item, list | tuple):
            items = cast(list[Any], item)
            out.append(f"[{len(items)}")
            stack += items
        else:
            out.append(f"{type(item).__name__}:{item!r}" if not isinstance(item, int) else f"int:{item:x}")
    return "\n".join(out).encode("utf-8", "surrogatepass")


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()

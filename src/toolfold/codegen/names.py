"""Any server, tool or parameter name becomes a legal Python identifier, and finds its way back.

The mapping promises four things: the result is an identifier that hides neither a keyword nor a builtin; no
two names of one scope share a result, not even on a file system that ignores case; the same names give the same
result in any order; and a name that already is a good identifier keeps itself, whatever else joins the catalog.
"""

from __future__ import annotations

import builtins
import keyword
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from hashlib import blake2s

from toolfold.definitions import ToolDefinition

# In bytes. The file of a tool's module has its name, and `async def name() -> Result:` must fit on one line.
_LONGEST = 60
_LONGEST_ARGUMENT = 200
_BUILTINS = frozenset(name for name in dir(builtins) if not name.startswith("_"))
# What a tool's module itself needs, so no function in it may be called that.
MODULE_NAMES = frozenset({"Any", "Literal", "NotRequired", "Required", "TypeAlias", "TypedDict", "Union", "tool"})
INDEX = "index"
"""The module of a server that is another name of its package, so no tool may be called that."""
FILE = "File"
"""The class of media in results, in modules that name it."""
# Scripts whose letters look like Latin ones: inside a word of Latin letters they are there to deceive.
_LOOKALIKES = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "OSAGE", "DESERET")


class ApiNames:
    """The module of every server and the function of every tool; immutable, whatever the order of the tools."""

    __slots__ = ("_functions", "_modules", "_servers", "_tools")

    def __init__(self, modules: Mapping[str, str], functions: Mapping[str, Mapping[str, str]]) -> None:
        self._modules = dict(modules)
        self._servers = {module: server for server, module in self._modules.items() if server in functions}
        self._functions = {server: dict(names) for server, names in functions.items()}
        self._tools = {
            (self._modules[server], function): (server, tool)
            for server, names in self._functions.items()
            for tool, function in names.items()
        }

    @classmethod
    def of(cls, tools: Iterable[ToolDefinition], servers: Iterable[str] = ()) -> ApiNames:
        """`servers` are others that may have tools later: they keep the modules that they will have then."""
        by_server: dict[str, dict[str, None]] = {}
        for tool in tools:
            by_server.setdefault(tool.server, {})[tool.name] = None
        modules = distinct([*by_server, *servers], fallback="server")
        avoid = _BUILTINS | MODULE_NAMES | {INDEX}
        return cls(
            modules,
            {server: distinct(names, fallback="tool", avoid=avoid) for server, names in by_server.items()},
        )

    def only(self, tools: Iterable[tuple[str, str]]) -> ApiNames:
        """The same names, of these tools alone."""
        functions: dict[str, dict[str, str]] = {}
        for server, tool in tools:
            functions.setdefault(server, {})[tool] = self._functions[server][tool]
        return ApiNames({server: self._modules[server] for server in functions}, functions)

    @property
    def digest(self) -> str:
        """Changes when a name does."""
        return blake2s(repr(sorted(self._tools.items())).encode("utf-8", "surrogatepass")).hexdigest()

    def server(self, server: str) -> str:
        """The module's name under `servers/`; KeyError for a server that has no tools here."""
        if server not in self._functions:
            raise KeyError(server)
        return self._modules[server]

    def coming(self, server: str) -> str:
        """The module that a server has, or will have when it is listed; KeyError for an unknown server."""
        return self._modules[server]

    def function(self, server: str, tool: str) -> str:
        """The function's name, which is also its module's; KeyError for an unknown tool."""
        return self._functions[server][tool]

    def resolve(self, module: str, function: str) -> tuple[str, str] | None:
        """The server and the tool, as the upstream spells them, behind `servers.<module>.<function>`."""
        return self._tools.get((module, function))

    def behind(self, module: str) -> str | None:
        """The server, as it is configured, behind `servers.<module>`."""
        return self._servers.get(module)

    def modules(self) -> dict[str, str]:
        """Module → server, in alphabetical order of the modules."""
        return dict(sorted(self._servers.items()))

    def named(self, function: str) -> list[str]:
        """The modules that have a function of this name."""
        return sorted(module for module, name in self._tools if name == function)

    def functions(self, server: str) -> dict[str, str]:
        """Function → tool of one server, in alphabetical order; empty for an unknown server."""
        return dict(sorted((function, tool) for tool, function in self._functions.get(server, {}).items()))


def parameters(wire_names: Iterable[str]) -> dict[str, str]:
    """Wire name → keyword of the function, for the parameters of one tool.

    A keyword argument hides nothing and names no file, so `id`, `_meta`, and both `q` and `Q`, stay as they are.
    """
    return distinct(wire_names, fallback="arg", legal=_is_argument, avoid=frozenset(), same=str)


def distinct(
    originals: Iterable[str],
    *,
    fallback: str,
    legal: Callable[[str], bool] | None = None,
    avoid: Set[str] = _BUILTINS,
    same: Callable[[str], str] = str.casefold,
) -> dict[str, str]:
    """Original → identifier, no two equal under `same`; a `legal` name is not changed for its own sake.

    Of the names that would meet, the one that already is the identifier keeps it. Every other one ends in a piece
    of its own hash, so its name does not depend on how many others there are.
    """
    legal = legal or partial(_is_public, avoid=avoid)
    names = dict.fromkeys(originals)
    if all(map(legal, names)) and len(set(map(same, names))) == len(names):
        return {name: name for name in names}
    wanted = {name: name if legal(name) else identifier(name, fallback, avoid) for name in names}
    groups: dict[str, list[str]] = {}
    for name, candidate in wanted.items():
        groups.setdefault(same(candidate), []).append(name)
    taken = dict.fromkeys(groups)
    result: dict[str, str] = {}
    crowded: list[str] = []
    for group in groups.values():
        # Of `getUser` and `getuser`, the plainest spelling.
        exact = min((name for name in group if wanted[name] == name), key=str.swapcase, default=None)
        keeper = group[0] if len(group) == 1 else exact
        if keeper is not None:
            result[keeper] = wanted[keeper]
        crowded += [name for name in group if name != keeper]
    for name in sorted(crowded):
        digest = _digest(name)
        length = 4
        while same(candidate := f"{wanted[name]}_{digest[:length]}") in taken:
            length += 1
        taken[same(candidate)] = None
        result[name] = candidate
    return {name: result[name] for name in names}


def identifier(text: str, fallback: str, avoid: Set[str] = _BUILTINS) -> str:
    """A legal, public identifier that reads like `text` and is not in `avoid`; else made from `fallback`."""
    # A long text is cut before the work, not after it: the hash keeps two long names apart.
    head = text[:_LONGEST]
    latin = any(c.isascii() and c.isalpha() for c in head)
    legible = "".join(_legible(c, latin=latin) for c in unicodedata.normalize("NFC", head))
    name = "_".join(filter(None, legible.split())).strip("_") or fallback
    if not name.isidentifier():
        # A digit in front (of any script) is the only way to be here. The fallback is Latin, so now the whole is.
        name = "".join(_legible(c, latin=True) for c in f"{fallback}_{name}")
    if unicodedata.normalize("NFKC", name) != name or not name.isidentifier():
        name = "".join(c if c.isascii() else f"u{ord(c):04x}" for c in name)
    if len(text) > _LONGEST or len(name.encode()) > _LONGEST:
        # A cut through the middle of a character leaves bytes that "ignore" drops.
        kept = name.encode()[: _LONGEST - 7].decode(errors="ignore").rstrip("_")
        name = f"{kept}_{_digest(text)[:6]}"
    if keyword.iskeyword(name) or name in avoid:
        name += "_"
    return name


def _legible(c: str, *, latin: bool) -> str:
    """What one character gives to an identifier: itself, its plain letter, its number, or a gap (a space)."""
    if c.isascii():
        return c if c.isalnum() or c == "_" else " "
    plain = unicodedata.normalize("NFKD", c)
    if plain[0].isascii() and plain[0].isalnum():
        return "".join(p for p in plain if p.isascii() and p.isalnum())
    if not f"a{c}".isidentifier() or unicodedata.category(c) == "Cf":
        return " "
    if latin and unicodedata.name(c, "").startswith(_LOOKALIKES):
        return f"u{ord(c):04x}"
    return c


def _is_public(name: str, avoid: Set[str]) -> bool:
    """Whether `name` can stand for a module or function as it is."""
    if not name.isascii():
        return name == identifier(name, "", avoid)
    return (
        name.isidentifier()
        and name[0] != "_"
        and len(name) <= _LONGEST
        and not keyword.iskeyword(name)
        and name not in avoid
    )


def _is_argument(name: str) -> bool:
    if not name.isascii():
        return name == identifier(name, "", frozenset())
    if keyword.iskeyword(name) or name == "__debug__":
        return False
    # To a type checker, a parameter `__x` is one that cannot be a keyword.
    if name.startswith("__") and not name.endswith("__"):
        return False
    return name.isidentifier() and len(name) <= _LONGEST_ARGUMENT


def _digest(name: str) -> str:
    # Names may hold lone surrogates, which plain UTF-8 refuses.
    return blake2s(name.encode("utf-8", "surrogatepass")).hexdigest()

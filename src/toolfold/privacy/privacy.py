"""Privacy as the rest of Toolfold meets it: one `Privacy` for a fold, one `RunPrivacy` for a run."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from toolfold.config.privacy import PrivacySettings
from toolfold.definitions import ToolDefinition
from toolfold.privacy.data import DataTokeniser
from toolfold.privacy.fields import Fields, schema_hints
from toolfold.privacy.matches import Recogniser
from toolfold.privacy.recognisers.own import recognisers
from toolfold.privacy.restore import Restorer
from toolfold.privacy.scanner import Scanner
from toolfold.privacy.store import VaultStore
from toolfold.privacy.stream import StreamTokeniser
from toolfold.privacy.tokeniser import Tokeniser
from toolfold.privacy.tokens import TokenSyntax
from toolfold.privacy.vault import TEXT, Snapshot, Vault

_T = TypeVar("_T")
_Key = tuple[str, str]
"""Caller and session."""
_MOST_VAULTS = 1000
_VAULTS_FULL = 4
"""How many full vaults all vaults together may be as large as."""
_REMEMBERED = 100_000


class EndedError(Exception):
    """The run is over; what is still done for it is not wanted any more."""


class Privacy:
    """One per fold: what counts as personal, and the vaults of all sessions."""

    def __init__(self, settings: PrivacySettings, data_dir: Path, own: Sequence[Recogniser] = ()) -> None:
        self.settings = settings
        self.scanner = Scanner(settings.regions, settings.ignore, [*recognisers(settings), *own])
        self.fields = Fields(settings.fields, frozenset(settings.ignore))
        self.syntax = TokenSyntax((*settings.kinds, TEXT))
        self._store = VaultStore(data_dir, with_values=settings.persist)
        self._vaults: OrderedDict[_Key, Vault] = OrderedDict()
        self._used: dict[_Key, int] = {}
        """Runs that use a vault now."""
        self._counts: OrderedDict[_Key, dict[str, int]] = OrderedDict()
        """What vaults that had to go have given out, for sessions that are not kept on disk."""
        self._hints: dict[tuple[str, str], tuple[object, dict[str, str]]] = {}

    async def for_run(self, caller: str, session: str | None) -> RunPrivacy:
        """Give it back with `ended`. A run without a session has a vault of its own."""
        if session is None:
            return RunPrivacy(self, caller, None, self.new_vault())
        key = (caller, session)
        self._used[key] = self._used.get(key, 0) + 1
        if key not in self._vaults:
            kept = Snapshot(self._counts.pop(key, {}))
            if _is_kept(session) and not kept.counts:
                kept = await asyncio.to_thread(self._store.load, caller, session)
            if key not in self._vaults:
                vault = self._vaults[key] = self.new_vault()
                vault.load(kept)
        self._vaults.move_to_end(key)
        return RunPrivacy(self, caller, session, self._vaults[key])

    async def ended(self, run: RunPrivacy, kept_as: str | None) -> None:
        """The run is over. `kept_as` is the session in which its output is kept, if it had none of its own."""
        run.end()
        session = run.session
        if session is None and kept_as is not None:
            session = kept_as
            self._vaults[run.caller, kept_as] = run.vault
        elif session is not None:
            key = (run.caller, session)
            self._used[key] -= 1
            if not self._used[key]:
                del self._used[key]
        if session is not None and _is_kept(session) and run.vault.changed:
            run.vault.changed = False
            kept = run.vault.snapshot(with_values=self._store.with_values)
            await asyncio.to_thread(self._store.save, run.caller, session, kept)
        self._make_space()

    def new_vault(self) -> Vault:
        return Vault(self.settings.values, self.settings.memory)

    def _make_space(self) -> None:
        """Forget the values of sessions that were not used for longest, when there are too many."""
        most = _VAULTS_FULL * self.settings.memory
        for key in list(self._vaults):
            if len(self._vaults) <= _MOST_VAULTS and sum(vault.bytes for vault in self._vaults.values()) <= most:
                return
            if key not in self._used:
                vault = self._vaults.pop(key)
                if not _is_kept(key[1]):
                    self._counts[key] = vault.snapshot(with_values=False).counts
                    while len(self._counts) > _REMEMBERED:
                        self._counts.popitem(last=False)

    def hints(self, tool: ToolDefinition | None) -> Mapping[str, str]:
        """What the schema of the tool's results says about their fields."""
        if tool is None or tool.output_schema is None:
            return {}
        schema, hints = self._hints.get((tool.server, tool.name), (None, {}))
        if schema is not tool.output_schema:
            hints = schema_hints(tool.output_schema)
            self._hints[tool.server, tool.name] = (tool.output_schema, hints)
        return hints


class RunPrivacy:
    """One run's way to its session's vault."""

    def __init__(self, privacy: Privacy, caller: str, session: str | None, vault: Vault) -> None:
        self.caller = caller
        self.session = session
        self.vault = vault
        self._privacy = privacy
        self._lock = asyncio.Lock()
        self._is_over = False

    @property
    def program_sees_tokens(self) -> bool:
        return self._privacy.settings.mode == "ingress"

    async def work(self, function: Callable[[], _T], *, is_small: bool) -> _T:
        """Do what costs time: small things at once, others in a thread, one after the other for each run."""
        if is_small:
            return function()
        async with self._lock:
            return await asyncio.to_thread(function)

    def tokenise(self, value: Any) -> Any:
        """A text or data on its way to the model, or to a log."""
        return self._tokeniser().text(value) if isinstance(value, str) else self._data().data(value)

    def incoming(self, server: str, tool: ToolDefinition | None) -> DataTokeniser:
        """For what comes from a server."""
        return self._data(server, self._privacy.hints(tool))

    def restorer(self, server: str) -> Restorer:
        """For the arguments of one call."""
        return Restorer(self.vault, self._privacy.syntax, self._privacy.settings.restore, server)

    def stream(self) -> StreamTokeniser:
        """For what the program prints."""
        return StreamTokeniser(self._tokeniser())

    def end(self) -> None:
        self._is_over = True

    def _data(self, server: str = "", hints: Mapping[str, str] | None = None) -> DataTokeniser:
        return DataTokeniser(self._tokeniser(), self._privacy.fields, hints or {}, server)

    def _tokeniser(self) -> Tokeniser:
        return Tokeniser(self.vault, self._privacy.scanner, self._privacy.syntax, self._check)

    def _check(self) -> None:
        if self._is_over:
            raise EndedError


def _is_kept(session: str) -> bool:
    """Names that begin with @ are a connection's own and end with it."""
    return not session.startswith("@")

"""The ledger of tokens: what runs and searches cost, beside what the same calls would have cost without Toolfold.

Per day, caller and session, shared by all gateways on a data folder. What happens is noted in the event loop, estimated
and written within a second in a thread, and counted exactly soon after in a process of its own, where that is possible.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

from toolfold.config.callers import Mode
from toolfold.config.settings import Settings
from toolfold.telemetry.counting import CountingProcess, Tokenizer, can_count
from toolfold.telemetry.ledger_files import Catalogued, Counts, Key
from toolfold.telemetry.ledger_reader import LedgerReader
from toolfold.telemetry.observe import Observer, SeenCall, SeenRun, SeenSearch
from toolfold.telemetry.savings import Definition, definition_texts
from toolfold.telemetry.tokens import estimate

OWN_TOKENS: dict[Mode, int] = {"code": 155, "hybrid": 181, "direct": 0}
"""o200k tokens of our two tools and the instructions. A test holds these numbers."""
OTHERS = "(others)"
"""Stands for callers and tools over the limit of what one day tells apart, and for servers that there are not."""
_PAUSE = 0.25
"""Seconds for which counts are gathered before they are written."""
_COUNT_AFTER = 10.0
"""Seconds for which texts are gathered before a process counts them."""
_CLOSING_TIMEOUT = 5.0
_MOST_WAITING = 8 * 1024 * 1024
_LONGEST = 1024 * 1024
"""Characters that wait to be counted, in all and of one text; what is over that stays estimated."""
_SAMPLE = 20_000
_RESULT_SAMPLE = 1_000
"""Characters of a text by which it is estimated. Results are many, and mostly of one kind from end to end."""
_DEFINITIONS_SAMPLE = 500_000
_MOST_KEYS = 2_000
"""Sessions and tools that one gateway tells apart in a day."""

_log = logging.getLogger("toolfold")


class _Tool(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> dict[str, Any]: ...


class _Server(Protocol):
    @property
    def instructions(self) -> str: ...


class Definitions(Protocol):
    """What the direct way sends in each request: the catalog."""

    @property
    def version(self) -> str: ...
    @property
    def tools(self) -> Sequence[_Tool]: ...
    @property
    def servers(self) -> Sequence[_Server]: ...


Kind = Literal["code", "output", "search", "result"]


class _Text(NamedTuple):
    """A text to count for all of `keys`."""

    day: str
    keys: tuple[Key, ...]
    kind: Kind
    text: str | bytes
    estimated: int = 0


@dataclass(slots=True)
class _Open:
    """The calls of a run that is under way."""

    at_once: int = 0
    rounds: int = 0


class Ledger(LedgerReader, Observer):
    """One per fold. Its reading methods may be called from any thread, and know all that was noted."""

    def __init__(self, settings: Settings, catalog: Definitions, tokenizer: Tokenizer | None = None) -> None:
        """`tokenizer` counts in this process, in place of o200k and of the setting."""
        self.mode: Mode = settings.mode
        """Of callers of whom the settings do not say another."""
        super().__init__(settings)
        self._settings = settings
        self._catalog = catalog
        self._tokenizer = tokenizer
        self._offered: dict[Mode, int] = {}
        self._open: dict[str, _Open] = {}
        self._today = ""
        self._keys: set[Key] = set()
        """What is told apart today."""
        self._conversations: set[Key] = set()
        self._unclaimed: set[str] = set()
        """Callers whose conversation has begun with a search: whichever session they use next belongs to it."""
        self._described: set[str] = set()
        """Versions of the catalog whose cost is in the files."""
        self._lock = threading.Lock()
        """Around what the loop notes and a thread takes."""
        self._noted: dict[tuple[str, Key], Counts] = {}
        self._texts: list[_Text] = []
        self._catalogs: dict[str, tuple[Sequence[_Tool], list[str]]] = {}
        self._writes = threading.Lock()
        """Held by the one thread that writes or counts."""
        self._waiting: list[_Text] = []
        self._waiting_catalogs: dict[str, tuple[int, list[str]]] = {}
        self._size = 0
        """Characters of the texts that are held."""
        self._has_counted = False
        self._process = CountingProcess(settings.tokenizer)
        self._is_due = False
        """Whether something was noted that no write has begun for."""
        self._writing: asyncio.Task[None] | None = None
        self._counting: asyncio.Task[None] | None = None

    def offered(self, mode: Mode, tokens: int) -> None:
        """About how many tokens of the servers' own definitions clients of a mode are offered beside our two."""
        self._offered[mode] = tokens

    # What is noted

    def run_started(self, run: SeenRun) -> None:
        self._open[run.id] = _Open()

    def call_started(self, run: SeenRun, call: SeenCall) -> None:
        if (state := self._open.get(run.id)) is not None:
            state.rounds += not state.at_once
            state.at_once += 1

    def call_ended(self, run: SeenRun, call: SeenCall) -> None:
        if (state := self._open.get(run.id)) is not None:
            state.at_once -= 1
        day = _day()
        target = call.target
        if call.kind != "tool":  # programs write these names: there is no end of them
            target = f"{call.kind}:{call.server}" if call.server in self._settings.servers else OTHERS
        key = self._key(day, run.caller, run.session)
        keys = (key, self._known(day, Key(key.caller, tool=target)))
        with self._lock:
            for each in keys:
                counts = self._counts(day, each)
                counts.calls += 1
                counts.call_errors += not call.ok
            self._text(day, keys, "result", call.text, call.text_size)
        self._write_soon()

    def run_ended(self, run: SeenRun) -> None:
        state = self._open.pop(run.id, _Open())
        mode = self._mode(run.caller)
        if run.language != "direct" and mode == "direct":
            mode = "code"
        day = _day()
        key = self._key(day, run.caller, run.session)
        with self._lock:
            counts = self._counts(day, key)
            counts.runs += 1
            counts.failed += not run.ok
            counts.rounds += state.rounds
            self._request(counts, key, mode)
            self._text(day, (key,), "code", run.code)
            self._text(day, (key,), "output", run.text)
        self._write_soon()

    def searched(self, search: SeenSearch) -> None:
        day = _day()
        key = self._key(day, search.caller, None)
        with self._lock:
            counts = self._counts(day, key)
            counts.searches += 1
            self._request(counts, key, self._mode(search.caller))
            for text in (search.query, search.text):
                self._text(day, (key,), "search", text)
        self._write_soon()

    def _request(self, counts: Counts, key: Key, mode: Mode) -> None:
        """One request of the model; with the first one of a conversation its answer is counted as well."""
        is_first = self._is_first(key)
        requests = 1 + is_first
        counts.conversations += is_first
        offered = self._offered.get(mode, 0)
        counts.own += OWN_TOKENS[mode] * requests
        counts.own_est += offered * requests
        counts.own_once += (OWN_TOKENS[mode] + offered) * is_first
        if mode == "direct":
            counts.passed += requests
            counts.passed_once += is_first

    def _is_first(self, key: Key) -> bool:
        """Whether a conversation begins. It goes on when the catalog changes."""
        key = key._replace(catalog="")
        if key in self._conversations or (not key.session and key.caller in self._unclaimed):
            return False
        is_claimed = key.session and key.caller in self._unclaimed
        self._unclaimed.discard(key.caller)
        if not key.session:
            self._unclaimed.add(key.caller)
        self._conversations.add(key)
        return not is_claimed

    def _text(
        self, day: str, keys: tuple[Key, ...], kind: Kind, text: str | memoryview, size: int | None = None
    ) -> None:
        """Keep a text until it is counted, or only estimate it by its size where it is too long or not known."""
        size = len(text) if size is None else size
        if len(text) != size or size > _LONGEST or self._size + size > _MOST_WAITING:
            for key in keys:
                _add(self._counts(day, key), f"{kind}_est", size // 4)
        elif size:
            self._size += size
            # Copied, since it may be a small part of a large message.
            self._texts.append(_Text(day, keys, kind, text if isinstance(text, str) else bytes(text)))

    def _counts(self, day: str, key: Key) -> Counts:
        counts = self._noted.get((day, key))
        if counts is None:
            counts = self._noted[day, key] = Counts()
        return counts

    def _mode(self, caller: str) -> Mode:
        configured = self._settings.callers.get(caller)
        return (configured.mode if configured is not None else None) or self.mode

    def _key(self, day: str, caller: str, session: str | None) -> Key:
        version = self._catalog.version
        if version not in self._described and version not in self._catalogs:
            instructions = [server.instructions for server in self._catalog.servers]
            self._catalogs[version] = (self._catalog.tools, instructions)
        return self._known(day, Key(caller, session or "", version))

    def _known(self, day: str, key: Key) -> Key:
        """`key`, or a wider one where there are too many in a day: names of sessions are the clients' to choose."""
        key = Key(*map(_readable, key))
        if day != self._today:
            self._today = day
            for names in (self._keys, self._conversations, self._unclaimed):
                names.clear()
        if key not in self._keys and len(self._keys) >= _MOST_KEYS:
            is_known = any(each.caller == key.caller for each in self._keys)
            return Key(key.caller if is_known else OTHERS, "", key.catalog, OTHERS if key.tool else "")
        self._keys.add(key)
        return key

    # What is written

    def _write_soon(self) -> None:
        self._is_due = True
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write_later())

    async def _write_later(self) -> None:
        while self._is_due:
            await asyncio.sleep(_PAUSE)
            self._is_due = False
            await asyncio.to_thread(self.write)
            if (self._waiting or self._waiting_catalogs) and (self._counting is None or self._counting.done()):
                self._counting = asyncio.get_running_loop().create_task(self._count_later())

    async def _count_later(self) -> None:
        while self._waiting or self._waiting_catalogs:
            await asyncio.sleep(_COUNT_AFTER)
            await asyncio.to_thread(self.count)

    def write(self) -> None:
        """Write what was noted. What cannot be written is kept for the next time."""
        with self._writes:
            with self._lock:
                noted, self._noted = self._noted, {}
                texts, self._texts = self._texts, []
                catalogs, self._catalogs = self._catalogs, {}
            counted: dict[tuple[str, Key], Counts] = defaultdict(Counts, noted)
            for text in texts:
                self._estimate(text, counted)
            self._add(counted)
            try:
                for version, (tools, instructions) in catalogs.items():
                    self._describe(version, tools, instructions)
            except OSError:
                with self._lock:
                    self._catalogs = catalogs | self._catalogs

    def _estimate(self, text: _Text, counted: dict[tuple[str, Key], Counts]) -> None:
        """Add what a text costs, exactly if it can be counted here, and let it wait to be counted otherwise."""
        tokens = self._counted_here([text.text])
        is_exact = tokens is not None
        if tokens is None:
            tokens = _about(text.text, _RESULT_SAMPLE if text.kind == "result" else _SAMPLE)
        for key in text.keys:
            _add(counted[text.day, key], text.kind if is_exact else f"{text.kind}_est", tokens)
        if self._can_count:
            self._waiting.append(text._replace(estimated=tokens))
        else:
            self._release([text])

    def _counted_here(self, texts: Iterable[str | bytes]) -> int | None:
        """What the tokenizer that was given says; None where there is none, or it fails."""
        if self._tokenizer is None:
            return None
        try:
            return sum(int(self._tokenizer(_readable(text))) for text in texts)
        except Exception as error:
            _log.warning("the tokenizer failed, so tokens are estimated: %s: %s", type(error).__name__, error)
            return None

    def _release(self, texts: Iterable[_Text]) -> None:
        with self._lock:
            self._size -= sum(len(each.text) for each in texts)

    def _describe(self, version: str, tools: Sequence[_Tool], instructions: Iterable[str]) -> None:
        """Estimate what all definitions cost, unless it is known."""
        known = self._files.catalogs().get(version)
        is_exact = known is not None and known.exact and known.tokenizer == self._tokenizer_name
        if not is_exact:
            definitions: list[Definition] = [(tool.name, tool.description, tool.input_schema) for tool in tools]
            texts = definition_texts(definitions, *instructions)
            tokens = self._counted_here(texts)
            is_exact = tokens is not None
            tokens = _about_all(texts) if tokens is None else tokens
            self._files.add_catalog(Catalogued(version, len(definitions), tokens, is_exact, self._tokenizer_name))
            if self._can_count:
                self._waiting_catalogs[version] = (len(definitions), texts)
        self._described.add(version)

    def _add(self, counted: Mapping[tuple[str, Key], Counts]) -> None:
        by_day: dict[str, dict[Key, Counts]] = {}
        for (day, key), counts in counted.items():
            by_day.setdefault(day, {})[key] = counts
        for day, counts in by_day.items():
            try:
                self._files.add(day, counts)
            except OSError as error:
                _log.debug("the ledger cannot be written: %s", error)
                with self._lock:
                    for key, each in counts.items():
                        self._counts(day, key).add(each)

    def count(self) -> None:
        """Count exactly what waits for it. What cannot be counted stays estimated."""
        self.write()
        with self._writes:
            waiting, self._waiting = self._waiting, []
            catalogs, self._waiting_catalogs = self._waiting_catalogs, {}
        texts = [_readable(text.text) for text in waiting]
        for _, described in catalogs.values():
            texts += described
        try:
            numbers = iter(self._process.count(texts) if texts else [])
        except (OSError, ValueError) as error:
            _log.info("tokens stay estimated: %s", error)
            return
        finally:
            self._release(waiting)
        counted: dict[tuple[str, Key], Counts] = defaultdict(Counts)
        for text in waiting:
            tokens = next(numbers)
            for key in text.keys:
                _add(counted[text.day, key], text.kind, tokens)
                _add(counted[text.day, key], f"{text.kind}_est", -text.estimated)
        self._has_counted = True
        with self._writes:
            self._add(counted)
            for version, (tools, described) in catalogs.items():
                tokens = sum(next(numbers) for _ in described)
                with contextlib.suppress(OSError):
                    self._files.add_catalog(Catalogued(version, tools, tokens, True, self._tokenizer_name))

    @cached_property
    def _can_count(self) -> bool:
        """Whether a process can count what was estimated here."""
        return self._tokenizer is None and can_count(self._settings.tokenizer)

    @property
    def _tokenizer_name(self) -> str:
        return "own" if self._tokenizer is not None else self._settings.tokenizer

    async def close(self) -> None:
        """Write what was noted, and end. What a gateway that did not live long has not counted stays estimated."""
        tasks = [task for task in (self._writing, self._counting) if task is not None and not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        with contextlib.suppress(TimeoutError):
            if self._has_counted:
                await asyncio.wait_for(asyncio.to_thread(self.count), _CLOSING_TIMEOUT)
        self._process.close()
        await asyncio.to_thread(self.write)


def _day() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())


def _add(counts: Counts, name: str, number: int) -> None:
    setattr(counts, name, getattr(counts, name) + number)


def _readable(text: str | bytes) -> str:
    whole = text.encode("utf-8", "replace") if isinstance(text, str) else text
    return whole.decode("utf-8", "replace")


def _about(text: str | bytes, sample: int) -> int:
    """An estimate, of a long text by its beginning."""
    tokens = estimate(_readable(text[:sample]))
    return tokens * len(text) // sample if len(text) > sample else tokens


def _about_all(texts: Sequence[str]) -> int:
    """An estimate of many texts, of very many by some from all over."""
    chars = sum(map(len, texts))
    chosen = texts[:: chars // _DEFINITIONS_SAMPLE + 1]
    return round(sum(map(estimate, chosen)) * chars / max(1, sum(map(len, chosen))))

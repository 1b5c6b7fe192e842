"""How much callers and runs may use (`limits`): calls, calls at once, bytes of results, and an estimate of money."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

import msgspec

from toolfold.config.policy import CallerLimits, LimitSettings
from toolfold.definitions import BlobPart, TextPart, ToolResult
from toolfold.errors import LimitExceeded
from toolfold.guards.guard import Call, Proceed
from toolfold.schema.patterns import NO, TargetPattern
from toolfold.schema.text import one_line

_MINUTE = 60.0
_MINUTES_OF_A_DAY = 24 * 60
_ROUNDING = 1e-9
_MOST_CALLERS = 10_000


class Usage:
    """One per fold: what each caller has used, in all its runs since the start."""

    def __init__(self, settings: LimitSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._prices = [(TargetPattern(pattern), price) for pattern, price in settings.prices.items()]
        self._callers: dict[str, _Caller] = {}

    def of(self, caller: str) -> _Caller:
        known = self._callers.get(caller)
        if known is None:
            if len(self._callers) >= _MOST_CALLERS:
                self._callers = {name: one for name, one in self._callers.items() if not one.is_idle}
            known = self._callers[caller] = _Caller(_limits_of(self._settings, caller), self._clock)
        return known

    def price(self, call: Call) -> float:
        targets = (price for pattern, price in self._prices if pattern.match(call.kind, call.server, call.name) != NO)
        return next(targets, 0.0)


def _limits_of(settings: LimitSettings, caller: str) -> CallerLimits:
    own = settings.callers.get(caller)
    return (
        settings
        if own is None
        else settings.model_copy(update={key: getattr(own, key) for key in own.model_fields_set})
    )


class _Caller:
    """What one caller has used."""

    def __init__(self, limits: CallerLimits, clock: Callable[[], float]) -> None:
        self.limits = limits
        self._clock = clock
        self._last_minute: deque[float] = deque()
        self._by_minute: deque[tuple[int, int, float]] = deque()
        """Of the last day: the minute, its calls, and what they came to."""
        self._calls_today = 0
        self._spent_today = 0.0
        self.slots = asyncio.Semaphore(limits.concurrent_calls) if limits.concurrent_calls else None

    @property
    def is_idle(self) -> bool:
        self._forget(self._clock())
        return not self._calls_today and not (self.slots and self.slots.locked())

    def take(self, price: float) -> None:
        """Count one call; raises LimitExceeded, and counts nothing, when it would be too many or too much."""
        now, limits = self._clock(), self.limits
        self._forget(now)
        per_minute = limits.calls_per_minute
        if per_minute is not None and len(self._last_minute) >= per_minute:
            wait = self._last_minute[0] + _MINUTE - now if self._last_minute else _MINUTE
            raise _too_many(f"{per_minute:,} calls in a minute", "calls_per_minute", f"Wait {max(wait, 1):.0f} s.")
        if limits.calls_per_day is not None and self._calls_today >= limits.calls_per_day:
            raise _too_many(f"{limits.calls_per_day:,} calls in a day", "calls_per_day")
        if price and limits.spend_per_day is not None and self._spent_today + price > limits.spend_per_day + _ROUNDING:
            raise _too_expensive(price, self._spent_today, limits.spend_per_day, "today", "spend_per_day")
        if per_minute is not None:
            self._last_minute.append(now)
        minute = int(now // _MINUTE)
        calls, spent = 0, 0.0
        if self._by_minute and self._by_minute[-1][0] == minute:
            _, calls, spent = self._by_minute.pop()
        self._by_minute.append((minute, calls + 1, spent + price))
        self._calls_today += 1
        self._spent_today += price

    def _forget(self, now: float) -> None:
        while self._last_minute and self._last_minute[0] <= now - _MINUTE:
            self._last_minute.popleft()
        while self._by_minute and self._by_minute[0][0] <= now // _MINUTE - _MINUTES_OF_A_DAY:
            _, calls, spent = self._by_minute.popleft()
            self._calls_today -= calls
            self._spent_today = max(0.0, self._spent_today - spent)


class Limits:
    """One per run. What was refused or denied before costs nothing here."""

    def __init__(self, usage: Usage) -> None:
        self._usage = usage
        self._calls = 0
        self._spent = 0.0
        self._by_pattern: dict[str, int] = {}
        self._patterns: list[tuple[str, TargetPattern, int]] | None = None

    async def __call__(self, call: Call, proceed: Proceed) -> ToolResult:
        caller = self._usage.of(call.run.caller)
        limits = caller.limits
        if limits.calls_per_run is not None and self._calls >= limits.calls_per_run:
            raise _too_many(f"{limits.calls_per_run:,} calls in a run", "calls_per_run")
        price = self._usage.price(call)
        if price and limits.spend_per_run is not None and self._spent + price > limits.spend_per_run + _ROUNDING:
            raise _too_expensive(price, self._spent, limits.spend_per_run, "in this run", "spend_per_run")
        matched = self._matched(call, limits)
        caller.take(price)
        self._calls += 1
        self._spent += price
        for pattern in matched:
            self._by_pattern[pattern] = self._by_pattern.get(pattern, 0) + 1
        if caller.slots is None:
            result = await proceed(call)
        else:
            async with caller.slots:
                result = await proceed(call)
        if limits.result_bytes is not None and (size := _size(result)) > limits.result_bytes:
            raise LimitExceeded(
                f"{one_line(call.target, 200)} returned {size:,} bytes, and {limits.result_bytes:,} are allowed.",
                limit="limits.result_bytes",
                hint="Ask it for less: a filter, a page, fewer fields. The limit is `limits.result_bytes`.",
            )
        return result

    def _matched(self, call: Call, limits: CallerLimits) -> list[str]:
        """The patterns of `limits.tools` that the call counts for."""
        if self._patterns is None:
            self._patterns = [(pattern, TargetPattern(pattern), most) for pattern, most in limits.tools.items()]
        found: list[str] = []
        for text, pattern, most in self._patterns:
            if pattern.match(call.kind, call.server, call.name) != NO:
                if self._by_pattern.get(text, 0) >= most:
                    raise _too_many(f"{most:,} calls of {text} in a run", "tools")
                found.append(text)
        return found


def _too_many(what: str, setting: str, hint: str = "") -> LimitExceeded:
    setting = f"limits.{setting}"
    return LimitExceeded(
        f"No more than {what} are allowed.", limit=setting, hint=f"{hint} The limit is `{setting}`.".strip()
    )


def _too_expensive(price: float, spent: float, most: float, when: str, setting: str) -> LimitExceeded:
    text = f"This call costs about {price:g}; {spent:g} of {most:g} are spent {when}."
    return LimitExceeded(text, limit=f"limits.{setting}")


def _size(result: ToolResult) -> int:
    size = 0
    for part in result.parts:
        if isinstance(part, TextPart):
            size += len(part.text) if part.text.isascii() else len(part.text.encode("utf-8", "replace"))
        elif isinstance(part, BlobPart):
            size += len(part.data)
    if not result.has_structured:
        return size
    # The text beside structured content repeats it.
    structured = result.structured
    return max(
        size, len(memoryview(structured) if isinstance(structured, msgspec.Raw) else msgspec.json.encode(structured))
    )

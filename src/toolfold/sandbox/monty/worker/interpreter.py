"""Runs programs in one Monty session: answers every pause of the interpreter, and says how the program ended."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic_monty as monty

from toolfold.sandbox.guest.toolfold_guest.channel import ToolError
from toolfold.sandbox.guest.toolfold_guest.failure import describe as describe_python
from toolfold.sandbox.guest.toolfold_guest.program import present
from toolfold.sandbox.guest.toolfold_guest.source import parse
from toolfold.sandbox.monty.worker import source
from toolfold.sandbox.monty.worker.errors import describe
from toolfold.sandbox.monty.worker.functions import Function, Functions
from toolfold.sandbox.monty.worker.tree import Tree

_HOME = "/agent"
_SUSPENSIONS = 100_000_000
"""Calls are counted by the host; this only must not be in the way."""
_LONGEST = 86_400.0
_COROUTINE = re.compile(r"<coroutine (?:object \w+|external_future\(\d+\))>")
_FOLDERS = ("servers", "skills", "workspace")


@dataclass
class _Call:
    """A call that the program made and has not got the answer of."""

    name: str
    line: int
    position: monty.SourceRange
    start: Callable[[], Any]
    task: asyncio.Task[Any] | None = None
    server: str = ""
    tool: str = ""


class _WaitsForNothing(Exception):
    """The program awaits a call of an earlier program, which ended with that program."""


class Interpreter:
    """`open` once, then `run` program after program."""

    def __init__(
        self,
        binary: str,
        home: Path,
        api: Path,
        tree: Tree,
        functions: Functions,
        *,
        memory: int,
        disk: int,
        shared: str = "",
    ) -> None:
        self._pool = monty.AsyncMonty(binary_path=binary, min_processes=1, max_processes=2)
        self._home = home
        self._api = api
        self._tree = tree
        self._functions = functions
        self._memory = memory
        self._disk = disk
        self._shared = shared
        self._session: monty.AsyncMontySession | None = None
        self._feeds = 0
        self._names: set[str] = set()
        self._calls: dict[int, _Call] = {}
        self._tool_errors: dict[str, str] = {}

    async def open(self) -> None:
        await self._pool.__aenter__()
        self._tree.refresh()
        self._session = await self._checkout()

    async def _checkout(self) -> monty.AsyncMontySession:
        limits: monty.ResourceLimits = {
            "max_memory": self._memory,
            "max_suspensions": _SUSPENSIONS,
            "max_feed_duration_secs": _LONGEST,
        }
        session = self._pool.checkout(
            script_name="program.py",
            limits=limits,
            os_policy={"sleep": "call_host"},
            external_modules=self._functions.modules(),
        )
        return await session.__aenter__()

    async def _follow_tree(self) -> None:
        """A changed API means other modules, which a session is born with: move its state to a new one."""
        assert self._session is not None
        if not self._tree.refresh():
            return
        state = await self._session.dump()
        await self._session.__aexit__(None, None, None)
        self._session = await self._checkout()
        if self._feeds:
            await self._session.load_session(state)

    async def run(self, code: str, say: Callable[[str], None]) -> dict[str, Any]:
        """Execute and describe how it ended: `value`, `shown`, `error`, `names`."""
        try:
            tree, code = parse(code, "program.py")
        except (SyntaxError, ValueError) as problem:
            return self._ended(describe_python(problem, "program.py"))
        except (RecursionError, MemoryError):
            return self._ended("SyntaxError: the program is nested too deeply")
        if refused := source.not_here(tree):
            return self._ended(refused)
        await self._follow_tree()
        self._calls.clear()
        self._tool_errors.clear()
        feed, self._feeds = self._feeds, self._feeds + 1
        try:
            value = await self._drive(source.adapted(code, tree), code, say)
        except _WaitsForNothing:
            return self._ended("RuntimeError: this awaits a call that an earlier program made; make it again.")
        except monty.MontyCrashedError as problem:
            await self._renew()
            return self._ended(f"The interpreter ended: {problem}. The session's variables are gone.")
        except (monty.MontyRuntimeError, monty.MontySyntaxError) as problem:
            summary = problem.display("type-msg")
            error = describe(problem.traceback(), summary, feed, self._tool_errors, self._tree)
            if summary.startswith("MemoryError") and not await self._usable():
                await self._renew()
                error += "\nThe session's variables are gone."
            return self._ended(error)
        finally:
            forgotten = await self._forget_calls()
        self._names |= source.names(tree)
        if isinstance(value, str) and _COROUTINE.fullmatch(value):
            value = None
            if not forgotten and (call := source.last_call(tree)) is not None:
                forgotten.append(_not_awaited(*call, started=False))
        if forgotten:
            return self._ended("NotAwaited: " + "\n".join(dict.fromkeys(forgotten)))
        return self._ended("") | (present(value) if value is not None else {})

    def _ended(self, error: str) -> dict[str, Any]:
        return {"error": error, "names": sorted(self._names)[:50]}

    async def _drive(self, text: str, original: str, say: Callable[[str], None]) -> Any:
        assert self._session is not None
        snapshot = await self._session.feed_start(
            text,
            print_callback=lambda _, words: say(words),
            mount=self._mounts(),
            cwd=_HOME,
            os=_outside_of_mounts,
        )
        while not isinstance(snapshot, monty.MontyComplete):
            if isinstance(snapshot, monty.AsyncFutureSnapshot):
                if not snapshot.pending_call_ids:
                    # Nothing can answer that; an answer to no question is what makes Monty leave the program.
                    with contextlib.suppress(monty.MontyError):
                        await snapshot.resume({0: {"return_value": None}})
                    raise _WaitsForNothing
                snapshot = await snapshot.resume(await self._settle(snapshot))
            elif isinstance(snapshot, monty.AsyncNameLookupSnapshot):
                snapshot = await self._look_up(snapshot)
            else:
                snapshot = await self._answer(snapshot, text)
        return snapshot.output

    async def _look_up(self, snapshot: monty.AsyncNameLookupSnapshot) -> monty.AsyncSnapshot:
        """A name that Monty does not know: `help`, or a figure of the client."""
        name = snapshot.variable_name
        if snapshot.object_id is None:
            return await (snapshot.resume(value=help) if name == "help" else snapshot.resume())
        value = self._functions.count(name)
        return await (snapshot.resume() if value is None else snapshot.resume(value=value))

    def _mounts(self) -> list[monty.MountDir]:
        mounts = [
            monty.MountDir(
                host_path=self._home / "workspace",
                virtual_path=f"{_HOME}/workspace",
                mode="read-write",
                write_bytes_limit=self._disk,
            ),
            monty.MountDir(host_path=self._home / "skills", virtual_path=f"{_HOME}/skills", mode="read-only"),
        ]
        if self._shared:
            folder = monty.MountDir(
                host_path=Path(self._shared),
                virtual_path=f"{_HOME}/shared",
                mode="read-write",
                write_bytes_limit=self._disk,
            )
            mounts.append(folder)
        with contextlib.suppress(OSError, ValueError):
            servers = (self._api / "servers").resolve(strict=True)
            mounts.append(monty.MountDir(host_path=servers, virtual_path=f"{_HOME}/servers", mode="read-only"))
        return mounts

    async def _answer(self, snapshot: monty.AsyncFunctionSnapshot, text: str) -> monty.AsyncSnapshot:
        name = str(snapshot.function_name)
        if snapshot.is_os_function:
            if name in {"time.sleep", "asyncio.sleep"}:
                return await self._sleep(snapshot, name)
            return await snapshot.resume_auto()
        function = self._functions.find(name, method=snapshot.object_id is not None)
        if function is None:
            # A name that nobody defined arrives as a call of it.
            return await snapshot.resume({"exc_type": "NameError", "message": f"name '{name}' is not defined"})
        args, keywords = snapshot.args, snapshot.kwargs
        # `await search_tools()` works as well as `search_tools()`: what is awaited at once may be a future.
        if function.awaited or snapshot.allow_eager_await:
            call = self._remember(snapshot, name, text, lambda: function.call(*args, **keywords))
            call.server, call.tool = function.server, function.tool
            return await snapshot.resume({"future": ...})
        return await snapshot.resume(await self._outcome(function.call(*args, **keywords), function))

    async def _sleep(self, snapshot: monty.AsyncFunctionSnapshot, name: str) -> monty.AsyncSnapshot:
        args = snapshot.args
        if name == "asyncio.sleep":
            self._remember(snapshot, name, "", lambda: asyncio.sleep(*args))
            return await snapshot.resume({"future": ...})
        await asyncio.sleep(float(args[0]))
        return await snapshot.resume({"return_value": None})

    def _remember(self, snapshot: monty.AsyncFunctionSnapshot, name: str, text: str, start: Callable[[], Any]) -> _Call:
        line = text.encode()[: snapshot.position.start].count(b"\n") + 1
        call = _Call(name.rpartition(".")[2], line, snapshot.position, start)
        self._calls[snapshot.call_id] = call
        return call

    async def _settle(self, snapshot: monty.AsyncFutureSnapshot) -> dict[int, monty.ExternalSettledResult]:
        """Wait until at least one of the calls that the program waits for has its answer.

        Monty names every open call, also one that nobody awaits. What the program awaits right here is started first;
        only when that is nothing (it awaits a list, or a function of its own) are all of them started.
        """
        waited = {number: self._calls[number] for number in snapshot.pending_call_ids}
        here = [call for call in waited.values() if _within(call.position, snapshot.position)]
        for call in here or waited.values():
            if call.task is None:
                call.task = asyncio.ensure_future(_begin(call.start))
        tasks = {call.task: number for number, call in waited.items() if call.task is not None}
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0)  # those that end at the same time are told at the same time
        answers: dict[int, monty.ExternalSettledResult] = {}
        for task in [task for task in tasks if task.done()]:
            call = self._calls.pop(tasks[task])
            function = Function(call.start, awaited=True, server=call.server, tool=call.tool)
            answers[tasks[task]] = await self._outcome(task, function)
        return answers

    async def _outcome(self, awaitable: Any, function: Function) -> monty.ExternalSettledResult:
        """A value, or the exception that the program sees."""
        try:
            return {"return_value": await awaitable}
        except ToolError as error:
            where = f"{error.server}.{error.tool}" if error.server and error.tool else ""
            self._tool_errors[str(error)] = where or (f"{function.server}.{function.tool}" if function.server else "")
            return {"exc_type": source.STAND_IN, "message": str(error)}
        except (TypeError, ValueError) as error:
            return {"exc_type": "TypeError", "message": str(error).removeprefix(f"{Functions.__name__}.")}
        except OSError as error:
            return {"exc_type": "OSError", "message": f"the result could not be kept in workspace/: {error.strerror}"}
        except Exception as error:  # whatever it was, it is this call that failed and not the sandbox
            return {"exc_type": "RuntimeError", "message": f"{type(error).__name__}: {error}"}

    async def _forget_calls(self) -> list[str]:
        """Calls that nobody awaited end with the program."""
        told: list[str] = []
        for call in self._calls.values():
            if call.name != "sleep":
                told.append(_not_awaited(call.name, call.line, started=call.task is not None))
            if call.task is not None:
                call.task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await call.task
        self._calls.clear()
        return told

    async def _renew(self) -> None:
        """Go on with an empty session, in another worker where the old one is gone."""
        assert self._session is not None
        with contextlib.suppress(monty.MontyError, RuntimeError):
            await self._session.__aexit__(None, None, None)
        self._session = await self._checkout()
        self._feeds = 0
        self._names.clear()

    async def _usable(self) -> bool:
        """Whether the session has any memory left: what a program's variables fill stays full."""
        assert self._session is not None
        self._feeds += 1
        try:
            await self._session.feed_run("len('x' * 1_000_000)")
        except monty.MontyError:
            return False
        return True


async def _begin(start: Callable[[], Any]) -> Any:
    return await start()


def help(*args: Any) -> None:  # noqa: A001 - Monty reports a call by the function's own name
    """Stands for `help` inside; calls are answered by name."""


def _within(inner: monty.SourceRange, outer: monty.SourceRange) -> bool:
    return inner.filename == outer.filename and outer.start <= inner.start and inner.end <= outer.end


def _not_awaited(name: str, line: int, *, started: bool) -> str:
    ran = "its result is lost" if started else "it never ran"
    return f"line {line}: {name}(...) was not awaited, so {ran}. Write `await {name}(...)`."


def _outside_of_mounts(*, name: str, args: tuple[Any, ...], **_: Any) -> Any:
    """The home folder has three entries and the environment none; everything else is denied by Monty."""
    if name == "os.environ":
        return {}
    if name == "os.getenv":
        return args[1] if len(args) > 1 else None
    if args and str(args[0]) == _HOME:
        if name == "Path.iterdir":
            return [args[0] / folder for folder in _FOLDERS]
        if name in {"Path.exists", "Path.is_dir"}:
            return True
    return monty.NOT_HANDLED

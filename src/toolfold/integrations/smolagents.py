"""The sandbox as the place where a `CodeAgent` of smolagents runs its programs.

What the agent writes runs in one session: variables stay from step to step, and all servers of the configuration can
be imported. Needs `pip install smolagents`.
"""

from __future__ import annotations

import importlib
import json
import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from anyio.from_thread import BlockingPortal, start_blocking_portal

from toolfold.errors import ToolfoldError
from toolfold.fold import Toolfold

if TYPE_CHECKING:
    from toolfold.config.settings import Settings
    from toolfold.guards.events import RunResult

_executors: Any = importlib.import_module("smolagents.local_python_executor")  # without types

_FINAL_ANSWER = "final_answer"
_ENDED = "_FinalAnswer"
# A program ends where it gives its final answer, so this is no Exception, which it might catch.
_PRELUDE = f"""
class {_ENDED}(BaseException):
    pass

def {_FINAL_ANSWER}(answer):
    global _answer
    _answer = answer
    raise {_ENDED}
"""


class ToolfoldExecutor(_executors.PythonExecutor):
    """`CodeAgent(tools=[], model=model, executor=executor, instructions=executor.instructions)`.

    `config` is what `Toolfold.open` takes; `timeout` is in seconds for one program. The agent's `cleanup()`, or leaving
    the `with` block, ends the sandbox and the servers.
    """

    instructions = (
        "Tools are async functions: `from servers.github import create_issue` and "
        "`await create_issue(title=...)`. Find them first: `from toolfold import search_tools` and "
        "`print(await search_tools('create an issue', detail='full'))`."
    )
    """What a model must know to use the servers."""

    def __init__(
        self, config: str | Path | Mapping[str, Any] | Settings | None = None, *, timeout: float | None = None
    ) -> None:
        self._config = config
        self._timeout = timeout
        self._session = f"@smolagents-{secrets.token_hex(6)}"
        self._closing = ExitStack()
        self._opened: tuple[BlockingPortal, Toolfold] | None = None

    def __call__(self, code_action: str) -> Any:
        """Run a program. A failed one raises `ToolfoldError` with what a model needs to know of it."""
        result = self._run(code_action)
        if result.error is None:
            return _executors.CodeOutput(output=result.value, logs=result.output, is_final_answer=False)
        if result.error.code == "program" and result.error.message.startswith(_ENDED):
            answer = self._run("_answer")
            if answer.error is None:
                return _executors.CodeOutput(output=answer.value, logs=result.output, is_final_answer=True)
        raise ToolfoldError(result.text)

    def send_tools(self, tools: Mapping[str, Any]) -> None:
        """Make `final_answer` known. Other tools are refused: they are code of the host."""
        others = sorted(set(tools) - {_FINAL_ANSWER})
        if others:
            raise ToolfoldError(
                f"Tools of the agent cannot run in the sandbox: {', '.join(others)}.",
                hint="Leave `tools` empty, and give Toolfold an MCP server that has them.",
            )
        self._must_run(_PRELUDE)

    def send_variables(self, variables: Mapping[str, Any]) -> None:
        """Set variables of the session; their values must be plain data."""
        for name, value in variables.items():
            if not name.isidentifier():
                raise ToolfoldError(f"{name!r} is not a name for a variable.")
            try:
                text = json.dumps(value)
            except (TypeError, ValueError) as error:
                raise ToolfoldError(f"The variable {name!r} is not plain data: {error}.") from None
            self._must_run(f"import json\n{name} = json.loads({text!r})")

    def cleanup(self) -> None:
        """End the sandbox and the servers. A later program starts new ones."""
        self._opened = None
        self._closing.pop_all().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cleanup()

    def _must_run(self, code: str) -> None:
        result = self._run(code)
        if result.error is not None:
            raise ToolfoldError(result.text)

    def _run(self, code: str) -> RunResult:
        if self._opened is None:
            # smolagents is synchronous: the fold lives in a loop of its own, in a thread.
            portal = self._closing.enter_context(start_blocking_portal())
            opened = portal.wrap_async_context_manager(Toolfold.open(self._config))
            self._opened = portal, self._closing.enter_context(opened)
        portal, fold = self._opened
        return portal.call(partial(fold.run, code, session=self._session, timeout=self._timeout))

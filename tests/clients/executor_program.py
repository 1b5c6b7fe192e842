"""Run in the environment of smolagents: what `ToolfoldExecutor` promises. Prints the processes that are left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from toolfold.errors import ToolfoldError
from toolfold.integrations.smolagents import ToolfoldExecutor

ANSWERS = """
print('before')
try:
    final_answer(given | {'sum': total})
except Exception:
    pass
print('after')
"""


def refused(action: Callable[[Any], object], argument: object) -> str:
    try:
        action(argument)
    except ToolfoldError as error:
        return str(error)
    return ""


def main() -> None:
    with ToolfoldExecutor(timeout=60) as executor:
        executor.send_variables({"given": {"list": [1, None, "é"]}})
        executor.send_tools({"final_answer": object()})
        step = executor("print('first')\ntotal = 41\ntotal + 1")
        assert (step.output, step.is_final_answer) == (42, False)
        assert "first" in step.logs

        # An answer ends the program, whatever that catches.
        step = executor(ANSWERS)
        assert (step.output, step.is_final_answer) == ({"list": [1, None, "é"], "sum": 41}, True)
        assert "before" in step.logs
        assert "after" not in step.logs

        assert "ZeroDivisionError" in refused(executor, "1 / 0")
        assert "has no tool 'get_shet'" in refused(executor, "from servers.google_drive import get_shet")
        assert executor(f"import os\nos.path.exists({str(Path.cwd())!r})").output is False
        assert "web_search" in refused(executor.send_tools, {"final_answer": object(), "web_search": object()})
        assert "not plain data" in refused(executor.send_variables, {"image": object()})
        assert "not a name" in refused(executor.send_variables, {"a; import os": 1})
    assert "NameError" in refused(executor, "total")  # a later program gets a new session
    executor.cleanup()
    children = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    print("left:", " ".join(children).split())


if __name__ == "__main__":
    main()

"""The load test without the load: what its users send, how answers are judged, and what the report makes of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks import left_behind
from benchmarks.left_behind import Leak
from benchmarks.load import Kind, Load
from benchmarks.load_users import NEWER, OLDER, TRIVIAL, Script, Task, answer, call, greeting, headers, problem

TASK = Task("hello", "run_code", {"code": "print(7)", "session": "user-1"}, "^7$")


def result(text: str, *, number: int, failed: bool = False) -> str:
    content = {"content": [{"type": "text", "text": text}], "isError": failed}
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": content})


def test_requests_of_both_revisions() -> None:
    hello, ready = greeting()
    assert hello["method"] == "initialize"
    assert "id" not in ready
    older, newer = call(TASK, OLDER), call(TASK, NEWER)
    assert older["params"] == {"name": "run_code", "arguments": TASK.arguments}
    assert newer["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == NEWER
    assert older["id"] != newer["id"]
    assert "mcp-session-id" not in headers(hello, OLDER, "t")
    assert headers(older, OLDER, "t", "abc")["mcp-session-id"] == "abc"
    assert headers(newer, NEWER, "t")["mcp-name"] == "run_code"
    assert headers(newer, NEWER, "t")["authorization"] == "Bearer t"


def test_an_answer_is_json_or_the_last_event_of_a_stream() -> None:
    told = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}})
    stream = f"event: message\r\ndata: {told}\r\n\r\ndata: {result('7', number=3)}\r\n\r\n"
    assert answer(stream)["id"] == 3
    assert answer(result("7", number=4))["id"] == 4
    with pytest.raises(ValueError, match="no answer"):
        answer(f"data: {told}\n\n")


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, result("7", number=1), ""),
        (200, result("8", number=1), "expected '^7$', got '8'"),
        (200, result("7", number=2), "another request"),
        (200, result("NameError", number=1, failed=True), "failed: NameError"),
        (200, json.dumps({"id": 1, "error": {"code": -32602}}), "error {'code': -32602}"),
        (200, "", "invalid response"),
        (503, "busy", "HTTP 503: busy"),
    ],
)
def test_only_the_right_answer_is_no_error(status: int, body: str, said: str) -> None:
    found = problem(TASK, {"id": 1}, status, body)
    assert (said in found) if said else found == ""


def test_users_have_sessions_of_their_own_and_run_all_kinds() -> None:
    one, two = Script(1), Script(2)
    assert (one.revision, two.revision) == (OLDER, NEWER)
    assert "user-1" in one.first().expected
    script, again = Script(5), Script(5)
    tasks = [script.next() for _ in range(600)]
    assert [task.name for task in tasks] == [again.next().name for _ in range(600)]
    kinds = Counter(task.name for task in tasks)
    assert len(kinds) == 9
    assert max(kinds, key=lambda kind: kinds[kind]) == TRIVIAL
    assert {task.arguments.get("session", "user-5") for task in tasks} == {"user-5"}
    counts = [task.expected for task in tasks if task.name == "variables"]
    assert counts[-1] == f"^user-5 {len(counts)}$"


def load(**changes: Any) -> Load:
    kinds = [Kind(TRIVIAL, [float(n) for n in range(1, 102)], 0), Kind("one call", [10.0, 20.0], 0)]
    made = Load(2, 1, 1, 7, 60.0, 25.0, kinds, {}, [Leak("processes", 5, 6, 0, allowed=1)])
    return replace(made, **changes)


def test_the_report_compares_p95_with_one_user_alone() -> None:
    measured = load()
    assert measured.trivial.percentile(95) == 96.0
    assert measured.ratio == pytest.approx(96 / 25)
    data = measured.data()
    assert data["kinds"][-1] == {
        "name": "all",
        "runs": 103,
        "errors": 0,
        "p50_ms": 50.0,
        "p95_ms": 95.9,
        "p99_ms": 99.98,
    }
    assert data["versions"]["locust"]
    assert data["machine"]["cores"] >= 1
    assert data["clean"] is True


def test_errors_lost_sessions_and_leaks_are_not_clean() -> None:
    assert load().clean
    assert not load(problems={"one call: HTTP 503": 1}).clean
    assert not load(idle_kept=0).clean
    assert not load(leaks=[Leak("processes", 5, 7, 0, allowed=1)]).clean
    assert not load(leaks=[Leak("processes", 5, 5, 1)]).clean


def test_a_process_is_known_by_its_number_and_its_birth() -> None:
    asks = [sys.executable, "-c", "input('ready\\n')"]
    with subprocess.Popen(asks, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert left_behind.born(child.pid) > 0
        assert left_behind.proportional_megabytes([child.pid]) > 0
        assert left_behind.resident_megabytes(child.pid) > 0
        child.stdin.write(b"\n")
        child.stdin.close()
    assert left_behind.born(child.pid) == 0
    assert left_behind.entries(f"/proc/{child.pid}/fd") == 0


def test_locust_is_pinned_at_the_version_that_is_named() -> None:
    from benchmarks.load import LOCUST

    pins = (Path(left_behind.__file__).with_name("locust.txt")).read_text().splitlines()
    assert LOCUST in pins
    assert all("==" in line for line in pins if not line.startswith("#"))

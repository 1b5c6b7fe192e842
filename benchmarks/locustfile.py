"""The users of `scripts/bench load`, run by locust in its own environment. Everything arrives by the environment."""
# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false

from __future__ import annotations

import itertools
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
from locust import FastHttpUser, constant, events, task

from benchmarks.load_users import NEWER, Script, Task, call, greeting, headers, problem

TOKEN = os.environ["LOAD_TOKEN"]
CHOSEN: Callable[[Script], Task] = {
    "trivial": Script.trivial,  # to see how long one takes without others
    "each": Script.each,  # so that every session has once had what its largest program takes
    "mixed": Script.next,
}[os.environ["LOAD_TASKS"]]
THINKING = float(os.environ["LOAD_THINKING"])
_numbers = itertools.count()
_taken: list[tuple[str, float, str]] = []


class User(FastHttpUser):
    wait_time = constant(THINKING)
    network_timeout = connection_timeout = 60.0

    def on_start(self) -> None:
        number = next(_numbers)
        self.script = Script(number)
        self.connection = ""
        if self.script.revision != NEWER:
            for sent in greeting():
                self._greet(sent)
        gevent.sleep(random.Random(number).random() * THINKING)  # people do not begin at the same moment
        self._do(self.script.first())

    @task
    def one(self) -> None:
        self._do(CHOSEN(self.script))

    def on_stop(self) -> None:
        if self.connection:
            self.client.delete("/mcp", headers={"authorization": f"Bearer {TOKEN}", "mcp-session-id": self.connection})

    def _greet(self, sent: dict[str, Any]) -> None:
        given = headers(sent, self.script.revision, TOKEN, self.connection)
        with self.client.post("/mcp", json.dumps(sent), headers=given, name="connect", catch_response=True) as response:
            if response.status_code not in (200, 202):
                _taken.append(("connect", 0.0, f"HTTP {response.status_code}"))
            self.connection = response.headers.get("mcp-session-id") or self.connection

    def _do(self, wanted: Task) -> None:
        sent = call(wanted, self.script.revision)
        given = headers(sent, self.script.revision, TOKEN, self.connection)
        body = json.dumps(sent)
        begun = time.perf_counter()
        with self.client.post("/mcp", body, headers=given, name=wanted.name, catch_response=True) as response:
            text = response.text or ""
            taken = (time.perf_counter() - begun) * 1000
            found = problem(wanted, sent, response.status_code, text)
            _taken.append((wanted.name, round(taken, 3), found))
            if found:
                response.failure(found)
            else:
                response.success()


@events.quitting.add_listener
def write(**_: Any) -> None:
    Path(os.environ["LOAD_RESULT"]).write_text(json.dumps(_taken), encoding="utf-8")

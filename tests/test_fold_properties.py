"""Any config, with comments anywhere: folded and unfolded it is what it was, and nothing of the client's is lost."""

from __future__ import annotations

import json
import tempfile
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import fold_lab
from tests.config_machine import Machine
from tests.fold_lab import CODEX, JSON_FILES, LAUNCH, everything, fold, known, unfold
from toolfold.config import documents
from toolfold.config.folding import jsonc
from toolfold.config.folding.plan import Options, plan_fold

common = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
each_client = settings(common, max_examples=15)
MEMORY = Path("/dev/shm")
"""Every write goes to disk before the next one; thousands of examples need not wear it out."""


@contextmanager
def a_machine() -> Generator[Machine]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        machine = Machine(Path(folder), env={"HOME": "/home/me", "A": "a", "HOST": "h.example", "T": "t"})
        machine.cwd.mkdir()
        yield machine


def content(machine: Machine, client: str) -> dict[str, Any]:
    path = machine.home / (CODEX if client == "codex" else JSON_FILES[client][0])
    return documents.read(path, limit=10**9).content


def check_there_and_back(machine: Machine, client: str) -> None:
    before, loaded = everything(machine), machine.load().settings.servers
    plan = fold(machine, client)
    after = machine.load().settings.servers
    assert {name: server.model_copy(update={"source": ""}) for name, server in after.items()} == {
        name: server.model_copy(update={"source": ""}) for name, server in loaded.items()
    }
    assert plan.changes
    assert set(plan.moved) | set(plan.left) == set(loaded)
    assert set(plan.left.values()) <= {"it cannot be written in Toolfold's own words"}
    assert not plan_fold(known(client), machine.host, LAUNCH, Options()).changes
    assert unfold(machine) == []
    assert everything(machine) == before


@pytest.mark.parametrize("client", JSON_FILES)
@each_client
@given(data=st.data())
def test_json_is_byte_for_byte_what_it_was(client: str, data: st.DataObject) -> None:
    name, (key,) = JSON_FILES[client]
    document = {**data.draw(fold_lab.OTHERS), key: data.draw(fold_lab.servers(client)), **data.draw(fold_lab.OTHERS)}
    with a_machine() as machine:
        fold_lab.write(machine.home / name, data.draw(fold_lab.jsonc(document)))
        check_there_and_back(machine, client)


@common
@given(data=st.data())
def test_toml_is_byte_for_byte_what_it_was(data: st.DataObject) -> None:
    with a_machine() as machine:
        entries = data.draw(st.dictionaries(fold_lab.NAMES, fold_lab.stdio_entries(), max_size=3))
        fold_lab.write(machine.home / CODEX, data.draw(fold_lab.codex_config(entries)))
        check_there_and_back(machine, "codex")


@pytest.mark.parametrize("client", JSON_FILES)
@each_client
@given(data=st.data())
def test_what_the_client_changed_since_stays_and_its_servers_come_back(client: str, data: st.DataObject) -> None:
    name, (key,) = JSON_FILES[client]
    servers = data.draw(fold_lab.servers(client))
    document = {**data.draw(fold_lab.OTHERS), key: servers}
    with a_machine() as machine:
        path = machine.home / name
        fold_lab.write(path, data.draw(fold_lab.jsonc(document)))
        fold(machine, client)
        folded = content(machine, client)
        # The client, or the person, edits the text, or writes the whole file anew.
        added = data.draw(st.dictionaries(fold_lab.NAMES, fold_lab.entries(client), min_size=1, max_size=2))
        text = path.read_text(encoding="utf-8")
        for each in added.keys() - folded[key].keys():
            text = jsonc.put(text, (key,), each, added[each])
        text = jsonc.put(text, (), "changed since", data.draw(st.integers()))
        if data.draw(st.booleans()):
            text = data.draw(fold_lab.jsonc(json.loads(documents.strip_comments(text.lstrip("\ufeff"))), plain=True))
        path.write_bytes(text.encode())
        theirs = documents.parse(text.lstrip("\ufeff")).content
        unfold(machine)
        found = content(machine, client)
        assert {each: found[each] for each in found if each not in {key, "agent"}} == {
            each: theirs[each] for each in theirs if each not in {key, "agent"}
        }
        mine = {each: value for each, value in theirs[key].items() if each != "toolfold"}
        assert found[key] == {**servers, **mine}
        assert not (machine.home / ".config/toolfold/toolfold.toml").exists()


@common
@given(data=st.data())
def test_toml_that_changed_since_keeps_the_change(data: st.DataObject) -> None:
    entries = data.draw(st.dictionaries(fold_lab.NAMES, fold_lab.stdio_entries(), max_size=3))
    with a_machine() as machine:
        path = machine.home / CODEX
        fold_lab.write(path, data.draw(fold_lab.codex_config(entries)))
        original = tomllib.loads(path.read_text(encoding="utf-8"))
        fold(machine, "codex")
        fold_lab.write(path, f"{path.read_bytes().decode()}\n[changed_since]\nx = 1\n# and this\n")
        unfold(machine)
        text = path.read_bytes().decode()
        assert "# and this" in text
        assert tomllib.loads(text) == {**original, "changed_since": {"x": 1}}


@common
@given(data=st.data())
def test_folds_of_several_clients_are_undone_in_any_order(data: st.DataObject) -> None:
    """They share one file of ours, and often the same servers."""
    clients = data.draw(st.permutations(["claude-code", "cursor", "windsurf"]))
    shared = data.draw(fold_lab.servers("cursor"))
    start = data.draw(st.sampled_from([None, "", "check = false", "check = false\n", "[sandbox]\ncpu = 2 # two\n"]))
    with a_machine() as machine:
        for client in clients:
            name, (key,) = JSON_FILES[client]
            own = data.draw(fold_lab.servers(client))
            fold_lab.write(machine.home / name, data.draw(fold_lab.jsonc({key: {**shared, **own}})))
        if start is not None:
            fold_lab.write(machine.home / ".config/toolfold/toolfold.toml", start)
        before = everything(machine)
        for client in clients:
            fold(machine, client)
        for client in data.draw(st.permutations(clients)):
            unfold(machine, client)
        assert everything(machine) == before


@common
@given(data=st.data(), value=fold_lab.OTHERS)
def test_one_member_is_removed_and_put_back_at_its_place(data: st.DataObject, value: dict[str, Any]) -> None:
    document = {**value, "k": {"a": 1, "b": [2], "c": {"d": 3}}}
    text = data.draw(fold_lab.jsonc(document))
    names = ["a", "b", "c"]
    name = data.draw(st.sampled_from(names))
    at = names.index(name)
    without = jsonc.remove(text, ("k",), name)
    expected = {**document, "k": {each: document["k"][each] for each in names if each != name}}
    assert documents.parse(without.lstrip("\ufeff")).content == expected
    back = jsonc.put_back(without, ("k",), name, jsonc.raw(text, ("k",), name), after=names[at - 1] if at else None)
    assert list(documents.parse(back.lstrip("\ufeff")).content["k"].items()) == list(document["k"].items())
    for comment in ("/* , } */", '// "a": 1,', "// {"):
        assert text.count(comment) == back.count(comment)

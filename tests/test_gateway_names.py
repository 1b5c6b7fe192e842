"""Names for clients, and which tools `hybrid` chooses."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolfold import Toolfold
from toolfold.cli.doctor import direct_names
from toolfold.gateway.names import LONGEST, offered_name, offered_names
from toolfold.gateway.offers import Offers
from toolfold.telemetry import uses
from toolfold.telemetry.tokens import count
from toolfold.telemetry.uses import Uses

pytestmark = pytest.mark.anyio

VALID = re.compile(r"[a-zA-Z0-9_-]+")
part = st.one_of(st.text(st.sampled_from("ab_-.é/ "), max_size=6), st.text(max_size=70))


@settings(max_examples=200, deadline=None)
@given(st.sets(st.tuples(part, part), max_size=12))
def test_names_fit_every_client_and_no_two_are_equal(keys: set[tuple[str, str]]) -> None:
    found = offered_names(sorted(keys))
    assert set(found.values()) == keys
    for name, key in found.items():
        assert VALID.fullmatch(name)
        assert len(f"mcp__toolfold__{name}") < 64
        assert "__" in name, "so it is none of our own two"
        assert name == offered_name(*key), "it depends on nothing else"


def test_a_name_that_fits_is_kept() -> None:
    assert offered_name("slack", "post_message") == "slack__post_message"
    assert offered_name("my-server", "read-file") == "my-server__read-file"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b__c"), ("a__b", "c")),
        (("a", "_b"), ("a_", "b")),
        (("a.b", "c"), ("a_b", "c")),
        (("s", "t" * 80), ("s", "t" * 81)),
        (("s" * 60, "t"), ("s" * 61, "t")),
        (("s", "t u"), ("s", offered_name("s", "t u").removeprefix("s__"))),
    ],
)
def test_names_that_look_alike_stay_apart(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert offered_name(*one) != offered_name(*other)
    assert all(len(offered_name(*each)) <= LONGEST for each in (one, other))


async def test_uses_are_counted_across_processes_and_the_file_stays_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Uses(tmp_path), Uses(tmp_path)
    for _ in range(3):
        first.add("slack", "post")
    second.add("slack", "post")
    second.add("github", "get")
    await asyncio.gather(first.close(), second.close())
    assert Uses(tmp_path).counts() == {("slack", "post"): 4, ("github", "get"): 1}
    file = tmp_path / uses.FILE
    with file.open("a") as more:
        more.write('["cut off", "in the mid')
    monkeypatch.setattr(uses, "_LARGE", 200)
    for _ in range(30):
        third = Uses(tmp_path)
        third.add("slack", "post")
        await third.close()
    assert Uses(tmp_path).counts()["slack", "post"] >= 33
    assert file.stat().st_size < 300
    file.write_bytes(b"\xff\x00 nonsense")
    assert Uses(tmp_path).counts() == {}
    assert Uses(tmp_path / "nowhere").counts() == {}


def catalog(folder: Path) -> Path:
    """Thirty tools, each with a larger definition than the one before."""
    tools: list[dict[str, Any]] = [
        {"name": f"t{number:02}", "description": "word " * (4 + 4 * number), "inputSchema": {"type": "object"}}
        for number in range(30)
    ]
    folder.mkdir()
    (folder / "s.json").write_text(json.dumps({"server": "s", "tools": tools}))
    return folder


async def test_hybrid_offers_what_is_named_then_the_most_used_then_the_smallest(tmp_path: Path) -> None:
    folder = catalog(tmp_path / "catalog")

    async def offered(**more: Any) -> list[str]:
        config = {"mode": "hybrid", "catalog_dirs": [str(folder)], **more}
        async with Toolfold.open(config, data_dir=tmp_path / "data") as fold:
            offers = Offers(fold, "hybrid")
            tools, _ = await offers.page("local", None, "2025-11-25")
            return [tool.name for tool in tools]

    def names(*numbers: int) -> list[str]:
        return [f"s__t{number:02}" for number in numbers]

    many = await offered()
    assert many == names(*range(len(many))), "1500 tokens by default, which is not enough for all"
    assert 15 < len(many) < 30
    small = await offered(direct_budget=120)
    assert small == names(*range(len(small)))
    assert 2 <= len(small) <= 4
    assert await offered(direct_budget=0) == []
    assert await offered(direct=["s.t1*"]) == names(*range(10, 20))
    counting = Uses(tmp_path / "data")
    for _ in range(2):
        counting.add("s", "t05")
    counting.add("s", "t19")
    await counting.close()
    assert await offered(direct_budget=120) == names(0, 1, 5), "the most used, and what fits beside it"
    chosen = await offered(direct=["s.t09"], direct_budget=200)
    assert {"s__t05", "s__t09"} <= set(chosen)
    assert "s__t19" not in chosen, "it does not fit"


async def test_doctor_names_what_direct_means_and_no_server_offers(tmp_path: Path) -> None:
    config = {"catalog_dirs": [str(catalog(tmp_path / "catalog"))], "direct": ["s.t01", "s.t1*", "s.tx", "other.*"]}
    async with Toolfold.open(config, data_dir=tmp_path / "data") as fold:
        lines = direct_names(fold)
    assert [line.name.split()[2].rstrip(",") for line in lines] == ["s.tx", "other.*"]


async def test_the_budget_holds_for_real_definitions_counted_exactly(tmp_path: Path, shared: Path) -> None:
    config = {"catalog_dirs": [str(shared / "catalogs")], "mode": "hybrid"}
    for budget in (150, 1500, 6000):
        async with Toolfold.open({**config, "direct_budget": budget}, data_dir=tmp_path) as fold:
            tools, _ = await Offers(fold, "hybrid").page("local", None, "2025-11-25")
        shown = (
            {"name": each.name, "description": each.description, "inputSchema": each.input_schema} for each in tools
        )
        assert budget * 0.7 < sum(count(json.dumps(each)) for each in shown) <= budget

"""`scripts/bench tokens`, short: the curve is counted from what was really said, and drawn as it is in the docs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from benchmarks import plots, tokens_report
from benchmarks.tokens import Catalog, Cost, Crossover, Curve, Point, Size, measure

from tests.backends.available import candidate
from toolfold.demo.context import Context
from toolfold.demo.scenarios import SCENARIOS
from toolfold.errors import ConfigError
from toolfold.telemetry.savings import definition_tokens

pytestmark = pytest.mark.anyio
PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four tools of two servers, one of which is called like one of the demo's."""
    made = tmp_path / "catalogs"
    made.mkdir()
    for server in ("slack", "notes"):
        tools = [
            {"name": f"tool_{n}", "description": f"Do {server} {n}. " * 90, "inputSchema": {"type": "object"}}
            for n in range(2)
        ]
        (made / f"{server}.json").write_text(json.dumps({"server": server, "tools": tools}))
    return made


def cost(tokens: int, definitions: int = 100) -> Cost:
    return Cost(2, definitions, tokens - 10, 10, tokens / 2)


def curve(*sizes: int) -> Curve:
    rows = [
        Size(n, tuple(Point(each.name, n, cost(n * 1000 + 100), cost(900, 155)) for each in SCENARIOS)) for n in sizes
    ]
    crossovers = [
        Crossover(each.name, len(each.tools), 5 if at == 0 else len(each.tools)) for at, each in enumerate(SCENARIOS)
    ]
    return Curve(1, 2310, 1_000_000, tuple(rows), tuple(crossovers), (1, 2, 3))


def test_the_order_is_the_seeds_and_costs_add_up(folder: Path, tmp_path: Path) -> None:
    catalog, same, other = Catalog(folder, 1), Catalog(folder, 1), Catalog(folder, 2)
    assert catalog.tools == same.tools
    assert catalog.tools != other.tools
    assert catalog.tokens(4) == other.tokens(4)
    first = [(tool["name"], tool["description"], tool["inputSchema"]) for _, tool in catalog.tools[:3]]
    assert catalog.tokens(3) == definition_tokens(first)
    catalog.write(3, tmp_path / "three")
    written = [json.loads(path.read_text()) for path in (tmp_path / "three").iterdir()]
    assert sum(len(each["tools"]) for each in written) == 3
    assert "slack" not in {server for server, _ in catalog.tools}
    assert catalog.other_orders(100) is None
    with pytest.raises(ConfigError, match="holds no catalog"):
        Catalog(tmp_path, 1)


@pytest.mark.parametrize("content", ["", "[]", '{"server": "a"}', '{"server": "a", "tools": [{"name": "b"}]}'])
def test_a_file_that_is_no_catalog_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(ConfigError, match=r"bad\.json is no catalog"):
        Catalog(tmp_path, 1)


def test_the_cost_of_a_conversation_is_every_request() -> None:
    context = Context(100, turns=[30, 50], written=20)
    spent = Cost.of(context)
    assert spent.requests == 3
    assert spent.tokens == 100 + 130 + 180 + 20
    # What an earlier request sent counts a tenth: the definitions twice, the first turn once.
    assert spent.with_cache == pytest.approx(100 + (30 + 10) + (50 + 13) + 20)


async def test_both_ways_really_happen_and_the_crossover_is_found(folder: Path, tmp_path: Path) -> None:
    await candidate("bubblewrap", tmp_path)
    told: list[str] = []
    measured = await measure(folder, [1, 99], told.append, scenarios=SCENARIOS[:1])
    assert [size.tools for size in measured.sizes] == [1, 4]
    assert measured.sizes[0].own == measured.sizes[1].own
    assert 0 < measured.sizes[0].own <= 200
    one, all_of_them = (size.points[0] for size in measured.sizes)
    assert (one.direct.requests, one.folded.requests) == (2, 3)
    grown = all_of_them.direct.definitions - one.direct.definitions
    assert grown == Catalog(folder, measured.seed).tokens(3)
    assert all_of_them.direct.tokens - one.direct.tokens == 2 * grown
    assert one.saved < 0 < all_of_them.saved
    crossover = measured.crossovers[0].tools
    assert crossover is not None
    assert f"among {crossover - 1} tool" in " ".join(told)
    assert f"among {crossover} tool" in " ".join(told)


def test_a_promise_that_is_not_kept_is_seen() -> None:
    kept = {promise.what: promise.kept for promise in tokens_report.promises(curve(1, 100, 2310))}
    assert kept == {
        "two tools and instructions, tokens": True,
        "saved with 100 tools": True,
        "saved with 2310 tools": True,
    }
    short = Size(100, (Point("one", 100, cost(1000), cost(40, 201)),))
    promises = tokens_report.promises(Curve(1, 2, 3, (short,), (Crossover("one", 1, None),)))
    assert [promise.kept for promise in promises] == [False, False]
    data = tokens_report.as_data(curve(1, 100))
    assert data["sizes"][1]["scenarios"][0]["direct"]["requests"] == 2
    assert data["crossovers"][0]["tools"] == 5
    assert data["versions"]["rs-bpe"]


def test_the_readme_quotes_what_the_command_printed() -> None:
    root = PICTURES.parents[1]
    printed = " ".join((root / "docs" / "benchmarks.md").read_text().split())
    quoted = " ".join((root / "README.md").read_text().split())
    hundred, median = re.findall(r"✓ 100 tools: ([\d.]+%) fewer .*? the median scenario ([\d.]+%)", printed)[0]
    most, other_median = re.findall(r"✓ 2,310 tools: ([\d.]+%) fewer .*? the median scenario ([\d.]+%)", printed)[0]
    assert f"{hundred} fewer tokens with 100 tools (the median scenario {median})" in quoted
    assert f"{most} fewer with 2,310 ({other_median})" in quoted


@pytest.mark.parametrize("name", [plots.SCENARIOS, plots.TOTAL])
def test_the_pictures_in_the_docs_are_what_the_command_draws(name: str, tmp_path: Path) -> None:
    """Their shape; the figures are those of a real catalog."""
    plots.write(curve(1, 2, 10, 100, 2310), tmp_path)
    drawn, kept = (ET.parse(place / name).getroot() for place in (tmp_path, PICTURES))
    assert _shape(drawn) == _shape(kept)
    text = (PICTURES / name).read_text()
    assert len(text) < 20_000
    assert "prefers-color-scheme:dark" in text
    assert "nan" not in re.sub(r"[a-z-]*nance", "", text)
    assert f"](pictures/{name})" in (PICTURES.parent / "benchmarks.md").read_text()


def _shape(picture: ET.Element) -> list[object]:
    titles = [text.text for text in picture.iter(f"{SVG}text") if text.get("class") == "title"]
    lines = [path.get("class") for path in picture.iter(f"{SVG}path") if "line" in (path.get("class") or "")]
    style = picture.find(f"{SVG}style")
    return [titles, lines, style.text if style is not None else "", len(list(picture.iter(f"{SVG}circle")))]

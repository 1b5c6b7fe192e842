"""What is found for what is asked: paraphrases, misspellings, several things at once, names; always the same."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.search_fixtures import OFFICE, listing, office
from toolfold.catalog.catalog import Catalog, Entry
from toolfold.config.settings import ServerConfig, Settings


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    return office(tmp_path_factory.mktemp("default"))


@pytest.fixture(scope="module")
def words_only(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    return office(tmp_path_factory.mktemp("words"), semantic=False)


def found(catalog: Catalog, query: str, limit: int = 5) -> list[str]:
    return [f"{hit.server}.{hit.name}" for hit in catalog.search(query, limit=limit).hits]


PARAPHRASES = [
    ("notify the team in chat", "slack.post_message"),
    ("file a bug report", "github.create_issue"),
    ("propose my changes for merging", "github.create_pull_request"),
    ("will it rain tomorrow", "weather.get_forecast"),
    ("book an appointment with Ann", "calendar.create_event"),
    ("what's inside config.yaml", "filesystem.read_file"),
    ("who works here", "slack.list_users"),
    ("load the excel table", "google_drive.get_sheet"),
    ("reimburse a client", "stripe.create_refund"),
    ("make a new directory in drive", "google_drive.create_folder"),
    ("which monitors are firing", "grafana.list_alert_rules"),
    ("thumbs up on that post", "slack.add_reaction"),
]


@pytest.mark.parametrize(("query", "tool"), PARAPHRASES)
def test_a_paraphrase_finds_the_tool(catalog: Catalog, query: str, tool: str) -> None:
    assert tool in found(catalog, query)


def test_without_vectors_paraphrases_are_mostly_found_too(words_only: Catalog) -> None:
    hits = sum(tool in found(words_only, query) for query, tool in PARAPHRASES)
    assert hits >= len(PARAPHRASES) - 3


@pytest.mark.parametrize("which", ["catalog", "words_only"])
@pytest.mark.parametrize(
    ("query", "tool"),
    [
        ("creat isue", "github.create_issue"),
        ("pul request", "github.create_pull_request"),
        ("prometeus", "grafana.query_prometheus"),
        ("dashbaord", "grafana.get_dashboard"),
        ("repositry search", "github.search_repositories"),
        ("wether forcast", "weather.get_forecast"),
        ("creat_isue", "github.create_issue"),
        ("postmessage", "slack.post_message"),
    ],
)
def test_a_misspelling_finds_the_tool(request: pytest.FixtureRequest, which: str, query: str, tool: str) -> None:
    assert tool in found(request.getfixturevalue(which), query, 3)


@pytest.mark.parametrize(
    ("query", "tools"),
    [
        ("read the sheet, then open an issue for each row", ["google_drive.get_sheet", "github.create_issue"]),
        ("get the forecast and post it to the channel", ["weather.get_forecast", "slack.post_message"]),
        (
            "Query Prometheus for errors. Write the result to /tmp/report.md. Invite Ann to a meeting event.",
            ["grafana.query_prometheus", "filesystem.write_file", "calendar.create_event"],
        ),
    ],
)
def test_a_task_of_several_parts_gets_tools_for_each(catalog: Catalog, query: str, tools: list[str]) -> None:
    got = found(catalog, query, 2 * len(tools))
    assert set(tools) <= set(got), got


def test_an_exact_name_comes_first_in_every_spelling(catalog: Catalog, words_only: Catalog) -> None:
    for one in (catalog, words_only):
        for server, tools in OFFICE.items():
            for name in tools:
                for written in (f"{server}.{name}", f"mcp__{server}__{name}", f"{server}/{name}"):
                    assert found(one, written, 1) == [f"{server}.{name}"], written


def test_real_names_come_first_among_thousands(shared: Path, tmp_path: Path) -> None:
    real = Catalog.open(Settings(catalog_dirs=(shared / "catalogs",), data_dir=tmp_path))
    for tool in random.Random(3).sample(list(real.tools), 60):
        hit = real.search(f"{tool.server}.{tool.name}", limit=1).hits[0]
        assert (hit.entry.server, hit.entry.name) == (tool.server, tool.name)


def test_a_server_named_in_the_query_pulls_its_tools_up(catalog: Catalog) -> None:
    assert {name.split(".")[0] for name in found(catalog, "github issue", 2)} == {"github"}
    assert found(catalog, "google drive share", 1) == ["google_drive.share_file"]
    assert found(catalog, "delete calendar", 1) == ["calendar.delete_event"]


def test_the_verb_decides_between_tools_about_the_same_thing(catalog: Catalog) -> None:
    assert found(catalog, "remove the event", 1) == ["calendar.delete_event"]
    assert found(catalog, "add an event", 1) == ["calendar.create_event"]
    assert found(catalog, "show the events", 1) == ["calendar.list_events"]


def test_parameters_and_their_values_are_searched(catalog: Catalog) -> None:
    assert "grafana.query_prometheus" in found(catalog, "resolution of a series", 3)
    assert "stripe.create_refund" in found(catalog, "fraudulent", 3)


def test_resources_and_prompts_are_found_like_tools(catalog: Catalog) -> None:
    hit = catalog.search("how much vacation do I have").hits[0]
    assert (hit.kind, hit.server, hit.name) == ("resource", "handbook", "vacation")
    assert hit.import_ == 'await read_resource("handbook", "handbook://vacation")'
    hit = catalog.search("welcome the new colleague").hits[0]
    assert (hit.kind, hit.name) == ("prompt", "onboarding")
    assert hit.import_ == 'await get_prompt("handbook", "onboarding", {"first_name": …})'
    assert hit.input_schema["required"] == ["first_name"]


SCRIPT = """
import random, sys
from pathlib import Path
from tests.search_fixtures import OFFICE, listing
from toolfold.catalog.catalog import Catalog
from toolfold.config.settings import Settings
catalog = Catalog.open(Settings(data_dir=Path(sys.argv[1])))
servers = list(OFFICE.items())
random.Random(int(sys.argv[2])).shuffle(servers)
for server, tools in servers:
    shuffled = list(tools.items())
    random.Random(int(sys.argv[2])).shuffle(shuffled)
    catalog.update(listing(server, dict(shuffled)))
    if sys.argv[2] == "2":
        catalog.search("build the index again and again, one server at a time")
for query in ("create", "read the file and send it", "list all", "github issue", "a", "who is here"):
    print(catalog.search(query, explain=True, detail="name_only", limit=30).text)
"""


def test_the_order_is_the_same_in_every_process_and_history(tmp_path: Path) -> None:
    texts: set[str] = set()
    for seed in ("1", "2", "3"):
        ran = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path / seed), seed],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            cwd=Path(__file__).parents[1],
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"},
        )
        texts.add(ran.stdout)
    assert len(texts) == 1
    assert "create" in texts.pop()


def test_what_the_filter_refuses_is_nowhere_in_the_answer(catalog: Catalog) -> None:
    def allow(entry: Entry) -> bool:
        return entry.server != "github" and entry.name != "post_message"

    for query in (
        "create issue",
        "github.create_issue",
        "post a message",
        "",
        "server:github",
        "server:github issue",
        "zq",
    ):
        answer = catalog.search(query, allow=allow, explain=True)
        shown = answer.text.replace('There is no server "github"', "")
        assert "github" not in shown
        assert "post_message" not in shown
        assert all(allow(hit.entry) for hit in answer.hits)
    everything = catalog.search("create", limit=200).total
    assert catalog.search("create", limit=200, allow=allow).total < everything
    assert catalog.search("create", allow=lambda entry: False).hits == []
    assert catalog.search("create", allow=lambda entry: False).text


def test_a_changed_listing_is_searched_at_once_and_by_later_processes(tmp_path: Path) -> None:
    settings = Settings(servers={name: ServerConfig(command="x") for name in OFFICE}, data_dir=tmp_path)
    catalog = Catalog.open(settings)
    for server, tools in OFFICE.items():
        catalog.update(listing(server, tools))
    assert "slack.schedule_zeppelin" not in found(catalog, "zeppelin")
    assert catalog.update(listing("slack", {"schedule_zeppelin": "Send a zeppelin with a banner"}))
    assert found(catalog, "zeppelin", 1) == ["slack.schedule_zeppelin"]
    assert "slack.post_message" not in found(catalog, "post message slack", 50)
    assert found(Catalog.open(settings), "zeppelin", 1) == ["slack.schedule_zeppelin"]
    assert found(catalog, "create issue", 1) == ["github.create_issue"]


def test_an_index_that_grew_step_by_step_answers_like_a_new_one(tmp_path: Path) -> None:
    grown = Catalog.open(Settings(data_dir=tmp_path / "grown"))
    for server, tools in OFFICE.items():
        grown.update(listing(server, tools))
        grown.search("anything")
    grown.update(listing("slack", {"other": "Something else altogether"}))
    grown.search("anything")
    grown.update(listing("slack", OFFICE["slack"]))
    fresh = Catalog.open(Settings(data_dir=tmp_path / "fresh"))
    for server, tools in OFFICE.items():
        fresh.update(listing(server, tools))
    for query in ("create", "send a message", "file contents", "prometheus", "what happened in the channel"):
        assert grown.search(query, explain=True, limit=30).text == fresh.search(query, explain=True, limit=30).text


def test_an_explanation_names_words_places_meaning_and_action(catalog: Catalog) -> None:
    (hit,) = catalog.search("notify the channel", explain=True, limit=1).hits
    assert hit.name == "post_message"
    why = "; ".join(hit.why)
    assert "channel in description" in why
    assert "(synonym)" in why
    assert "meaning" in why
    assert "action send" in why
    assert not catalog.search("notify the channel").hits[0].why


FOREIGN = {
    "ru_tool": "Отправляет сообщения пользователям",
    "uk_tool": "Створює завдання у проєкті",
    "ja_tool": "三毛猫の写真を探す",
    "zh_tool": "搜索网页上的关键词",
    "ko_tool": "새 이슈를 생성합니다",
    "ar_tool": "إنشاء مشكلة في المستودع",
    "he_tool": "יצירת משימה חדשה",
    "el_tool": "Διαγραφή εγγράφων",
    "hi_tool": "नया कार्य बनाएँ",
    "th_tool": "สร้างปัญหาใหม่",
    "fr_tool": "Trouve un café près d'ici",
}


@pytest.mark.parametrize("semantic", [True, False])
@pytest.mark.parametrize(
    ("query", "tool"),
    [
        ("сообщение", "ru_tool"),
        ("завдання", "uk_tool"),
        ("猫", "ja_tool"),
        ("写真", "ja_tool"),
        ("关键词", "zh_tool"),
        ("이슈 생성", "ko_tool"),
        ("المشكلة", "ar_tool"),
        ("מְשִׂימָה", "he_tool"),
        ("έγγραφα", "el_tool"),
        ("कार्यों", "hi_tool"),
        ("ปัญหา", "th_tool"),
        ("CAFE", "fr_tool"),
    ],
)
def test_a_query_in_another_script_finds_what_is_written_in_it(
    tmp_path: Path, semantic: bool, query: str, tool: str
) -> None:
    catalog = office(tmp_path, semantic=semantic)
    catalog.update(listing("abroad", FOREIGN))
    assert found(catalog, query, 1) == [f"abroad.{tool}"]


def test_the_same_word_counts_once_however_it_is_written(tmp_path: Path) -> None:
    catalog = Catalog.open(Settings(data_dir=tmp_path, semantic=False))
    catalog.update(listing("shop", {"price_of_fruit": "Apples and pears", "weather": "Sun and rain"}))
    for query in ("Apple's price", "apple(s) price"):
        (hit,) = catalog.search(query, explain=True).hits
        assert [why.split(" ")[0] for why in hit.why] == ["apple", "price"]

"""What holds for any rule and any call: spelling and types get around nothing, and restrictions only restrict."""

from __future__ import annotations

import asyncio
import json
import shlex
import string
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolfold.catalog.effects import effects_of
from toolfold.catalog.entries import entries_of
from toolfold.config.policy import PolicySettings, Rule
from toolfold.definitions import Listing, ToolDefinition
from toolfold.guards.context import Deadline, RunContext
from toolfold.guards.guard import Call
from toolfold.guards.permission import how_to_allow
from toolfold.guards.policy import Policy
from toolfold.schema.look_alikes import folded
from toolfold.schema.patterns import EXACT, NO, ArgumentPattern, TargetPattern

STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}
words = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8)
names = st.builds("_".join, st.lists(words, min_size=1, max_size=3))
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**6), 10**6), st.text(max_size=12), st.floats(allow_nan=False)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=8
)
patterns = st.one_of(
    st.just("*"),
    st.builds("{}.{}".format, names | st.just("*"), names | st.just("*") | names.map(lambda name: f"{name}*")),
    st.builds("resource:{}:{}".format, names, names),
    st.builds("prompt:{}:{}".format, names, names | st.just("*")),
)
rules = st.builds(
    Rule,
    match=patterns,
    args=st.dictionaries(
        words, scalars.filter(lambda value: value != float("inf") and value != float("-inf")), max_size=2
    ),
    session=st.none() | words,
    caller=st.none() | words,
    do=st.sampled_from(["allow", "ask", "deny"]),
)
policies = st.builds(
    PolicySettings,
    profile=st.sampled_from(["open", "careful", "strict", "read_only"]),
    rules=st.lists(rules, max_size=5).map(tuple),
)


def call(
    kind: Any, server: str, name: str, arguments: dict[str, Any], caller: str = "local", session: str | None = None
) -> Call:
    async def context() -> RunContext:
        return RunContext(caller, session, Deadline(10))

    tool = ToolDefinition(server=server, name=name) if kind == "tool" else None
    return Call("1", kind, server, name, arguments, asyncio.run(context()), tool)


@given(policies, names, names, st.dictionaries(words, values, max_size=3), words, st.none() | words)
def test_a_decision_is_always_made_and_names_what_made_it(
    settings: PolicySettings, server: str, name: str, arguments: dict[str, Any], caller: str, session: str | None
) -> None:
    decision = Policy(settings).decide(call("tool", server, name, arguments, caller, session))
    assert decision.do in STRICTNESS
    assert decision.rule.startswith(("rule ", "profile "))


@given(
    policies,
    rules,
    st.sampled_from(["tool", "resource", "prompt"]),
    names,
    names,
    st.dictionaries(words, values, max_size=3),
)
def test_a_deny_in_front_never_makes_anything_more_lenient(
    settings: PolicySettings, rule: Rule, kind: str, server: str, name: str, arguments: dict[str, Any]
) -> None:
    one = call(kind, server, name, arguments)
    before = Policy(settings).decide(one)
    denied = rule.model_copy(update={"do": "deny"})
    after = Policy(settings.model_copy(update={"rules": (denied, *settings.rules)})).decide(one)
    assert STRICTNESS[after.do] >= STRICTNESS[before.do]


@given(policies, names, names, words)
def test_what_is_hidden_is_what_is_always_denied(settings: PolicySettings, server: str, name: str, caller: str) -> None:
    """A hidden tool is denied in every session with any arguments; one that is shown is refused by a condition only."""
    policy = Policy(settings)
    [entry] = entries_of(Listing(server=server, tools=[ToolDefinition(server=server, name=name)]))
    scope = policy.scope(caller)
    seen = scope.allow is None or scope.allow(entry)
    asked = [rule for rule in settings.rules if rule.args or rule.session]
    sessions = [None, *(rule.session for rule in asked)]
    samples = [{}, *(dict(rule.args) for rule in asked)]
    found = {policy.decide(call("tool", server, name, dict(one), caller, s)).do for s in sessions for one in samples}
    if not seen:
        assert found == {"deny"}
    elif not asked:
        assert "deny" not in found


@pytest.mark.parametrize(
    ("name", "destructive"),
    [
        ("drag_and_drop", False),
        ("browser_drag", False),
        ("drag_drop", False),
        ("drop_table", True),
        ("find_and_delete_rows", True),
        ("purchase_and_keep", True),
    ],
)
def test_a_name_says_what_a_tool_does(name: str, destructive: bool) -> None:
    assert bool(effects_of(name, {}).destructive) is destructive


def test_what_callers_may_know_of_is_remembered_but_not_without_end() -> None:
    policy = Policy(PolicySettings(profile="read_only"))
    first = policy.scope("ada")
    for number in range(999):
        policy.scope(str(number))
    assert policy.scope("ada") is first
    policy.scope("one more")
    assert policy.scope("ada") is not first
    assert policy.scope("ada").key == first.key


def spellings(value: Any) -> list[Any]:
    """What a lenient program may read as the same."""
    if isinstance(value, bool):
        return [str(value), str(value).lower(), int(value), float(value)]
    if isinstance(value, int):
        return [str(value), float(value), f" {value} ", f"{value}.0", [value], {"value": value}]
    if isinstance(value, str):
        wide = "".join(chr(ord(char) + 0xFEE0) if 0x21 <= ord(char) <= 0x7E else char for char in value)
        return [value.upper(), f" {value}\t", wide, "\u200b".join(value), [value, "other"], value.replace("a", "а")]
    return []


ascii_values = st.one_of(
    st.booleans(), st.integers(-(10**9), 10**9), st.text(string.ascii_lowercase + "-/", min_size=1)
)


@given(ascii_values)
@example(1)
@example("1")
@example("my-org")
@example("/")
def test_no_spelling_of_a_value_gets_around_a_rule_or_into_an_allowance(wanted: Any) -> None:
    pattern = ArgumentPattern("owner", [wanted])
    assert pattern.match({"owner": wanted}, {}) == EXACT
    for spelling in spellings(wanted):
        assert pattern.match({"owner": spelling}, {}) != NO, spelling
        if spelling not in (wanted, [wanted]):
            assert pattern.match({"owner": spelling}, {}) != EXACT, spelling
    assert pattern.match({"Owner": wanted}, {}) not in {NO, EXACT}
    assert pattern.match({}, {"properties": {"owner": {"default": wanted}}}) == EXACT
    assert pattern.match({}, {}) == NO


@given(ascii_values)
def test_a_loose_match_makes_a_decision_stricter_and_never_more_lenient(wanted: Any) -> None:
    def rule(do: str, **more: Any) -> Rule:
        return Rule.model_validate({"match": "hub.post", "do": do, **more})

    about = {"owner": wanted}
    forbidden = Policy(PolicySettings(profile="open", rules=(rule("deny", args=about), rule("allow"))))
    permitted = Policy(PolicySettings(profile="open", rules=(rule("allow", args=about), rule("deny"))))
    asked = Policy(PolicySettings(profile="open", rules=(rule("ask", args=about), rule("deny"))))
    for policy, do in ((forbidden, "deny"), (permitted, "allow"), (asked, "ask")):
        assert policy.decide(call("tool", "hub", "post", {"owner": wanted})).do == do
    for spelling in spellings(wanted):
        if spelling not in (wanted, [wanted]):
            for policy in (forbidden, permitted, asked):
                assert policy.decide(call("tool", "hub", "post", {"owner": spelling})).do == "deny", spelling


def test_an_allowance_that_never_applies_shows_nothing() -> None:
    """The name is another spelling of the allowed one, so the tool is denied with any arguments."""
    allowed = Rule.model_validate({"match": "hub.create_issue", "args": {"owner": "me"}, "do": "allow"})
    policy = Policy(PolicySettings(rules=(allowed, Rule(match="hub.*", do="deny"))))
    assert policy.denial("local", ToolDefinition(server="hub", name="create-issue")) is not None
    assert policy.denial("local", ToolDefinition(server="hub", name="create_issue")) is None


def test_a_rule_for_a_group_is_for_its_members_and_hides_nothing_from_others() -> None:
    tool = ToolDefinition(server="hub", name="post")
    one = call("tool", "hub", "post", {})
    member = replace(one, run=replace(one.run, groups=frozenset({"ops", "all"})))
    stranger = replace(one, run=replace(one.run, groups=frozenset({"ops2"})))
    named_so = replace(one, run=replace(one.run, caller="group:ops"))
    for first, then, of_members in (("deny", "allow", "deny"), ("allow", "deny", "allow")):
        rules = ({"match": "hub.*", "caller": "group:ops", "do": first}, {"match": "hub.*", "do": then})
        policy = Policy(PolicySettings.model_validate({"profile": "open", "rules": rules}))
        decided = [policy.decide(each).do for each in (member, one, stranger, named_so)]
        assert decided == [of_members, then, then, then]
        assert policy.denial("local", tool) is None, "it depends on who asks"
        scope = policy.scope("local")
        [entry] = entries_of(Listing(server="hub", tools=[tool]))
        assert scope.allow is None or scope.allow(entry)


@pytest.mark.parametrize(
    ("when", "do", "marks", "decided"),
    [
        ({"destructive": False}, "allow", {"destructiveHint": False}, "allow"),
        ({"destructive": False}, "allow", {}, "ask"),
        ({"destructive": True}, "deny", {"destructiveHint": True}, "deny"),
        ({"destructive": True}, "deny", {}, "ask"),
        ({"open_world": True}, "deny", {"openWorldHint": True}, "deny"),
        ({"open_world": True}, "deny", {"openWorldHint": False}, "ask"),
        ({"open_world": True}, "deny", {}, "deny"),
        ({"open_world": False}, "allow", {}, "ask"),
        ({"open_world": False}, "allow", {"openWorldHint": False}, "allow"),
        ({"read_only": False}, "deny", {}, "deny"),
        ({"read_only": False}, "deny", {"readOnlyHint": True}, "allow"),
    ],
)
def test_what_a_tool_does_not_say_never_makes_a_rule_more_lenient(
    when: dict[str, bool], do: str, marks: dict[str, Any], decided: str
) -> None:
    rules = ({"match": "hub.post", "when": when, "do": do},)
    policy = Policy(PolicySettings.model_validate({"profile": "strict", "rules": rules}))
    one = call("tool", "hub", "post", {})
    assert policy.decide(replace(one, tool=ToolDefinition(server="hub", name="post", annotations=marks))).do == decided


def test_a_rule_is_named_as_a_person_finds_it_without_its_values() -> None:
    rule = {"match": "hub.*", "args": {"owner": "secret"}, "when": {"destructive": True}, "do": "deny"}
    rule |= {"caller": "ci", "session": "secret"}
    policy = Policy(PolicySettings.model_validate({"rules": ({"match": "hub.get", "do": "allow"}, rule)}))
    decision = policy.decide(call("tool", "hub", "delete", {"owner": "secret"}, "ci", "secret"))
    assert (decision.do, decision.rule, decision.reason) == (
        "deny",
        "rule 2 (deny hub.* where owner, destructive for ci in one session)",
        "",
    )


@given(values, st.lists(words, min_size=1, max_size=3))
def test_any_argument_at_any_path_is_survived(value: Any, path: list[str]) -> None:
    for wanted in ("a*", 1, None, True):
        ArgumentPattern(".".join(path), [wanted]).match({path[0]: value}, {"properties": {path[0]: value}})


@given(st.lists(st.text("ab/.", max_size=4), min_size=1, max_size=6))
def test_a_path_that_goes_up_is_not_inside(parts: list[str]) -> None:
    path = "/home/me/" + "/".join([*parts, "..", "..", "..", ".."])
    assert ArgumentPattern("path", ["/home/me/*"]).match({"path": path}, {}) != EXACT


@given(st.text(string.printable))
def test_folding_twice_is_folding_once(text: str) -> None:
    assert folded(folded(text)) == folded(text)


@given(names, names)
def test_the_separator_in_a_name_does_not_move_it_to_another_server(server: str, name: str) -> None:
    assert TargetPattern(f"{server}.*").match("tool", f"{server}.x", name) != EXACT
    assert TargetPattern(f"{server}.{name}").match("tool", server, name) == EXACT
    assert TargetPattern(f"{server}.{name}").match("resource", server, name) == NO
    assert TargetPattern(f"resource:{server}:*").match("tool", server, name) == NO


@given(st.text("ab'\"$`; \\", min_size=1, max_size=12).filter(str.strip))
def test_the_command_to_allow_a_call_is_one_word_for_a_shell(name: str) -> None:
    words = shlex.split(how_to_allow(f"office.{name}").removesuffix(".").partition(": ")[2])
    assert words[:3] == ["toolfold", "policy", "allow"]
    assert len(words) == 4


def test_a_long_or_wide_argument_is_not_a_way_around_and_costs_little() -> None:
    pattern = ArgumentPattern("owner", ["evil"])
    assert pattern.match({"owner": ["fine"] * 20_000}, {}) not in {NO, EXACT}
    assert pattern.match({"owner": "x" * 1_000_000}, {}) not in {NO, EXACT}
    branching: dict[str, Any] = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}], "properties": {"a": {}}}
    assert pattern.match({}, branching) == NO


def test_careful_asks_about_a_sensible_part_of_real_catalogs(shared: Path) -> None:
    """Most by their marks, some by their names; nothing that says it reads."""
    tools: list[tuple[str, dict[str, Any]]] = [
        (tool["name"], tool.get("annotations") or {})
        for file in sorted((shared / "catalogs").glob("*.json"))
        for tool in json.loads(file.read_text())["tools"]
    ]
    found = [(name, effects_of(name, marks)) for name, marks in tools]
    asked = [name for name, effects in found if effects.destructive]
    by_name = [name for name, effects in found if effects.destructive and "name says" in effects.reason]
    assert len(tools) > 2000
    assert 0.1 < len(asked) / len(tools) < 0.25
    assert 20 < len(by_name) < 100
    assert not [name for name in by_name if name.lower().startswith(("get", "list", "search", "read", "find"))]


@given(
    policies, names, names, words, st.dictionaries(st.sampled_from(["readOnlyHint", "destructiveHint"]), st.booleans())
)
@example(PolicySettings(rules=(Rule(match="github.*", do="deny"),)), "github", "get", "ci", {})
def test_a_server_is_hidden_before_it_is_listed_only_where_all_its_tools_are_denied(
    settings: PolicySettings, server: str, name: str, caller: str, annotations: dict[str, Any]
) -> None:
    policy = Policy(settings)
    tool = ToolDefinition(server=server, name=name, annotations=annotations)
    assert policy.scope(caller).may_know(server) or policy.denial(caller, tool) is not None


@pytest.mark.parametrize(
    ("rules", "known"),
    [
        ([], True),
        ([{"match": "mail.*", "do": "deny"}], False),
        ([{"match": "M-ail.*", "do": "deny"}], True),
        ([{"match": "Mail.*", "do": "deny"}], False),
        ([{"match": "*", "do": "deny"}], False),
        ([{"match": "*.*", "do": "deny"}], False),
        ([{"match": "mail.*", "caller": "web", "do": "deny"}], True),
        ([{"match": "mail.*", "session": "trial", "do": "deny"}], True),
        ([{"match": "mail.*", "args": {"to": "boss"}, "do": "deny"}], True),
        ([{"match": "mail.*", "when": {"read_only": False}, "do": "deny"}], True),
        ([{"match": "mail.send*", "do": "deny"}], True),
        ([{"match": "resource:mail:*", "do": "deny"}], True),
        ([{"match": "mail.get_*", "do": "allow"}, {"match": "*", "do": "deny"}], True),
        ([{"match": "mail.*", "args": {"to": "me"}, "do": "ask"}, {"match": "*", "do": "deny"}], True),
        ([{"match": "Mail.*", "do": "allow"}, {"match": "*", "do": "deny"}], False),
        ([{"match": "chat.*", "do": "allow"}, {"match": "*", "do": "deny"}], False),
        ([{"match": "resource:mail:*", "do": "allow"}, {"match": "*", "do": "deny"}], True),
        ([{"match": "*", "when": {"read_only": True}, "do": "allow"}, {"match": "*", "do": "deny"}], True),
        ([{"match": "mail.*", "do": "deny"}, {"match": "mail.*", "do": "allow"}], False),
    ],
)
def test_who_may_know_of_a_server_before_it_is_listed(rules: list[dict[str, Any]], known: bool) -> None:
    settings = PolicySettings.model_validate({"rules": rules})
    assert Policy(settings).scope("ci").may_know("mail") is known

"""Tokens and the vault: values come back as they were, whatever is done with whole tokens, and nowhere else."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.private import Room, value_texts
from toolfold.errors import InvalidArguments, LimitExceeded
from toolfold.privacy.tokens import TokenSyntax, token

plain = st.text(st.characters(blacklist_categories=("Cs",)), max_size=20)


def test_no_token_is_the_beginning_of_another() -> None:
    names = sorted(str(token("email", index)) for index in range(40_000))
    assert len(set(names)) == 40_000
    assert not [second for first, second in itertools.pairwise(names) if second.startswith(first)]
    assert names[0] == "EMAIL_1"
    assert token("email", 1_030_068) is None


@given(st.lists(st.integers(0, 50_000), max_size=6), st.lists(plain, min_size=7, max_size=7))
def test_tokens_are_read_back_whatever_stands_between_them(indexes: list[int], between: list[str]) -> None:
    syntax = TokenSyntax(["email", "work_email"])
    names = [str(token("email", index)) for index in indexes]
    text = between[0] + "".join(name + after for name, after in zip(names, between[1:], strict=False))
    found = [match[0] for match in syntax.pattern.finditer(text)]
    assert [name for name in found if name in names] == names


@given(value_texts(), plain, plain)
def test_text_is_restored_to_what_it_was(value: str, before: str, after: str) -> None:
    room = Room()
    text = f"{before} {value} {after}"
    assert room.restore(room.text(text)) == text


@given(st.lists(value_texts(), min_size=1, max_size=8), st.sampled_from(["", ",", " | ", "\n", "0", "x"]))
def test_whatever_moves_whole_tokens_keeps_the_values(values: list[str], separator: str) -> None:
    room = Room()
    rows = room.data([{"email": value, "n": number} for number, value in enumerate(values)])
    tokens: list[str] = [row["email"] for row in rows]
    assert not any(value in json.dumps(rows, ensure_ascii=False) for value in values)
    restored = [room.restore(one) for one in tokens]
    assert restored == values
    assert room.restore(separator.join(tokens)) == separator.join(values)
    assert room.restore(sorted(tokens)) == [values[tokens.index(one)] for one in sorted(tokens)]
    assert room.restore(json.loads(json.dumps({one: [one] for one in tokens}))) == {one: [one] for one in values}
    assert room.restore([f"<{one}>7" for one in reversed(tokens)]) == [f"<{one}>7" for one in reversed(values)]
    assert room.restore(" ".join(tokens).split()[0]) == values[0].split()[0] or " " in values[0]


def test_a_file_of_tokens_is_good_in_a_later_run(tmp_path: Path) -> None:
    room = Room()
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(f"{room.text(f'user{number}@example.com')},{number}" for number in range(200)))
    assert "@" not in path.read_text()
    lines = room.restore(path.read_text()).splitlines()
    assert lines == [f"user{number}@example.com,{number}" for number in range(200)]


def test_json_in_a_text_stays_json() -> None:
    room = Room()
    row = room.data({"full_name": 'Ada "Countess" Lovelace\nLondon'})
    restored = room.restore(json.dumps({"body": f"Dear {row['full_name']}"}))
    assert json.loads(restored) == {"body": 'Dear Ada "Countess" Lovelace\nLondon'}


def test_numbers_come_back_as_numbers_and_are_known_wherever_they_return() -> None:
    room = Room()
    row = room.data({"ssn": 123456789, "phone": 4155552671, "count": 4155552671})
    assert row == {"ssn": "NATIONAL_ID_1", "phone": "PHONE_1", "count": 4155552671}
    assert room.restore(row) == {"ssn": 123456789, "phone": 4155552671, "count": 4155552671}
    assert room.data([123456789]) == ["NATIONAL_ID_1"]


def test_a_token_of_another_session_is_refused_and_its_literal_is_not() -> None:
    room, other = Room(), Room()
    name = room.text("ada@example.com")
    with pytest.raises(InvalidArguments, match="EMAIL_1 stands for no private value of this session") as refused:
        other.restore({"to": name})
    assert "ada" not in str(refused.value)
    assert other.restore("see EMAIL_1 in the docs") == "see EMAIL_1 in the docs"
    assert other.text("write EMAIL_1 here") == "write EMAIL_1 here"
    assert other.restore("EMAIL_1") == "EMAIL_1", "a server has written it as text before"
    assert other.text("bob@example.com") == "EMAIL_2", "and so it never becomes a token"


def test_a_server_cannot_name_a_value_that_it_was_never_sent() -> None:
    room = Room()
    name = room.text("ada@example.com")
    trap = room.text(f"Forward this to {name}", "evil")
    assert trap == "Forward this to TEXT_1"
    assert room.restore(trap, "crm") == f"Forward this to {name}", "what it wrote, and not the value"
    room.restore(name, "evil")
    assert room.text(f"I was given {name}", "evil") == f"I was given {name}"


def test_values_go_back_where_they_came_from_and_elsewhere_by_rule() -> None:
    room = Room(restore={"mail": ("email",), "log": ()})
    row = room.data({"email": "ada@example.com", "phone": "+1 415 555 2671"}, "crm")
    assert room.restore(row, "crm") == {"email": "ada@example.com", "phone": "+1 415 555 2671"}
    assert room.restore(row, "mail") == {"email": "ada@example.com", "phone": "PHONE_1"}
    assert room.restore(row, "other") == row
    log = room.text("ada@example.com", "log")
    assert room.restore(log, "log") == log, "an empty rule is for a server that is given nothing"


def test_the_vault_is_bounded_and_says_so_without_a_value() -> None:
    room = Room(values=3)
    with pytest.raises(LimitExceeded, match=r"privacy\.values") as refused:
        room.text(" ".join(f"user{number}@example.com" for number in range(9)))
    assert "@" not in str(refused.value)
    small = Room(memory=2000)
    with pytest.raises(LimitExceeded, match=r"privacy\.memory"):
        small.text(" ".join(f"user{number}@example.com" for number in range(9)))


def test_nothing_that_can_be_printed_shows_a_value() -> None:
    room = Room()
    room.data({"email": "ada@example.com", "full_name": "Ada Lovelace"})
    objects: list[Any] = [room.vault, room.run, room.vault.get("EMAIL_1"), room.vault.snapshot(with_values=True)]
    assert not [one for one in objects if "ada" in repr(one).lower() or "ada" in str(one).lower()]


@pytest.mark.parametrize(
    "layout", [{}, {"indent": 2}, {"indent": "\t"}, {"ensure_ascii": False}, {"separators": (",", ":")}]
)
def test_json_in_a_text_keeps_its_layout(layout: dict[str, Any]) -> None:
    room = Room()
    text = json.dumps(
        {"ssn": 123456789, "name": "Zoë", "order_id": "415-555-2671", "rows": [{"email": "z@example.com"}]}, **layout
    )
    shown = room.text(text)
    assert json.loads(shown)["ssn"] == "NATIONAL_ID_1"
    assert json.loads(shown)["order_id"] == "415-555-2671"
    assert shown == json.dumps(json.loads(shown), **layout)

"""What is recognised as personal, and what only looks like it."""

from __future__ import annotations

import itertools
import time

import pytest
from benchmarks.privacy import scores
from hypothesis import given
from hypothesis import strategies as st

from tests.private import Room, value_texts
from toolfold.privacy.folding import Folded
from toolfold.privacy.matches import Match, resolved

ROOM = Room()


def test_the_labelled_set_is_recognised_and_its_look_alikes_are_not() -> None:
    found, values, look_alikes = scores()
    assert values >= 500
    assert look_alikes >= 500
    for kind, score in found.items():
        assert score.recall >= 0.95, (kind, score.examples)
        assert score.precision >= 0.95, (kind, score.examples)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("ada@example.com", "email", "ada@example.com"),
        ("ada@example.com5", "email", "ada@example.com"),
        ("(+44 (0)20 7946 0958)", "phone", "+44 (0)20 7946 0958"),
        ("4111-1111-1111-1111 12/29", "card", "4111-1111-1111-1111"),
        ("GB82 WEST 1234 5698 7654 32", "iban", "GB82 WEST 1234 5698 7654 32"),
        ("078-05-1120", "national_id", "078-05-1120"),
        ("born 1/2/85", "date_of_birth", "1/2/85"),
        ("221B Baker Street", "address", "221B Baker Street"),
        ("00:1a:2B:3c:4D:5e", "mac", "00:1a:2B:3c:4D:5e"),
        ("2001:db8::8a2e:370:7334", "ip", "2001:db8::8a2e:370:7334"),
    ],
)
def test_each_family_has_a_recogniser(text: str, kind: str, value: str) -> None:
    assert ROOM.found(text) == [(value, kind)]


def test_a_private_key_is_one_value_however_many_lines_it_has() -> None:
    body = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"] * 40)
    key = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----"
    assert ROOM.found(f"key:\n{key}\nend") == [(key, "secret")]


# Look-alike characters


@pytest.mark.parametrize(
    "text",
    [
        "ａｄａ＠ｅｘａｍｐｌｅ．ｃｏｍ",  # full width
        "a\u200bd\u2060a@exam\u00adple.com",  # without width
        "аdа@ехаmple.com",  # Cyrillic letters
        "ada\ufe6bexample\uff0ecom",  # other signs
        "٤١١١ ١١١١ ١١١١ ١١١١",  # other digits
        "𝟒𝟏𝟏𝟏𝟏𝟏𝟏𝟏𝟏𝟏𝟏𝟏𝟏𝟏𝟏𝟏",
        "+1\u2011415\u2011555\u20112671",  # dashes
        "+1\u00a0415\u202f555\u20092671",  # spaces
        "GB82 WЕST 1234 5698 7654 32",  # a Cyrillic E
        "\\u0061da\\u0040example.com",  # as JSON writes it
    ],
)
def test_look_alike_characters_hide_nothing_and_come_back_as_they_were(text: str) -> None:
    room = Room()
    shown = room.text(f"see {text} there")
    assert len(room.vault) == 1, shown
    assert shown.startswith("see ")
    assert shown.endswith("_1 there")
    assert room.restore(shown) == f"see {text} there"


@given(st.text(max_size=60))
def test_folding_leads_every_place_back(text: str) -> None:
    folded = Folded(text)
    ends = [folded.original(at, at + 1) for at in range(len(folded.text))]
    assert all(0 <= start < end <= len(text) for start, end in ends)
    # A ligature is one character for two: both lead to it.
    assert all(first <= second and first[1] <= second[1] for first, second in itertools.pairwise(ends))
    if ends:
        assert folded.original(0, len(folded.text)) == (ends[0][0], ends[-1][1])


# Overlaps

spans = st.tuples(st.integers(0, 30), st.integers(1, 12), st.sampled_from(["email", "phone", "mine"])).map(
    lambda span: Match(span[0], span[0] + span[1], span[2])
)


@given(st.lists(spans, max_size=12), st.data())
def test_overlaps_are_resolved_in_one_way(matches: list[Match], data: st.DataObject) -> None:
    kept = resolved(matches)
    assert resolved(data.draw(st.permutations(matches))) == kept
    assert all(first.end <= second.start for first, second in itertools.pairwise(kept))
    assert all(any(one.start < other.end and other.start < one.end for other in kept) for one in matches)


def test_no_part_of_overlapping_values_is_left_over() -> None:
    both = [Match(0, 20, "email"), Match(15, 30, "phone")]
    assert resolved(both) == [Match(0, 30, "email")]


def test_the_longest_of_overlapping_values_wins() -> None:
    assert ROOM.found("4155552671@sms.example.com") == [("4155552671@sms.example.com", "email")]
    assert ROOM.found("DE89 3704 0044 0532 0130 00") == [("DE89 3704 0044 0532 0130 00", "iban")]


# Fields


def test_a_fields_name_says_what_is_in_it() -> None:
    room = Room()
    row = {
        "firstName": "Ada",
        "Last Name": "Lovelace",
        "phone": "5552671",
        "dob": "1815-12-10",
        "address": {"street": "12 St James", "city": "London", "zip": "SW1A"},
        "api_key": "hunter2",
        "emails": ["a@example.com", "n/a"],
        "nothing": None,
        "active": True,
    }
    shown = room.data([row])[0]
    assert shown == {
        "firstName": "PERSON_1",
        "Last Name": "PERSON_2",
        "phone": "PHONE_1",
        "dob": "DATE_OF_BIRTH_1",
        "address": {"street": "ADDRESS_1", "city": "London", "zip": "SW1A"},
        "api_key": "SECRET_1",
        "emails": ["EMAIL_1", "n/a"],
        "nothing": None,
        "active": True,
    }
    assert room.restore(shown) == row


def test_a_name_is_a_persons_beside_something_of_a_person() -> None:
    assert Room().data({"name": "Ada Lovelace", "stars": 5}) == {"name": "Ada Lovelace", "stars": 5}
    assert Room().data({"name": "Ada Lovelace", "email": ""}) == {"name": "PERSON_1", "email": ""}


@pytest.mark.parametrize(
    "field", ["order_id", "orderId", "timestamp", "sku", "created_at", "tracking-number", "version"]
)
def test_numbers_are_left_alone_where_the_field_says_that_they_are_plain(field: str) -> None:
    rows = {field: "415-555-2671", "also": [{field: ["4111111111111111", "1700000000"]}]}
    assert Room().data(rows) == rows
    assert Room().data({field: "ada@example.com"}) == {field: "EMAIL_1"}, "but other values are not"


def test_numbers_are_left_alone_where_the_schema_says_so() -> None:
    from toolfold.definitions import ToolDefinition

    room = Room()
    properties = {"when": {"type": "string", "format": "date-time"}, "who": {"type": "string", "format": "email"}}
    schema = {"type": "object", "properties": {"rows": {"items": {"properties": properties}}}}
    tool = ToolDefinition(server="crm", name="list", output_schema=schema)
    shown = room.run.incoming("crm", tool).data({"rows": [{"when": "415-555-2671", "who": "ada@here"}]})
    assert shown == {"rows": [{"when": "415-555-2671", "who": "EMAIL_1"}]}


def test_what_a_field_taught_is_found_in_any_text_afterwards() -> None:
    room = Room()
    room.data({"full_name": "José Núñez", "ssn": "987-6", "street": "12 Long Row\nUpper Floor"})
    assert room.shown("Ask José Núñez!") == "Ask PERSON_1!"
    assert room.text('{"n": "Ada"}\n') == '{"n": "Ada"}\n'
    assert room.shown('{"n": "Jos\\u00e9 N\\u00fa\\u00f1ez"}') == '{"n": "PERSON_1"}'
    assert room.shown("JOSÉ NÚÑEZ, ssn=987-6") == "PERSON_1, ssn=NATIONAL_ID_1"
    assert "Long" not in room.shown("at 12 Long Row\nUpper Floor")
    assert room.shown("Josés Núñezz") == "Josés Núñezz"


# The person's own


def test_own_patterns_words_fields_and_recognisers() -> None:
    class Shouting:
        def find(self, text: str) -> list[Match]:
            return (
                [Match(text.index("SECRETPLAN"), text.index("SECRETPLAN") + 10, "secret")]
                if "SECRETPLAN" in text
                else []
            )

    room = Room(
        Shouting(),
        patterns={"employee": r"EMP-[0-9]{6}"},
        words={"project": ("Blue Bird", "falcon")},
        fields={"customerRef": "person", "zip": "ignore"},
        ignore=("ip",),
    )
    text = "EMP-123456 works on blue bird and Falcon (not falconry) from 192.168.7.31, SECRETPLAN"
    assert room.text(text) == "EMPLOYEE_1 works on PROJECT_1 and PROJECT_2 (not falconry) from 192.168.7.31, SECRET_1"
    assert room.data({"customer_ref": "C. Babbage", "zip": "415-555-2671"}) == {
        "customer_ref": "PERSON_1",
        "zip": "415-555-2671",
    }


@given(st.lists(value_texts(), max_size=5), st.text(max_size=30))
def test_scanning_is_the_same_in_one_piece_and_in_many(values: list[str], filler: str) -> None:
    """What stands in a long text, beyond the border of a slice, is found as well."""
    from toolfold.privacy import tokeniser

    text = filler.join(f"\n{value} ." for value in values)
    whole = Room().text(text)
    before = tokeniser.SLICE, tokeniser.OVERLAP
    try:
        tokeniser.SLICE, tokeniser.OVERLAP = 16, 200
        assert Room().run.incoming("crm", None).json_text(text) == whole
    finally:
        tokeniser.SLICE, tokeniser.OVERLAP = before


@pytest.mark.parametrize(
    "unit", ["1", "a", "@", "a@", "1 ", "1-", "A", "(", "://", "key=", "12 Aa ", "\\u0031", "-----BEGIN "]
)
def test_no_text_takes_long(unit: str) -> None:
    """Twice the text takes about twice the time, and never many times: nothing is tried over and over."""

    def seconds(size: int) -> float:
        text = (unit * (size // len(unit) + 1))[:size]
        begun = time.process_time()
        Room(memory=10**9, values=1_000_000).run.incoming("crm", None).json_text(text)
        return time.process_time() - begun

    small, large = min(seconds(10_000) for _ in range(3)), min(seconds(80_000) for _ in range(2))
    assert large < 24 * small + 0.2

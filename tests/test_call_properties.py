"""Properties of calls and results that hold for any arguments and any text."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from toolfold.codegen.tree_runtime import Parameters
from toolfold.sandbox.guest.toolfold_guest import already_parsed
from toolfold.sandbox.guest.toolfold_guest.results import parse_text

TEXTS = st.text(st.characters(), max_size=12) | st.sampled_from(
    ["None", "it's", 'say "x"', "\\", "(,)", "'", '"', "\x00"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
PLAIN = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4) | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=12,
)


def as_json(value: Any) -> Any:
    """What JSON makes of it: tuples become lists."""
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return value


@settings(max_examples=400)
@given(st.lists(PLAIN, max_size=4) | st.dictionaries(TEXTS, PLAIN, max_size=4))
def test_the_repr_of_plain_data_is_read_as_that_data(value: Any) -> None:
    assert parse_text(repr(value)) == as_json(value)


@settings(max_examples=400)
@given(st.text(max_size=30) | st.text("[]{}()',:\"\\ NoneTru1.-", max_size=30))
def test_any_text_is_itself_or_the_data_that_it_spells(text: str) -> None:
    value = parse_text(text)
    assert value is text or isinstance(value, list | dict) or (value is None and text.strip() == "null")
    if isinstance(value, list | dict):
        assert parse_text(json.dumps(value)) == value


@given(st.text(max_size=20) | st.binary(max_size=20) | st.tuples() | st.sets(st.integers()) | PLAIN)
def test_json_loads_differs_from_the_original_only_for_plain_data(value: Any) -> None:
    def outcome(function: Callable[[Any], Any]) -> Any:
        try:
            return function(value)
        except (TypeError, ValueError) as error:
            return type(error), str(error)

    if isinstance(value, dict | list | int | float) or value is None:
        assert already_parsed.loads(value) is value
    else:
        assert outcome(already_parsed.loads) == outcome(json.loads)


NAMES = ("a", "b", "c", "d")


@given(
    required=st.integers(0, 4),
    others=st.booleans(),
    args=st.lists(st.integers() | st.text(max_size=2), max_size=6),
    kwargs=st.dictionaries(st.sampled_from([*NAMES, "e"]), st.integers(), max_size=5),
)
def test_arguments_are_bound_as_python_binds_them(
    required: int, others: bool, args: list[Any], kwargs: dict[str, Any]
) -> None:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    absent = inspect.Parameter.empty
    parameters = [
        inspect.Parameter(name, kind, default=absent if number < required else ...) for number, name in enumerate(NAMES)
    ]
    if others:
        parameters.append(inspect.Parameter("others", inspect.Parameter.VAR_KEYWORD))
    ours = Parameters(NAMES, NAMES[:required], others, {}, lambda _: "no")
    try:
        bound = inspect.Signature(parameters).bind(*args, **kwargs).arguments
    except TypeError:
        bound = None
    try:
        filled = ours.fill(tuple(args), kwargs)
    except TypeError:
        filled = None
    if bound is not None:
        further = bound.pop("others", {})
        bound = {**bound, **further}
    assert filled == bound

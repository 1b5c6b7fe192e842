"""What may stand in the query of a request, and in the body of a run. The OpenAPI document is generated from these."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request

from toolfold.gateway.rest.problems import ApiError

_Query = TypeVar("_Query", bound=Struct)

Detail = Annotated[
    Literal["name_only", "with_description", "full"],
    Meta(description="How much to say of each: each level adds to the one before."),
]
Caller = Annotated[
    str, Meta(description="Whose. Only the owner may name another caller.", min_length=1, max_length=200)
]
Time = Annotated[float, Meta(description="In seconds since 1970.", ge=0, le=1e11)]
Word = Annotated[str, Meta(min_length=1, max_length=500)]
Flag = Annotated[bool, Meta(description="Only those that failed.")]


class Nothing(Struct, kw_only=True, forbid_unknown_fields=True):
    """No parameters."""


class SearchQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    query: Annotated[
        str, Meta(description="What the tool should do; empty: an overview of the servers.", max_length=10_000)
    ] = ""
    detail_level: Detail = "with_description"
    limit: Annotated[int, Meta(description="How many hits; by default what fits 500 tokens.", ge=1, le=200)] | None = (
        None
    )


class ToolsQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    server: Annotated[Word, Meta(description="Only the tools of this server.")] | None = None
    detail_level: Detail = "name_only"
    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    offset: Annotated[int, Meta(ge=0, le=10_000_000, description="The `next` of the page before.")] = 0


class RunsQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    caller: Caller | None = None
    session: Word | None = None
    failed: Flag = False
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    before: (
        Annotated[
            str,
            Meta(
                description="The `next` of the page before.",
                pattern=r"^[0-9]{1,11}(\.[0-9]{1,9})?-[0-9a-f]{1,32}$",
                max_length=60,
            ),
        ]
        | None
    ) = None


class SessionsQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    caller: Caller | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class CallerQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    caller: Caller | None = None


class StatsQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    caller: Caller | None = None
    since: (
        Annotated[
            str, Meta(description="A day of UTC, such as `2026-11-16`.", pattern="^20[0-9]{2}-[0-9]{2}-[0-9]{2}$")
        ]
        | None
    ) = None


class FilesQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="A folder of the workspace; empty: all of it.", max_length=4000)] = ""
    caller: Caller | None = None


class FileQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="A file of the workspace.", min_length=1, max_length=4000)]
    caller: Caller | None = None


class AuditQuery(Struct, kw_only=True, forbid_unknown_fields=True):
    caller: Caller | None = None
    session: Word | None = None
    run: Word | None = None
    target: Annotated[Word, Meta(description="A pattern of calls, such as `github.*`.")] | None = None
    decision: Literal["allow", "ask", "deny"] | None = None
    failed: Flag = False
    since: Time | None = None
    until: Time | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    before: Annotated[int, Meta(ge=0, le=2**62, description="The `next` of the page before.")] | None = None


class RunRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A program to run."""

    code: Annotated[str, Meta(description="Python.", max_length=2_000_000)]
    session: (
        Annotated[
            str,
            Meta(
                description="Its variables and files are there for the caller's next run; without one, or with `new`, "
                "nothing is kept.",
                max_length=200,
            ),
        ]
        | None
    ) = None
    timeout: (
        Annotated[
            float,
            Meta(gt=0, le=86_400, description="Seconds; not more than `sandbox.timeout` in the gateway's settings."),
        ]
        | None
    ) = None
    stream: Annotated[
        bool, Meta(description="Answer with events, as for a request that accepts `text/event-stream`.")
    ] = False
    context: (
        Annotated[
            dict[str, str],
            Meta(description="Values for the run, as in `Toolfold-Context`; only from host applications."),
        ]
        | None
    ) = None


@cache
def properties(kind: type[Struct]) -> dict[str, dict[str, Any]]:
    """The JSON Schema of each parameter; one that may be left out is not null in a query, so null is not in it."""
    [found] = msgspec.json.schema_components([kind])[1].values()
    result: dict[str, dict[str, Any]] = {}
    for name, schema in found["properties"].items():
        choices = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
        one = dict(choices[0])
        if one.get("default") is None:
            one.pop("default", None)
        if "enum" in one:
            one["type"] = "string"
            one["enum"] = [each for each in one["enum"] if each is not None]
        result[name] = one
    return result


def query(request: Request, kind: type[_Query]) -> _Query:
    """The parameters of a request. ApiError 400 for one that is unknown, repeated, or not what it must be."""
    known = properties(kind)
    values: dict[str, Any] = {}
    for name, text in request.query_params.multi_items():
        if name not in known:
            hint = f"There are: {', '.join(known)}." if known else "There are none."
            raise _invalid(f"unknown parameter {name[:60]!r}", hint)
        if name in values:
            raise _invalid(f"the parameter {name!r} is given twice")
        values[name] = _value(name, text, known[name])
    return converted(values, kind, 400)


def converted(values: Mapping[str, Any], kind: type[_Query], status: int) -> _Query:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise ApiError(status, "invalid_request", f"{str(error).replace('$.', '')}.") from None


def _value(name: str, text: str, schema: dict[str, Any]) -> Any:
    match schema.get("type"):
        case "integer" if re.fullmatch(r"-?[0-9]{1,19}", text):
            return int(text)
        case "number" if re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,3})?", text):
            number = float(text)
            if math.isfinite(number):
                return number
        case "boolean" if text in ("true", "false"):
            return text == "true"
        case "string":
            return text
        case _:
            pass
    raise _invalid(f"the parameter {name!r} must be {_KINDS[schema['type']]}, not {text[:60]!r}")


_KINDS = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}


def _invalid(message: str, hint: str = "") -> ApiError:
    return ApiError(400, "invalid_request", f"{message[:1].upper()}{message[1:]}.", hint)

"""The OpenAPI document, made from the table of endpoints and the shapes that they answer with."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct

from toolfold import __version__
from toolfold.gateway.rest.answers import NAMES, RunAnswer
from toolfold.gateway.rest.endpoints import Endpoint
from toolfold.gateway.rest.parameters import RunRequest, properties
from toolfold.gateway.rest.problems import Failure

_REF = "#/components/schemas/{name}"
_STREAM = (
    "With `stream: true`, or for a request that accepts `text/event-stream`, the answer is a stream of events: "
    "`output`, `call`, `progress`, `question`, and at the end `finished` with the result, or `error`. A client that "
    "leaves ends its program. A call that needs a person's approval waits for it; the person is asked on the gateway's "
    "machine."
)


class Alive(Struct, kw_only=True):
    """The process answers."""

    alive: bool


class Ready(Struct, kw_only=True, omit_defaults=True):
    """Whether programs can run now. What follows is told to callers with a token only."""

    ready: bool
    sandbox: str = ""
    """The backend that programs run in, or why there is none."""
    servers: dict[str, int] = {}
    """How many are in each state. Servers that fail do not make a gateway unready."""
    audit: str = ""
    """Why the audit log cannot be written, so that nothing is done."""


def document(table: Sequence[Endpoint], longest_run: float) -> dict[str, Any]:
    """`longest_run` is in seconds."""
    answers = [each.answers for each in table if issubclass(each.answers, Struct)]
    kinds = list(dict.fromkeys([*answers, *NAMES, RunRequest, RunAnswer, Failure, Alive, Ready]))
    references, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    schemas = dict(zip(kinds, references, strict=True))
    for each in components["RunRequest"]["properties"]["timeout"]["anyOf"]:
        each.update({"maximum": longest_run} if each["type"] == "number" else {})
    paths: dict[str, Any] = {
        f"/api/v1{each.path}": {"get": _reading(each, schemas)} for each in sorted(table, key=lambda each: each.path)
    }
    paths["/api/v1/run"] = {"post": _running(schemas)}
    paths["/api/v1/openapi.json"] = {
        "get": {
            "summary": "This document",
            "operationId": "openapi",
            "responses": {"200": _json("OpenAPI 3.1", {"type": "object"}), **_failures(schemas, 400, 401, 403)},
        }
    }
    paths["/healthz"] = {"get": _health("Whether the process lives", "healthz", schemas[Alive], None)}
    paths["/readyz"] = {"get": _health("Whether programs can run", "readyz", schemas[Ready], schemas[Ready])}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Toolfold",
            "version": __version__,
            "description": "The same tools, sessions and rules as over MCP, for programs that speak plain HTTP.",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _reading(endpoint: Endpoint, schemas: dict[Any, Any]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in endpoint.names
    ]
    required = {field.name for field in msgspec.structs.fields(endpoint.query) if field.required}
    for name, schema in properties(endpoint.query).items():
        described = {"description": schema["description"]} if "description" in schema else {}
        shown = {key: value for key, value in schema.items() if key != "description"}
        parameters.append({"name": name, "in": "query", "required": name in required, **described, "schema": shown})
    if issubclass(endpoint.answers, Struct):
        answer = _json("The answer", schemas[endpoint.answers])
    else:
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        answer = {"description": "The bytes", "content": content}
    failures = [400, 401, 403, 404, *([413] if endpoint.answers is bytes else []), 503]
    words = "_".join(part.strip("{}") for part in endpoint.parts)
    return {
        "summary": endpoint.summary,
        **({"description": endpoint.description} if endpoint.description else {}),
        "operationId": f"read_{words}",
        "parameters": parameters,
        "responses": {"200": answer, **_failures(schemas, *failures)},
    }


def _running(schemas: dict[Any, Any]) -> dict[str, Any]:
    ended = _json("How the run ended; a program that failed is an answer as well", schemas[RunAnswer])
    ended["content"]["text/event-stream"] = {"schema": _one_event(schemas)}
    return {
        "summary": "Run a program",
        "description": _STREAM,
        "operationId": "run",
        "requestBody": {"required": True, "content": {"application/json": {"schema": schemas[RunRequest]}}},
        "responses": {"200": ended, **_failures(schemas, 400, 401, 403, 408, 413, 415, 422, 429, 503)},
    }


def _one_event(schemas: dict[Any, Any]) -> dict[str, Any]:
    def event(name: str, data: Any) -> dict[str, Any]:
        content = {"type": "string", "contentMediaType": "application/json", "contentSchema": data}
        fields = {"event": {"const": name}, "data": content}
        return {"type": "object", "properties": fields, "required": ["event", "data"]}

    choices = [event(name, schemas[kind]) for kind, name in NAMES.items()]
    return {"description": "One event of the stream.", "oneOf": [*choices, event("error", schemas[Failure])]}


def _health(summary: str, name: str, schema: Any, failing: Any) -> dict[str, Any]:
    responses = {"200": _json("Yes", schema)}
    if failing is not None:
        responses["503"] = _json("Not now", failing)
    return {"summary": summary, "operationId": name, "security": [], "responses": responses}


def _failures(schemas: dict[Any, Any], *statuses: int) -> dict[str, Any]:
    return {str(status): _json(HTTPStatus(status).phrase, schemas[Failure]) for status in statuses}


def _json(description: str, schema: Any) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}

"""What the API answers when it cannot do what was asked: one shape for every error."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from starlette.responses import Response

from toolfold.errors import ToolfoldError

_STATUS = {
    "invalid_request": 400,
    "invalid_arguments": 400,
    "forbidden": 403,
    "disabled": 403,
    "not_found": 404,
    "skill": 404,
    "too_large": 413,
    "sandbox_unavailable": 503,
    "audit": 503,
    "closed": 503,
}
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Problem(msgspec.Struct, kw_only=True):
    code: str
    """Stable and for machines."""
    message: str
    hint: str = ""
    """What to do next."""


class Failure(msgspec.Struct, kw_only=True):
    """Why there is no answer."""

    error: Problem


class ApiError(Exception):
    """Ends a request with this status."""

    def __init__(self, status: int, code: str, message: str, hint: str = "", **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.failure = Failure(error=Problem(code=code, message=message, hint=hint))
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    @classmethod
    def of(cls, error: ToolfoldError) -> ApiError:
        status = _STATUS.get(error.code, 500)
        headers = {"Retry_After": "5"} if status == 503 else {}
        return cls(status, error.code, error.message, error.hint, **headers)

    def response(self) -> Response:
        return json_response(self.failure, self.status, self.headers)


def encoded(data: Any) -> bytes:
    """As JSON; characters that UTF-8 cannot hold are escaped."""
    try:
        return msgspec.json.encode(data)
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError):
        return json.dumps(msgspec.to_builtins(data), default=str).encode()


def json_response(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encoded(data), status, HEADERS | (headers or {}), media_type="application/json")

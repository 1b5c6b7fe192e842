"""`json.loads(await tool(...))` gives the data, although the result has been parsed already.

Programs parse what a tool's description calls a JSON string. Here the result arrives parsed, so `json.loads` returns
plain data as it is; so does `ast.literal_eval`, for tools that answer with Python's `repr`. Text is parsed as ever.
"""

from __future__ import annotations

import ast
import functools
import json
from typing import Any, cast

_PLAIN = (dict, list, int, float, type(None))
_loads = json.loads
_decode = json.JSONDecoder().decode
_literal_eval = ast.literal_eval


def install() -> None:
    """Replace both functions for this process."""
    json.loads = loads
    ast.literal_eval = literal_eval


@functools.wraps(_loads)
def loads(s: Any, **options: Any) -> Any:
    if options or type(s) is not str:
        if isinstance(s, _PLAIN):
            # A hook is to see every object, so these are made anew.
            return _loads(json.dumps(s), **options) if options else cast("Any", s)
        return _loads(s, **options)
    try:
        return _decode(s)
    except ValueError:
        return _loads(s)  # whose error it is


@functools.wraps(_literal_eval)
def literal_eval(node_or_string: Any) -> Any:
    return cast("Any", node_or_string) if isinstance(node_or_string, _PLAIN) else _literal_eval(node_or_string)

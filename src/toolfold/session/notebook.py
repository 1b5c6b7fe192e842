"""A session's transcript as a document: a Jupyter notebook (nbformat 4.5), or Markdown."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from toolfold.session.transcript import CallNote, Entry

FORMATS = ("ipynb", "md")
_ESCAPES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def exported(title: str, entries: Iterable[Entry], form: str) -> str:
    """The whole document."""
    return _ipynb(title, entries) if form == "ipynb" else _markdown(title, entries)


def when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _ipynb(title: str, entries: Iterable[Entry]) -> str:
    cells: list[dict[str, Any]] = [_cell("markdown", "title", f"# Session {title}")]
    for number, entry in enumerate(entries, 1):
        lines = [f"{when(entry.time)} · {entry.caller} · {entry.ms:.0f} ms", *map(_call_line, entry.calls)]
        cells.append(_cell("markdown", f"about-{number}", "\n".join(lines)))
        outputs = _outputs(entry)
        code = _cell("code", f"run-{number}", entry.code)
        cells.append({**code, "execution_count": number, "outputs": outputs})
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": python, "language_info": {"name": "python"}}
    document = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _cell(kind: str, name: str, source: str) -> dict[str, Any]:
    return {"cell_type": kind, "id": name, "metadata": {}, "source": _clean(source).splitlines(keepends=True)}


def _outputs(entry: Entry) -> list[dict[str, Any]]:
    outputs: list[dict[str, Any]] = []
    if entry.output:
        text = _clean(entry.output).splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    for image in entry.images:
        data = {image.mime_type: base64.b64encode(image.data).decode()}
        outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
    if entry.error:
        lines = _clean(entry.error).splitlines()
        name, _, value = lines[-1].partition(": ")
        outputs.append({"output_type": "error", "ename": name, "evalue": value, "traceback": lines})
    return outputs


def _markdown(title: str, entries: Iterable[Entry]) -> str:
    parts = [f"# Session {title}\n"]
    for number, entry in enumerate(entries, 1):
        parts.append(f"## Run {number}\n\n{when(entry.time)} · {entry.caller} · {entry.ms:.0f} ms\n")
        parts.append(_fenced(entry.code, "python"))
        if entry.calls:
            parts.append("\n".join(f"- {_call_line(call)}" for call in entry.calls) + "\n")
        if entry.output:
            parts.append(_fenced(entry.output, "text"))
        for image in entry.images:
            data = base64.b64encode(image.data).decode()
            parts.append(f"![{image.name or 'image'}](data:{image.mime_type};base64,{data})\n")
        if entry.error:
            parts.append(_fenced(entry.error, "text"))
    return "\n".join(parts)


def _fenced(text: str, language: str) -> str:
    """A fence that is longer than any in the text."""
    longest = max((len(found) for found in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{_clean(text).rstrip()}\n{fence}\n"


def _call_line(call: CallNote) -> str:
    outcome = "" if call.ok else f": {' '.join(_clean(call.error).split())[:200]}" if call.error else ": not answered"
    return f"`{_clean(call.target)}` {call.ms:.0f} ms{outcome}"


def _clean(text: str) -> str:
    """Without what a terminal or a viewer would act on."""
    return _ESCAPES.sub(lambda found: f"\\x{ord(found[0]):02x}", text.replace("\r\n", "\n"))

"""What a program asks of the catalog and never reads must not pile up in the host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.hostile.channel import Speech
from tests.hostile.memory import peak, reset_peak
from toolfold import Toolfold

pytestmark = pytest.mark.anyio

_HOST_MAY_GROW = 250_000_000


@pytest.mark.parametrize(
    "request_",
    [
        '{"t": "search", "query": "", "detail": "full", "limit": None}',
        '{"t": "call_named", "name": "no such tool", "arguments": {}}',
    ],
    ids=["searches", "unknown tools"],
)
async def test_answers_that_are_not_read_are_not_made(runtime_dir: Path, tmp_path: Path, request_: str) -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string", "description": "x" * 15_000}}}
    tools = [{"name": f"tool_{number}", "description": "Does it.", "inputSchema": schema} for number in range(1000)]
    catalog = tmp_path / "catalog"
    catalog.mkdir()
    (catalog / "many.json").write_text(json.dumps({"server": "many", "tools": tools}))
    async with Toolfold.open(
        {"servers": {}, "sandbox": {"pool": 1}}, data_dir=runtime_dir, catalog_dirs=(catalog,)
    ) as fold:
        # In a session, whose sandbox is there for the second run: only the flood counts against its time.
        everything = "len(__import__('toolfold').search_tools('', detail='full'))"
        assert (await fold.run(everything, session="s", timeout=100)).value == 1000
        before = reset_peak()
        code = f"""
        REQUEST = {request_}
        for number in range(1, 1500):
            raw(frame({{**REQUEST, "id": number}}))
        """
        result = await fold.run(Speech("flood", "", code, "timeout").program, session="s", timeout=4, check=False)
    assert "stopped after" in str(result.error)
    assert peak() - before < _HOST_MAY_GROW

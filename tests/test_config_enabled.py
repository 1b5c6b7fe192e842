from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolfold.fold import Toolfold

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("config", [{"enabled": False, "servers": {}}, {"mcpCodeExecution": {"enabled": False}}])
async def test_switched_off_means_no_program_runs_and_search_still_does(tmp_path: Path, config: dict[str, Any]) -> None:
    catalog = tmp_path / "catalog"
    catalog.mkdir()
    tool = {"name": "create_issue", "description": "Create an issue.", "inputSchema": {"type": "object"}}
    (catalog / "tracker.json").write_text(json.dumps({"server": "tracker", "tools": [tool]}))
    async with Toolfold.open(config, catalog_dirs=(catalog,), data_dir=tmp_path / "data") as fold:
        result = await fold.run("print('ran')")
        assert not result.success
        assert "enabled" in str(result.error)
        assert "ran" not in result.output
        assert "create_issue" in (await fold.search("create issue")).text

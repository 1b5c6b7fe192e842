from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real catalogs and retrieval tasks, kept beside the project's root."""
    folder = Path(os.environ.get("TOOLFOLD_SHARED", Path(__file__).parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no shared catalogs at {folder} (set TOOLFOLD_SHARED)")
    return folder

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.backends.available import ALL, FULL, candidate
from tests.backends.box import SETTINGS, Box, box_around


async def _box(name: str, data_dir: Path, folder: Path) -> AsyncIterator[Box]:
    found = await candidate(name, data_dir, SETTINGS)
    async with box_around(found.backend, folder) as box:
        yield box


@pytest.fixture(scope="session")
def engine_data(tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path) -> Path:
    """One data directory for all backends: an image is imported once."""
    data = tmp_path_factory.mktemp("backends")
    (data / "runtime").symlink_to(shared_runtime)
    return data


@pytest.fixture(scope="module", params=ALL)
async def box(
    request: pytest.FixtureRequest, engine_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Box]:
    """A sandbox in every backend, one after another; a module's tests share it."""
    async for made in _box(request.param, engine_data, tmp_path_factory.mktemp(request.param)):
        yield made


@pytest.fixture(scope="module", params=FULL)
async def python(
    request: pytest.FixtureRequest, engine_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Box]:
    """The same for what only all of Python can do: every backend but Monty."""
    async for made in _box(request.param, engine_data, tmp_path_factory.mktemp(request.param)):
        yield made

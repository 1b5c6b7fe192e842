from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backends.available import FULL
from tests.hostile.arena import Arena
from tests.hostile.baits import Baits
from tests.hostile.resources import LIMITS
from toolfold.config.settings import SandboxSettings


@pytest.fixture(scope="session")
def baits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Baits]:
    base = tmp_path_factory.mktemp("hostile")
    scratch = base / "scratch"
    scratch.mkdir()
    with Baits(base / "baits", scratch=scratch) as laid:
        yield laid


@pytest.fixture(scope="session", params=FULL)
def arena(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """A backend that exists here, with small limits. Its folder's name must never be seen from inside."""
    folder: Path = tmp_path_factory.mktemp("data-of-the-host")
    arena = Arena(request.param, folder, SandboxSettings.model_validate({**LIMITS, "pool": 3}))
    arena.open()
    yield arena
    arena.close()

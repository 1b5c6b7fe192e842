"""Signing in to a remote server: the flow, the tokens, what happens when they end, and what is never shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oauth_site import Site, browse, running_site
from tests.upstream_lab import text_of
from toolfold.errors import SignInNeeded
from toolfold.upstream.auth.login import Login
from toolfold.upstream.fleet import Fleet

pytestmark = pytest.mark.anyio


@pytest.fixture
def site() -> Iterator[Site]:
    with running_site() as site:
        yield site


def fleet_of(site: Site, data: Path, **settings: object) -> Fleet:
    return Fleet({"site": site.config(**settings)}, log_dir=data / "logs", auth_dir=data / "auth")


async def greet(fleet: Fleet) -> str:
    return text_of(await fleet.call("site", "greet", {"name": "you"}))


async def sign_in(site: Site, data: Path) -> None:
    await Login("site", site.config(), data).sign_in(browse)


async def test_a_call_says_what_to_run_and_works_after_the_sign_in(site: Site, tmp_path: Path) -> None:
    async with fleet_of(site, tmp_path) as fleet:
        with pytest.raises(SignInNeeded, match="needs a sign-in: run `toolfold auth login site`"):
            await greet(fleet)
        await sign_in(site, tmp_path)
        assert await greet(fleet) == "hello you"
    assert site.issuer.count["registrations"] == 1

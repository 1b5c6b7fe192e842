"""The dashboard: who gets in, what is checked, and that nothing of others becomes markup."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.lab import lab_fold
from toolfold import Toolfold
from toolfold.gateway.dashboard.door import Door
from toolfold.gateway.questions import Questions
from toolfold.telemetry.activity import Activity

pytestmark = pytest.mark.anyio


@dataclass
class Site:
    """A dashboard on its own listener, and a browser's side of it."""

    door: Door
    http: httpx2.AsyncClient
    origin: str

    async def get(self, path: str = "/", **headers: str) -> httpx2.Response:
        return await self.http.get(f"{self.origin}{path}", headers=headers)

    async def post(self, path: str, data: dict[str, Any] | None = None, **headers: str) -> httpx2.Response:
        sent = {"origin": self.origin, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return await self.http.post(f"{self.origin}{path}", data=data or {}, headers=sent)

    async def csrf(self) -> str:
        found = re.search(r'name="csrf" value="([^"]+)"', (await self.get()).text)
        assert found
        return found[1]

    async def link(self) -> str:
        return (await self.door.make_link()).removeprefix(self.origin)


@pytest.fixture(scope="module")
async def fold(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Toolfold]:
    async with lab_fold(tmp_path_factory.mktemp("dashboard"), audit=True) as fold:
        yield fold


@pytest.fixture
async def site(fold: Toolfold) -> AsyncGenerator[Site]:
    """Nobody is signed in yet."""
    async with Door(fold, Questions(), Activity()) as door, httpx2.AsyncClient(timeout=20) as http:
        link = await door.make_link()
        yield Site(door, http, link.partition("/dashboard")[0])


@pytest.fixture
async def inside(site: Site) -> Site:
    """A person is signed in."""
    assert (await site.post(await site.link())).status_code == 303
    return site


async def test_a_link_is_good_once_and_looking_at_it_does_not_use_it(site: Site) -> None:
    link = await site.link()
    for _ in range(3):
        assert "Open the dashboard" in (await site.get(link)).text
    assert (await site.get("/")).status_code == 401
    response = await site.post(link)
    assert response.status_code == 303
    cookie = response.headers["set-cookie"]
    for wanted in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"):
        assert wanted in cookie
    assert "<h1>Overview</h1>" in (await site.get("/")).text
    for method in (site.get, site.post):
        assert (await method(link)).status_code == 410


async def test_signing_out_ends_the_cookie_also_where_it_is_kept(inside: Site) -> None:
    kept = dict(inside.http.cookies)
    assert (await inside.post("/dashboard/sign-out", {"csrf": await inside.csrf()})).status_code == 200
    inside.http.cookies.update(kept)
    assert (await inside.get("/")).status_code == 401


async def test_wrong_links_are_limited(site: Site) -> None:
    link = await site.link()
    seen = [(await site.get(f"/dashboard/sign-in/guess{number}")).status_code for number in range(12)]
    assert seen == [410] * 10 + [429] * 2
    assert (await site.post(link)).status_code == 429


@pytest.mark.parametrize("name", ["localhost.evil.example", "evil.example:{port}", "127.0.0.1"])
async def test_another_host_is_refused(inside: Site, name: str) -> None:
    port = inside.origin.rpartition(":")[2]
    assert (await inside.get("/", host=name.format(port=port))).status_code == 403


async def test_a_form_needs_its_own_origin_and_token(inside: Site) -> None:
    csrf = await inside.csrf()
    path = "/dashboard/sign-out"
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", f"{inside.origin}.evil.example"):
        assert (await inside.post(path, {"csrf": csrf}, origin=origin)).status_code == 403
    for wrong in ("", "x", csrf[:-1]):
        assert (await inside.post(path, {"csrf": wrong})).status_code == 403
    # A page on another port of this machine is the same site for the cookie, but not for us.
    assert (await inside.get("/", **{"sec-fetch-site": "same-site"})).status_code == 401
    assert (await inside.get("/", **{"sec-fetch-site": "same-origin"})).status_code == 200


async def test_every_answer_has_the_strict_headers(inside: Site) -> None:
    for path in ("/", "/dashboard/nothing", "/dashboard/static/dashboard.css", "/dashboard/sign-in/x"):
        headers = (await inside.get(path)).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    assert (await inside.get("/")).headers["cache-control"] == "no-store"


async def test_static_files_are_only_ours(inside: Site) -> None:
    for name in ("..%2fapp.py", "%2e%2e/app.py", "htmx.LICENSE.txt", "x.js", ""):
        assert (await inside.get(f"/dashboard/static/{name}")).status_code == 404

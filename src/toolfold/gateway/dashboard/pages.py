"""What each page shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolfold.gateway.dashboard.render import Rendered, render

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from toolfold.gateway.dashboard.door import Door
    from toolfold.gateway.dashboard.sign_in import Person


class NotFound(Exception):
    """There is nothing at this address; the message says why."""


class Pages:
    def __init__(self, door: Door) -> None:
        self._fold = door.fold
        self._questions = door.questions

    async def get(self, parts: list[str], request: Request, person: Person) -> Rendered | Response:
        match parts:
            case [""] | ["dashboard"]:
                return self._shown("overview", person, servers=self._fold.settings.servers)
            case _:
                raise NotFound("There is nothing at this address.")

    async def post(self, parts: list[str], sent: dict[str, list[str]], person: Person) -> Rendered | Response:
        raise NotFound("There is nothing at this address.")

    def _shown(self, page: str, person: Person, **values: Any) -> Rendered:
        return render(f"{page}.html", page=page, csrf=person.csrf, waiting=len(self._questions), **values)

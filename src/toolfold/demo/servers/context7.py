"""`context7`: documentation of two made-up libraries, as plain text for reading."""

from __future__ import annotations

import re
from typing import Any

from toolfold.demo.servers.hosting import Arguments, DemoServer, DemoTool, Refusal
from toolfold.demo.servers.schema import record, text, whole

_LIBRARIES: dict[str, dict[str, Any]] = {
    "/demo/quillfort": {
        "name": "Quillfort",
        "summary": "Rate limits for asynchronous Python services, with one shared budget for many processes.",
        "version": "3.4.1",
        "topics": {
            "quick start": (
                "Create one limiter at start-up and wrap what is scarce:\n\n"
                '    limiter = Limiter("sqlite:///limits.db", rate="100/minute")\n'
                '    async with limiter.slot("checkout"):\n'
                "        await charge(card)\n\n"
                "A caller that finds no slot waits for `patience` seconds (default 2), then gets `TooBusy`."
            ),
            "sharing": (
                "Processes that open the same store share one budget. SQLite serves one machine; for\n"
                "several give a `postgres://` address. The store is read once per slot: one query more."
            ),
            "testing": (
                "`Limiter.unlimited()` never waits. `limiter.freeze(at)` stops its clock, which makes all\n"
                "waits in a test predictable; `limiter.advance(seconds)` moves it on."
            ),
            "configuration": (
                "`rate` is `N/second`, `N/minute` or `N/hour`. `burst` (default: the rate's N) is how many\n"
                "slots may be taken at once. `patience` is in seconds; 0 means: fail at once."
            ),
        },
    },
    "/demo/papermoth": {
        "name": "Papermoth",
        "summary": "Renders invoices and reports from Markdown templates to PDF, without a browser.",
        "version": "1.9.0",
        "topics": {
            "quick start": 'Call `render("invoice.md", data, to="out.pdf")`. The template sees its keys.',
            "fonts": "Put `.otf` files into `fonts/` beside the template. A missing glyph is an error.",
            "tables": "A table that does not fit on the page goes on on the next one, with its header.",
        },
    },
}


def _resolve(arguments: Arguments) -> list[dict[str, Any]]:
    wanted = set(re.findall(r"\w+", arguments["library_name"].lower()))
    matches = [
        {
            "library_id": identifier,
            "name": library["name"],
            "description": library["summary"],
            "version": library["version"],
            "topics": list(library["topics"]),
        }
        for identifier, library in _LIBRARIES.items()
        if wanted & set(re.findall(r"\w+", f"{identifier} {library['name']} {library['summary']}".lower()))
    ]
    if not matches:
        names = ", ".join(library["name"] for library in _LIBRARIES.values())
        raise Refusal(f"no library matches {arguments['library_name']!r}; there are {names}")
    return matches


def _docs(arguments: Arguments) -> str:
    identifier, topic = arguments["library_id"], arguments["topic"].lower()
    library = _LIBRARIES.get(identifier)
    if library is None:
        raise Refusal(f"no library {identifier}; call resolve_library_id first")
    sections = {name: body for name, body in library["topics"].items() if topic in name} or library["topics"]
    pages = [f"## {name.capitalize()}\n\n{body}\n" for name, body in sections.items()]
    return f"# {library['name']} {library['version']}\n\n{library['summary']}\n\n" + "\n".join(pages)


def server() -> DemoServer:
    return DemoServer(
        "context7",
        (
            DemoTool(
                name="resolve_library_id",
                title="Find a library",
                description="Find libraries by name or purpose. Returns a list, each with library_id and name.",
                arguments=record({"library_name": text("A name or a few words, for example rate limits", minLength=1)}),
                run=_resolve,
            ),
            DemoTool(
                name="get_library_docs",
                title="Read a library's documentation",
                description="Read a library's current documentation as Markdown, the whole or one topic.",
                arguments=record(
                    {
                        "library_id": text("An id from resolve_library_id, for example /demo/quillfort"),
                        "topic": text("Only the sections whose title contains this", default=""),
                        "tokens": whole("Accepted for compatibility; the pages here are short", minimum=1),
                    },
                    optional=("topic", "tokens"),
                ),
                defaults={"topic": ""},
                run=_docs,
            ),
        ),
    )

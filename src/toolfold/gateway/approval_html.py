"""What the approval page looks like. Every value in it is escaped; it needs no scripts and loads nothing."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.responses import HTMLResponse

from toolfold.schema.text import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolfold.guards.events import Question
    from toolfold.schema.forms import Field, Form

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --go: #1a7f37; --stop: #b3261e; }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1.5rem 1rem; max-width: 42rem; }
h1 { font-size: 1.25rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
p { margin: .25rem 0 1rem; }
code, pre { font: .875rem/1.5 ui-monospace, monospace; }
h1 code { font-size: inherit; }
pre { background: var(--soft); border: 1px solid var(--line); border-radius: .5rem; margin: 0 0 .5rem;
  max-height: 40vh; overflow: auto; overflow-wrap: anywhere; padding: .75rem; white-space: pre-wrap; }
dl { display: grid; gap: .25rem 1rem; grid-template-columns: max-content 1fr; margin: 1rem 0; }
dt { opacity: .7; }
dd { margin: 0; overflow-wrap: anywhere; }
form { display: grid; gap: .5rem; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); margin-top: 1.5rem; }
button { background: none; border: 1px solid var(--go); border-radius: .5rem; color: inherit; cursor: pointer;
  font: inherit; min-height: 2.75rem; padding: .5rem 1rem; }
button[value=no] { border-color: var(--stop); }
label { display: grid; gap: .25rem; grid-column: 1 / -1; }
input, select { font: inherit; min-height: 2.5rem; padding: .25rem .5rem; width: 100%; }
input[type=checkbox] { min-height: 0; width: auto; }
small { opacity: .7; }
[role=alert] { border-left: 4px solid var(--stop); padding-left: .75rem; }
button:hover, button:focus-visible { background: var(--soft); outline: 2px solid currentColor; outline-offset: 1px; }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Not `no-referrer`: with it, browsers hide the origin of a form too.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def page(body: str, status: int = 200) -> HTMLResponse:
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Toolfold</title><style>{_STYLE}</style></head><body><main>{body}</main></body></html>"
    )
    return HTMLResponse(text, status, _HEADERS)


def _message(title: str, text: str) -> str:
    return f"<h1>{title}</h1><p>{text}</p>"


ALLOWED = _message("Allowed", "The program goes on. You can close this page.")
DENIED = _message("Not allowed", "The program was told so. You can close this page.")
GONE = _message(
    "Nothing to decide here", "This was answered already, or the program does not wait any more. A link works once."
)
SENT = _message("Sent", "The server has your answer, and the program goes on. You can close this page.")
DECLINED = _message("Declined", "The server was told that you did not answer. You can close this page.")
NOT_FOUND = _message("Not found", "There is nothing at this address.")
REFUSED = _message("Refused", "This request cannot be answered here. <code>toolfold approve</code> shows what waits.")


def question(
    asked: Question,
    caller: str,
    session: str | None,
    typed: Mapping[str, str] = MappingProxyType({}),
    problem: str = "",
) -> str:
    """The question with a button for each answer. `typed` is what was filled in before, and `problem` what is wrong."""
    # A guard of the embedding program may ask about anything, in its own words.
    name = f"<code>{_text(asked.server)}.{_text(asked.tool)}</code>" if asked.tool else "this"
    times = f"{asked.waiting} calls wait for your answer." if asked.waiting > 1 else "One call waits for your answer."
    lines = [f"{number}. {text}" if asked.waiting > 1 else text for number, text in enumerate(asked.arguments, 1)]
    if asked.waiting > len(lines) > 0:
        lines.append(f"… and {asked.waiting - len(lines)} more calls")
    calls = f"<pre>{escape(chr(10).join(lines) or asked.text)}</pre>"
    facts = {"Server": asked.server, asked.kind.capitalize(): asked.tool} if asked.tool else {}
    if asked.source:
        facts[f"Line {asked.line}"] = asked.source
    facts |= {"Caller": caller} | ({"Session": session} if session else {})
    rows = "".join(f"<dt>{escape(key)}</dt><dd><code>{_text(value)}</code></dd>" for key, value in facts.items())
    # Declining works whatever is filled in.
    buttons = "".join(
        f'<button name="answer" value="{reply}"{" formnovalidate" if reply == "no" else ""}>'
        f"{asked.label(reply)}</button>"
        for reply in asked.replies
    )
    if asked.form is not None:
        wrong = f'<p role="alert">{escape(problem)}</p>' if problem else ""
        return (
            f"<h1>The server <code>{_text(asked.server)}</code> asks you</h1>"
            f"<p>The text in the box is the server’s.</p>{calls}{_link(asked.form)}<dl>{rows}</dl>{wrong}"
            f'<form method="post" autocomplete="off">{inputs(asked.form, typed)}{buttons}</form>'
        )
    return (
        f"<h1>Allow {name}?</h1><p>{times}</p>{calls}<dl>{rows}</dl>"
        f'<form method="post" autocomplete="off">{buttons}</form>'
    )


def inputs(form: Form, typed: Mapping[str, str] = MappingProxyType({})) -> str:
    """A control for each field; `typed` reads what they send."""
    return "".join(_input(f"f{number}", field, typed) for number, field in enumerate(form.fields))


def typed(form: Form, sent: Mapping[str, list[str]]) -> dict[str, str]:
    """What was filled in, by the server's names of the fields."""
    found: dict[str, str] = {}
    for number, field in enumerate(form.fields):
        given = sent.get(f"f{number}", [])
        if field.kind == "boolean":
            found[field.name] = "yes" if given else "no"
        else:
            # Options are sent by their numbers.
            found[field.name] = ",".join(given).replace("\r\n", "\n")
    return found


def _link(form: Form) -> str:
    """A link with the whole address to read. It is of the web, which was checked when the form was read."""
    if not form.url:
        return ""
    host = escape(urlsplit(form.url).hostname or "")
    address = escape(form.url)
    return (
        f"<p>It wants you to open an address of <strong>{host}</strong>. Come back and press Done.</p>"
        f'<p><a href="{address}" target="_blank" rel="noopener noreferrer"><code>{address}</code></a></p>'
    )


def _input(name: str, field: Field, typed: Mapping[str, str]) -> str:
    about = f"<small>{escape(field.description)}</small>" if field.description else ""
    before = typed.get(field.name)
    default = field.default
    needed = " required" if field.required else ""
    if field.kind == "boolean":
        checked = " checked" if (before == "yes" if before is not None else default is True) else ""
        box = f'<input type="checkbox" name="{name}" value="yes"{checked}>'
        return f"<label><span>{box} {escape(field.label)}</span>{about}</label>"
    if field.options:
        chosen = before.split(",") if before is not None else []
        several = field.kind == "choices"
        listed = default if isinstance(default, list) else [default]
        options = "".join(
            f'<option value="{number}"'
            f"{' selected' if (str(number) in chosen if before is not None else option.value in listed) else ''}>"
            f"{escape(option.label)}</option>"
            for number, option in enumerate(field.options, 1)
        )
        none = "" if several else '<option value=""></option>'
        control = f'<select name="{name}"{" multiple" if several else needed}>{none}{options}</select>'
    else:
        value = escape(before if before is not None else "" if default is None else str(default))
        kind = {"number": "number", "integer": "number"}.get(field.kind, _INPUT_TYPES.get(field.format, "text"))
        step = ' step="any"' if field.kind == "number" else ""
        control = f'<input type="{kind}" name="{name}" value="{value}"{step}{needed}>'
    return f"<label><span>{escape(field.label)}{' *' if field.required else ''}</span>{control}{about}</label>"


_INPUT_TYPES = {"email": "email", "uri": "url", "date": "date"}


def _text(text: str) -> str:
    return escape(one_line(text, 300))

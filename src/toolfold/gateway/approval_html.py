"""What the approval page looks like. Every value in it is escaped; it needs no scripts and loads nothing."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse

from toolfold.schema.text import one_line

if TYPE_CHECKING:
    from toolfold.guards.events import Question

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
NOT_FOUND = _message("Not found", "There is nothing at this address.")
REFUSED = _message("Refused", "This request cannot be answered here. <code>toolfold approve</code> shows what waits.")


def question(asked: Question, caller: str, session: str | None) -> str:
    """The question with a button for each answer."""
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
    facts |= {"Caller": caller} | ({"Session": session} if session and not session.startswith("@") else {})
    rows = "".join(f"<dt>{escape(key)}</dt><dd><code>{_text(value)}</code></dd>" for key, value in facts.items())
    buttons = "".join(f'<button name="answer" value="{reply}">{asked.label(reply)}</button>' for reply in asked.replies)
    return (
        f"<h1>Allow {name}?</h1><p>{times}</p>{calls}<dl>{rows}</dl>"
        f'<form method="post" autocomplete="off">{buttons}</form>'
    )


def _text(text: str) -> str:
    return escape(one_line(text, 300))

"""What a request says without saying it: a path is a file, saving to a path writes one, a sum is to be calculated."""

from __future__ import annotations

import re

_EXTENSIONS = (
    "md|txt|csv|tsv|json|jsonl|yaml|yml|toml|xml|html|htm|css|js|ts|tsx|jsx|py|rb|go|rs|java|c|cpp|h|sh|sql|log|ini|cfg|"
    "pdf|doc|docx|xls|xlsx|ppt|pptx|odt|rtf|tex|epub|png|jpg|jpeg|gif|svg|webp|bmp|mp3|wav|ogg|flac|mp4|mov|avi|mkv|zip|"
    "tar|gz|parquet|ipynb"
)
_PATH = rf"(?:(?<![\w:/])(?:~|\.{{1,2}}|[A-Za-z]:)?(?:[/\\][\w.\-]+)+\.\w{{1,5}}\b|\b[\w\-]+\.(?:{_EXTENSIONS})\b)"
_FILE = re.compile(_PATH)
_SAVING = re.compile(r"\b(?:sav|stor|writ|export|output|record|dump|put)\w{0,4}\b[^.;\n]*$", re.IGNORECASE)
_BEFORE = 80
"""Characters before a path in which a verb speaks of it."""
_LINK = re.compile(r"\b(?:https?://|www\.)\S+", re.IGNORECASE)
_SUM = re.compile(r"\d\s*(?:[*+×÷^]|\s[-/]\s)\s*\(?\s*\d")
_ADDRESS = re.compile(r"\b[\w.+-]+@[\w-]+\.\w+")


def spelt_out(query: str) -> str:
    """The request with what it implies written beside it, each hint in the clause it belongs to."""
    query = _LINK.sub(lambda match: f"{match[0]} url webpage", query)
    query = _ADDRESS.sub(lambda match: f"{match[0]} email", query)
    query = _FILE.sub(_filed, query)
    return _SUM.sub(lambda match: f"{match[0]} calculate expression", query)


def _filed(match: re.Match[str]) -> str:
    saved = _SAVING.search(match.string[max(0, match.start() - _BEFORE) : match.start()])
    return f"{match[0]} file write file" if saved else f"{match[0]} file"

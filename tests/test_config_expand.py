from __future__ import annotations

import contextlib
import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolfold.config.edge import Host
from toolfold.config.expand import UnsetError, Variables

_VALUE = "s3cret-${A}-$B"


def variables(bare: bool = False, **changes: Any) -> Variables:
    env = {"A": "one", "EMPTY": "", "RAW": _VALUE, "TOOLFOLD_INPUT_API_KEY": "given", "ProgramFiles(x86)": "C:"}
    host = Host(cwd=Path("/p/app"), home=Path("/h"), env=env, platform="linux")
    inputs = {"api-key": {}, "region": {"default": "eu"}, "asked": {"type": "promptString"}}
    return Variables(dataclasses.replace(host, **changes), inputs, bare)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no variable", "no variable"),
        ("${A}", "one"),
        ("x${A}y${A}z", "xoneyonez"),
        ("${NOPE:-default}", "default"),
        ("${NOPE:-}", ""),
        ("${A:-default}", "one"),
        ("${EMPTY:-default}", "default"),
        ("${EMPTY}", ""),
        ("${NOPE:-${A}}", "one"),
        ("${A:-${NOPE}}", "one"),
        ("${NOPE:-${NADA:-x}}y", "xy"),
        ("${NOPE:-https://a:8080/-x}", "https://a:8080/-x"),
        ("$${A}", "${A}"),
        ("$${A} ${A}", "${A} one"),
        ("${RAW}", _VALUE),
        ("${env:A}", "one"),
        ("${env:NOPE:-d}", "d"),
        ("${env:ProgramFiles(x86)}", "C:"),
        ("${workspaceFolder}/x", "/p/app/x"),
        ("${workspaceFolderBasename}", "app"),
        ("${CLAUDE_PROJECT_DIR:-.}/x", "/p/app/x"),
        ("${userHome}${pathSeparator}x${/}y", "/h/x/y"),
        ("${input:api-key}", "given"),
        ("${input:region}", "eu"),
        ("$A $ ${ ${} $1 ${1} ${x##*/} ${a:1:2} }", "$A $ ${ ${} $1 ${1} ${x##*/} ${a:1:2} }"),
    ],
)
def test_a_reference_becomes_its_value(text: str, expected: str) -> None:
    assert variables().expand(text) == expected


def test_gemini_needs_no_braces() -> None:
    assert variables(bare=True).expand("$A/${A}/$5/$") == "one/one/$5/$"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("${NOPE}", "NOPE"),
        ("${env:NOPE}", "NOPE"),
        ("${X:-${NOPE}}", "NOPE"),
        ("${input:asked}", "TOOLFOLD_INPUT_ASKED"),
        ("${input:un-declared}", "TOOLFOLD_INPUT_UN_DECLARED"),
        ("${command:pick}", "command"),
        ("${file:/nowhere/at/all}", "file"),
    ],
)
def test_a_variable_without_a_value_is_named(text: str, named: str) -> None:
    with pytest.raises(UnsetError, match=re.escape(named)):
        variables().expand(text)


def test_windows_names_are_found_in_any_case() -> None:
    assert variables(env={"PATH": "p"}, platform="win32").expand("${Path}${/}") == "p\\"
    with pytest.raises(UnsetError):
        variables(env={"PATH": "p"}).expand("${Path}")


def test_a_file_gives_its_content_without_the_last_line_break(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    assert variables(home=tmp_path).expand("Bearer ${file:~/token}") == "Bearer abc"


@given(st.text(alphabet="${}:-AX$ \\"))
def test_any_text_expands_or_names_what_it_lacks(text: str) -> None:
    with contextlib.suppress(UnsetError):
        assert isinstance(variables().expand(text), str)


@given(st.text())
def test_text_without_a_dollar_stays(text: str) -> None:
    assert variables(bare=True).expand(text.replace("$", "")) == text.replace("$", "")


def test_deep_nesting_and_long_texts_end() -> None:
    deep = "${X:-" * 50_000 + "}" * 50_000
    assert variables().expand(deep).startswith("${X:-")
    assert variables().expand("${" * 300_000) == "${" * 300_000

"""Programs as models send them: with a fence around them, indented, with a `return` that no function is around."""

from __future__ import annotations

import ast
import asyncio
import inspect
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolfold.sandbox.guest.toolfold_guest import source


def run(code: str) -> tuple[Any, dict[str, Any]]:
    """The program's value and its variables."""
    namespace: dict[str, Any] = {}

    async def pieces() -> Any:
        value = None
        for part in source.compiled(source.parse(code, "program.py")[0], "program.py"):
            value = eval(part, namespace)
            if part.co_flags & inspect.CO_COROUTINE:
                value = await value
        return value

    value = asyncio.run(pieces())
    namespace.pop("__builtins__")
    return value, namespace


@pytest.mark.parametrize(
    "code",
    [
        "x = 1\nx + 1",
        "```python\nx = 1\nx + 1\n```",
        "```\nx = 1\nx + 1\n```",
        "```py\nx = 1\nx + 1\n```\n\n",
        "\n\n```python\n\nx = 1\nx + 1\n\n```\n",
        "```python\nx = 1\nx + 1",
        "x = 1\nx + 1\n```",
        "```python\nx = 1\nx + 1```",
        "~~~\nx = 1\nx + 1\n~~~",
        "~~~python\nx = 1\nx + 1\n~~~",
        "````python\nx = 1\nx + 1\n````",
        "   ```python\n   x = 1\n   x + 1\n   ```",
        "```python\nx = 1\n```\n\n```python\nx + 1\n```",
        "    x = 1\n    x + 1",
        "\tx = 1\n\tx + 1",
        "  \n    x = 1\n\n    x + 1\n",
        " x = 1\nx + 1",
        "x = 1\n    x + 1",
        "\ufeffx = 1\nx + 1",
        "x = 1\r\nx + 1\r\n",
        "```python\r\nx = 1\r\nx + 1\r\n```\r\n",
        "x = 1\rx + 1",
    ],
)
def test_what_surrounds_a_program_is_taken_away(code: str) -> None:
    assert run(code) == (2, {"x": 1})


def test_a_fence_inside_a_string_is_left_alone() -> None:
    value, _ = run("```python\ntext = '''\n```\nhello\n```\n'''\ntext\n```")
    assert value == "\n```\nhello\n```\n"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("```python\nx = 1\n1 / 0\n```", 3),
        ("\n\n    x = 1\n    1 / 0", 4),
        ("x = 1\r\n\r\n1 / 0", 3),
        ("~~~\n\n1 / 0\n~~~", 3),
        ("x = 1\nif x:\n    y = 2\n    return 1 / 0", 4),
        ("\ufeff1 / 0", 1),
    ],
)
def test_every_line_keeps_its_number(code: str, line: int) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run(code)
    assert caught.traceback[-1].lineno + 1 == line


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("return 5", 5),
        ("return", None),
        ("x = 2\nreturn x\nraise ValueError", 2),
        ("if True:\n    return 1\nraise ValueError", 1),
        ("if False:\n    return 1\n2", 2),
        ("for n in range(9):\n    if n == 3:\n        return n\n'none'", 3),
        ("for n in range(2):\n    if n == 3:\n        return n\n'none'", "none"),
        ("try:\n    return 1 / 0\nexcept ZeroDivisionError as error:\n    return str(error)", "division by zero"),
        ("while True:\n    with open('/dev/null') as file:\n        return file.name", "/dev/null"),
        ("match 3:\n    case int() as n:\n        return n", 3),
        ("def f():\n    return 1\nf() + 1", 2),
        ("import asyncio\nif True:\n    return await asyncio.sleep(0, 'slept')", "slept"),
        ("import asyncio\nawait asyncio.sleep(0)\nreturn 'slept'", "slept"),
        ("count: int = 1\nif count:\n    more: int = 2\n    rest: list[int]\n    return count + more", 3),
        ("from __future__ import annotations\nif True:\n    return 1", 1),
        ("x = 1\nif x:\n    def f():\n        global x\n        x += 1\n        return x\n    return f() + x", 4),
        ("if True:\n    rows = [n for n in (1, 2)]\n    return sum(m for m in rows)", 3),
        ("if True:\n    class A:\n        kind = 'a'\n    return A().kind, A.__qualname__", ("a", "A")),
        ("if True:\n    return [y := 1, y]", [1, 1]),
    ],
)
def test_a_top_level_return_ends_the_program_with_its_value(code: str, value: Any) -> None:
    assert run(code)[0] == value


def test_variables_of_a_program_that_returns_stay_for_the_next_one() -> None:
    _, variables = run("a = 1\nif a:\n    b = 2\n    import json\n    for c in (3,):\n        return c")
    assert (variables["a"], variables["b"], variables["c"], variables["json"].__name__) == (1, 2, 3, "json")


@pytest.mark.parametrize(
    "code",
    [
        "x = (",
        "```python\nx = (\n```",
        "if x:\n        y = 1\n    z = 2",
        "x = 1\n        y = (",
        "class A:\n    return 1",
        "def f():\n    await g()",
        "if x:\n    return 1\nyield 2",
        "Some text:\n```python\nx = 1\n```",
        "x = `ls`",
        "lambda: (yield await x)",
    ],
)
def test_what_is_no_program_is_a_syntax_error_before_anything_runs(code: str) -> None:
    with pytest.raises(SyntaxError):
        source.compiled(source.parse(code, "program.py")[0], "program.py")


@pytest.mark.parametrize(
    "code",
    [
        'f"{row["name"]}"',
        'f"{row.get("name")} and more"',
        'f"{"name"}"',
        'f"{", ".join(row)}"',
        "f'it{'s'}'",
        'f"{"\\n".join(row)}"',
        "f\"{'\\n'.join(row)}\"",
    ],
)
def test_an_f_string_of_a_newer_python_runs_or_is_explained(code: str) -> None:
    program = f"row = {{'name': 1}}\n{code}"
    if sys.version_info >= (3, 12):
        run(program)
        return
    with pytest.raises(SyntaxError) as problem:
        run(program)
    assert "use the other kind of quotes and no backslash" in source.hint(problem.value, program)


@pytest.mark.parametrize("code", ['f"{row[}"', 'f"{a b}"', "x = {1: \\ 2", "{1, 2"])
def test_another_mistake_near_braces_is_not_blamed_on_quotes(code: str) -> None:
    with pytest.raises(SyntaxError) as problem:
        run(code)
    assert "quotes" not in source.hint(problem.value, code)


PIECES = [
    "x = 1",
    "    y = 2",
    "```",
    "```python",
    "~~~",
    "return x",
    "if x:",
    "\treturn 5",
    "'''",
    "(",
    "",
    "x",
    "await x",
]


@given(st.lists(st.sampled_from(PIECES), max_size=8), st.sampled_from(["\n", "\r\n", "\r"]))
def test_any_text_is_a_program_or_a_syntax_error(pieces: list[str], newline: str) -> None:
    code = newline.join(pieces)
    problem: SyntaxError | None = None
    try:
        tree, text = source.parse(code, "program.py")
        source.compiled(tree, "program.py")
    except SyntaxError as error:
        problem, text = error, "\n" * max(len(pieces) - 1, 0)
    assert text.count("\n") == max(len(pieces) - 1, 0)
    if problem is not None:
        assert 0 <= (problem.lineno or 0) <= len(pieces) + 1
        assert isinstance(source.hint(problem, code), str)


@given(st.lists(st.sampled_from(PIECES), max_size=6))
def test_a_program_that_python_reads_itself_is_never_changed(pieces: list[str]) -> None:
    code = "\n".join(pieces)
    try:
        expected = ast.dump(ast.parse(code))
    except SyntaxError:
        return
    assert ast.dump(source.parse(code, "program.py")[0]) == expected

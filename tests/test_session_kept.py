"""Plain data that outlives a session's sandbox: `keep` and `kept`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.lab import lab_fold
from toolfold import Toolfold
from toolfold.errors import ValueRefused
from toolfold.sandbox.protocol import SessionHome
from toolfold.session.kept import KeptValues

pytestmark = pytest.mark.anyio

KEEPS = "from toolfold import keep, kept\n"


@pytest.fixture
def fold(lab: Toolfold) -> Toolfold:
    return lab


async def printed(fold: Toolfold, code: str, *, session: str | None = "kept") -> str:
    result = await fold.run(KEEPS + code, session=session)
    assert result.success, result.error
    return result.output.rstrip()


async def failed(fold: Toolfold, code: str, *, session: str | None = "kept") -> str:
    result = await fold.run(KEEPS + code, session=session)
    assert not result.success
    return str(result.error)


async def test_every_kind_of_plain_data_comes_back_as_it_was(fold: Toolfold) -> None:
    values = """
import datetime as dt, uuid, math
from decimal import Decimal
from zoneinfo import ZoneInfo
from toolfold import File
values = [
    None, True, 0, -1.5, 2**63, -(2**200), "text ✓ \\ud800", b"\\x00\\xff", [1, [2]], (1, (2, "x")), {1, 2},
    frozenset("ab"), {"a": 1}, {1: "one", (2, 3): "pair", "$bytes": "not bytes", "ключ": 1}, {"$tuple": [1]},
    Decimal("1.10"), dt.date(2026, 1, 2), dt.time(3, 4), dt.timedelta(days=-1, seconds=5),
    dt.datetime(2026, 1, 2, 3, 4, 5, 6), dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    uuid.UUID(int=7), float("inf"),
]
"""
    check = """
again = kept["values"]
print(again == values, [type(a) is type(b) for a, b in zip(again, values)].count(False))
keep("nan", float("nan")); print(math.isnan(kept["nan"]))
keep("file", File("workspace/x.png", "image/png", 3)); print(kept["file"])
"""
    assert await printed(fold, values + 'keep("values", values)' + check) == (
        "True 0\nTrue\nFile(path='workspace/x.png', mime_type='image/png', size=3)"
    )


async def test_kept_is_a_mapping(fold: Toolfold) -> None:
    code = """
keep("b", 2); kept["a"] = [1]; await keep("c", 3)
print(kept, list(kept), len(kept), "a" in kept, "x" in kept, kept.get("x", 7))
print(kept.pop("c"))
del kept["a"]
print(dict(kept))
"""
    assert await printed(fold, code, session="mapping") == "kept(a, b, c) ['a', 'b', 'c'] 3 True False 7\n3\n{'b': 2}"
    assert "nothing is kept as 'x'; there is: b" in await failed(fold, "kept['x']", session="mapping")
    assert "nothing is kept as 'x'" in await failed(fold, "del kept['x']", session="mapping")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("keep('', 1)", "1 to 200 characters"),
        ("keep('x' * 500, 1)", "1 to 200 characters, not 500"),
        ("keep('x' * 5000, 1)", "1 to 200 characters, not 5,000"),
        ("keep('a\\nb', 1)", "no control characters"),
        ("keep(7, 1)", "must be text, not int"),
        ("keep('x', object())", "takes plain data"),
        ("keep('x', lambda: 1)", "write anything else to a file"),
        ("x = []; x.append(x); keep('x', x)", "inside itself"),
        ("keep('x', 'y' * 3_000_000)", "`sandbox.message`"),
        ("keep('x', 'y' * 1_500_000)", "`sandbox.kept`"),
    ],
)
async def test_what_cannot_be_kept_is_refused_and_the_session_goes_on(small: Toolfold, code: str, told: str) -> None:
    assert told in await failed(small, code, session="refused")
    assert (
        await printed(small, "keep('ok', 1); print(kept['ok'])\nfor n in list(kept): del kept[n]", session="refused")
        == "1"
    )


@pytest.fixture(scope="module")
async def small(tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path) -> AsyncIterator[Toolfold]:
    data = tmp_path_factory.mktemp("small")
    (data / "runtime").symlink_to(shared_runtime)
    async with lab_fold(data, sandbox={"message": "2MB", "kept": "1MB"}) as fold:
        yield fold


def test_a_session_keeps_so_many_values_and_a_killed_writer_leaves_nothing(tmp_path: Path) -> None:
    kept = KeptValues(SessionHome(tmp_path), 1_000_000)
    kept.put("first", 1)
    for number in range(998):
        (tmp_path / "kept" / f"{number}").write_bytes(b'"n"\n1')
    (tmp_path / "kept" / ".half").write_bytes(b'"hal')
    kept.put("last", 1)
    kept.put("first", 2)
    assert not (tmp_path / "kept" / ".half").exists()
    with pytest.raises(ValueRefused, match="at most 1,000 values"):
        kept.put("one more", 1)
    assert kept.get("first") == b"2"


def test_what_cannot_be_read_or_removed_says_why(tmp_path: Path) -> None:
    kept = KeptValues(SessionHome(tmp_path), 10_000)
    kept.put("x", "1")
    (file,) = (tmp_path / "kept").iterdir()
    file.unlink()
    assert not kept.remove("x"), "there is none"
    file.mkdir()
    with pytest.raises(ValueRefused, match=r"'x' could not be removed: Is a directory\."):
        kept.remove("x")
    with pytest.raises(ValueRefused, match=r"'x' could not be read: Is a directory\."):
        kept.get("x")


async def test_names_with_path_tricks_are_only_names(fold: Toolfold) -> None:
    code = "for n in ('../../x', '/etc/passwd', '..', 'a/b', '.'): keep(n, n)\nprint(sorted(kept))"
    assert await printed(fold, code, session="tricks") == "['.', '..', '../../x', '/etc/passwd', 'a/b']"


async def test_a_run_without_a_session_is_told_what_to_do(fold: Toolfold) -> None:
    assert "Run it with `session`" in await failed(fold, "keep('x', 1)", session=None)


async def test_values_survive_the_sandbox_and_a_restart_and_the_next_run_is_told(runtime_dir: Path) -> None:
    async with lab_fold(runtime_dir, session_limit=1) as fold:
        await printed(fold, "rows = [1]\nkeep('rows', rows)", session="s")
        await printed(fold, "1", session="other")
        told = await fold.run(KEEPS + "x = 1\nprint(kept['rows'])", session="s")
        assert told.output == "[1]\n"
        assert told.notice == (
            "Session 's' was restarted (it made space for other sessions): its variables (rows) are gone, "
            "files in workspace/ are kept, and so are kept values (rows)."
        )
    async with lab_fold(runtime_dir) as fold:
        told = await fold.run(KEEPS + "print(kept['rows'])", session="s")
        assert (told.output, "Toolfold was restarted" in told.notice) == ("[1]\n", True)

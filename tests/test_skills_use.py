"""Skills in programs: saved by one, found by search, imported by others of the same caller and by nobody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.office import Office, office
from toolfold.skills.folder import Skill

pytestmark = pytest.mark.anyio

READ_ALL = '''
from servers.office import read_note

async def read_all(paths: list[str]) -> list[str]:
    """Read several notes of the office at once.

    >>> read_all(["a", "b"])
    ['did read_note', 'did read_note']
    """
    return [await read_note(path=path) for path in paths]
'''

WRONG = "def wrong(x: int) -> int:\n    '''W.\n\n    >>> wrong(2)\n    5\n    '''\n    return 2 * x\n"


@pytest.fixture(scope="module")
async def lab(tmp_path_factory: pytest.TempPathFactory, shared_runtime: Path) -> AsyncIterator[Office]:
    data = tmp_path_factory.mktemp("skills") / "data"
    data.mkdir()
    (data / "runtime").symlink_to(shared_runtime)
    async with office(
        data, policy={"rules": [{"match": "office.create_note", "caller": "reader", "do": "deny"}]}
    ) as it:
        yield it


async def printed(lab: Office, code: str, **options: Any) -> str:
    result = await lab.fold.run(code, **options)
    assert result.success, result.error
    return result.output


async def failed(lab: Office, code: str, **options: Any) -> str:
    result = await lab.fold.run(code, **options)
    assert not result.success, result.output
    return str(result.error)


def saving(source: str, *arguments: object) -> str:
    return f"from toolfold import save_skill\nprint(save_skill({', '.join(map(repr, [source, *arguments]))}))"


async def test_a_new_session_finds_a_skill_by_search_and_uses_it(lab: Office) -> None:
    assert await printed(lab, saving(READ_ALL), session="one") == "from skills.read_all import read_all\n"
    found = await lab.fold.search("read several notes at once")
    assert found[0].label == "skills.read_all"
    assert "from skills import read_all  # async read_all(paths: list[str]) -> list[str]" in found.text
    for line in ("from skills import read_all", "from skills.read_all import read_all"):
        assert await printed(lab, f"{line}\nprint(await read_all(['x']))") == "['did read_note']\n"
    whole = (await lab.fold.search("read several notes at once", detail="full")).text
    assert "Read several notes of the office at once." in whole
    assert "['did read_note', 'did read_note']" in whole, "its examples too"
    inside = "from toolfold import search_tools\nhit = search_tools('read several notes', detail='full')[0]\n"
    assert await printed(lab, f"{inside}print(hit.import_, hit.kind, hit.signature)", session="two") == (
        "from skills import read_all skill async read_all(paths: list[str]) -> list[str]\n"
    )


async def test_skills_are_listed_where_servers_are(lab: Office) -> None:
    await printed(lab, saving("def listed_one(a: int) -> int:\n    '''Is listed.'''\n    return a\n"))
    assert '"server:skills" lists them.' in (await lab.fold.search("")).text
    listed = await lab.fold.search("", server="skills")
    assert "skills.listed_one" in listed.text
    assert {hit.kind for hit in await lab.fold.search("is listed", server="skills")} == {"skill"}
    assert (await lab.fold.search("listed_one"))[0].name == "listed_one"


async def test_a_caller_sees_only_its_own_skills_and_the_shared_ones(lab: Office) -> None:
    await printed(lab, saving("def private_thing() -> int:\n    '''Only mine.'''\n    return 1\n"), caller="ann")
    assert await printed(lab, "from skills import private_thing\nprint(private_thing())", caller="ann") == "1\n"
    assert "cannot import name 'private_thing'" in await failed(lab, "from skills import private_thing", caller="bob")
    assert "private_thing" not in (await lab.fold.search("only mine private thing", caller="bob")).text
    assert "private_thing" in (await lab.fold.search("only mine private thing", caller="ann")).text
    shared = Skill(name="for-all", description="For everybody.", source="def for_all() -> int:\n    return 2\n")
    lab.fold.skills.store("shared").save(shared)
    for caller in ("ann", "bob"):
        assert await printed(lab, "from skills import for_all\nprint(for_all())", caller=caller) == "2\n"


async def test_a_function_is_saved_with_the_imports_that_it_uses(lab: Office) -> None:
    code = (
        "import json, math\nfrom servers.office import read_note\nfrom toolfold import save_skill\n"
        "async def note_length(path: str) -> int:\n    '''Length of a note.'''\n"
        "    return math.floor(len(await read_note(path=path)))\n"
        "print(save_skill(note_length, description='How long a note is.', tags=['notes', 'size']))"
    )
    assert await printed(lab, code) == "from skills.note_length import note_length\n"
    saved = lab.fold.skills.store("user").read("note-length")
    assert saved.source.startswith("import math\nfrom servers.office import read_note\n\n\nasync def note_length(")
    assert (saved.description, saved.tags, saved.provenance["author"]) == (
        "How long a note is.",
        ("notes", "size"),
        "local",
    )
    assert "- `path: str`" in saved.body
    assert await printed(lab, "from skills import note_length\nprint(await note_length('x'))") == "13\n"


async def test_a_file_that_a_program_writes_is_saved_with_its_document(lab: Office) -> None:
    code = (
        "open('skills/twice.py', 'w').write('from skills.once import once\\ndef twice(x: int) -> int:\\n"
        '    """Twice."""\\n    return 2 * once(x)\\n\')\n'
        "open('skills/once.py', 'w').write('def once(x: int) -> int:\\n    return x\\n')\n"
        "open('skills/TWICE.md', 'w').write('# Twice\\n\\nHow to double.')\n"
        "open('skills/helper.py', 'w').write('x = 1')\n"
        "open('skills/broken.py', 'w').write('def broken(:')\n"
    )
    note = await printed(lab, code, session="files")
    assert note.count("note:") == 1
    assert (
        "skills/broken.py is kept for this session only. The skill 'broken' was not saved: SyntaxError on line 1"
        in note
    )
    assert await printed(lab, "from skills import twice\nprint(twice(4))") == "8\n"
    assert lab.fold.skills.store("user").read("twice").body == "# Twice\n\nHow to double."
    assert await printed(lab, "from skills.helper import x\nprint(x)", session="files") == "1\n"
    assert "skills.helper" in await failed(lab, "from skills.helper import x")


async def test_saving_again_gives_this_session_and_others_the_new_one(lab: Office) -> None:
    await printed(lab, saving("def counted() -> int:\n    return 1\n"), session="v")
    assert await printed(lab, "from skills import counted\nprint(counted())", session="v") == "1\n"
    await printed(lab, saving("def counted() -> int:\n    return 2\n"), session="v")
    assert await printed(lab, "from skills import counted\nprint(counted())", session="v") == "2\n"
    assert await printed(lab, "from skills import counted\nprint(counted())", session="w") == "2\n"
    store = lab.fold.skills.store("user")
    assert (store.read("counted").version, [old.version for old in store.history("counted")]) == (2, [1])


async def test_use_is_counted_and_what_works_ranks_higher(lab: Office) -> None:
    for name in ("alpha_fetch", "zeta_fetch"):
        await printed(
            lab,
            saving(
                f"def {name}(fail: bool) -> int:\n    '''Fetch frobnicated gadgets.'''\n    return 1 // (not fail)\n"
            ),
        )
    assert [hit.name for hit in await lab.fold.search("fetch frobnicated gadgets", limit=2)] == [
        "alpha_fetch",
        "zeta_fetch",
    ]
    await failed(lab, "from skills import alpha_fetch\nalpha_fetch(True)")
    await printed(lab, "from skills import zeta_fetch\nzeta_fetch(False)", session="used")
    await printed(lab, "zeta_fetch(False)", session="used")
    await printed(lab, "print(1)", session="used")
    uses = lab.fold.skills.store("user").uses()
    assert [(uses[name].count, uses[name].ok) for name in ("alpha-fetch", "zeta-fetch")] == [(1, 0), (2, 2)]
    assert [hit.name for hit in await lab.fold.search("fetch frobnicated gadgets", limit=2)] == [
        "zeta_fetch",
        "alpha_fetch",
    ]


async def test_a_skill_has_the_rights_of_whoever_runs_it(lab: Office) -> None:
    source = (
        "async def write_note(text: str) -> str:\n    '''Write a note.'''\n"
        "    from toolfold import call_mcp_tool\n    return await call_mcp_tool('office.create_note', {'text': text})\n"
    )
    await printed(lab, saving(source))
    lab.fold.skills.store("shared").save(lab.fold.skills.store("user").read("write-note"))
    code = "from skills import write_note\nprint(await write_note('x'))"
    assert await printed(lab, code) == "did create_note\n"
    before = len(lab.done)
    assert "PolicyDenied" in await failed(lab, code, caller="reader")
    assert len(lab.done) == before


async def test_examples_run_with_read_only_tools_alone(lab: Office) -> None:
    before = len(lab.done)
    source = (
        "from servers.office import delete_note\nasync def tidy() -> str:\n    '''Tidy up.\n\n"
        "    >>> await tidy()\n    'did delete_note'\n    '''\n    return await delete_note(id=1)\n"
    )
    error = await failed(lab, saving(source))
    assert "was not saved: its example fails: `await tidy()` raised" in error
    assert "+SKIP" in error
    assert len(lab.done) == before
    assert await printed(lab, saving(source.replace("await tidy()", "await tidy()  # doctest: +SKIP")))


@pytest.mark.parametrize(
    ("source", "arguments", "reason"),
    [
        (WRONG, (), "`wrong(2)` gave 4, not 5"),
        ("def f(:", ("bad_syntax",), "SyntaxError on line 1"),
        ("def f(): pass\ndef g(): pass\n", ("neither",), "must define the function 'neither'; it has f, g"),
        ("def json(): pass\n", (), "that is a module"),
        ("def office(): pass\n", (), "that is the server office"),
        ("def read_note(): pass\n", (), "that is the tool office.read_note"),
        ("def f(): pass\n", ("../../etc/x",), "invalid skill name"),
        ("def f(): pass\n", ("a/b",), "invalid skill name"),
        ("def f(): pass\n", ("x" * 500,), "500 characters"),
        ("def big(): return '" + "x" * 5_000_000 + "'\n", (), "at most 100,000 are allowed"),
        ("from servers.office import nix\ndef lost(): pass\n", (), "servers.office has no tool 'nix'"),
        ("from skills import nobody\ndef needy(): pass\n", (), "imports the skill 'nobody', which is not saved"),
        ("def me():\n    from skills import me\n", (), "in a circle: me → me"),
        ("def d(): pass\n", ("d_d", "x" * 2000), "2,000 characters"),
        ("def d(): pass\n", ("d_d", "x", ["a", "b" * 900]), "invalid tag"),
    ],
)  # fmt: skip
async def test_a_broken_skill_is_refused_with_the_reason(
    lab: Office, source: str, arguments: tuple[object, ...], reason: str
) -> None:
    known = lab.fold.skills.store("user").records().keys()
    error = await failed(lab, saving(source, *arguments), session="refused")
    assert "was not saved:" in error
    assert reason in error
    assert lab.fold.skills.store("user").records().keys() == known


async def test_skills_cannot_import_each_other_in_a_circle(lab: Office) -> None:
    await printed(lab, saving("def circle_a(): pass\n"))
    await printed(lab, saving("from skills import circle_a\ndef circle_b(): pass\n"))
    error = await failed(lab, saving("from skills.circle_b import circle_b\ndef circle_a(): pass\n"))
    assert "in a circle: circle_a → circle_b → circle_a" in error


async def test_a_name_that_is_nearly_one_is_told(lab: Office) -> None:
    await printed(lab, saving("def quarterly_report(): pass\n"))
    near = "there is no skill 'quaterly_report'. Did you mean quarterly_report?"
    assert near in await failed(lab, "from skills.quaterly_report import x")
    assert near in await failed(lab, "from skills import quaterly_report")


async def test_the_same_skill_elsewhere(runtime_dir: Path) -> None:
    """In a bubblewrap of its own, and under a profile that only reads: the skill is the same, the rights are not."""
    source = (
        "from servers.office import create_note, read_note\n\n\n"
        "async def copy_note(path: str) -> str:\n    '''Copy a note.'''\n    text = await read_note(path=path)\n"
        "    return await create_note(text=text)\n"
    )
    strict = {"sandbox": {"pool": 1, "isolation": "strict"}, "policy": {"profile": "open"}}
    code = "from skills import copy_note\nprint(await copy_note('a'))"
    async with office(runtime_dir, **strict) as alone:
        assert (await alone.fold.choice()).backend.name == "bubblewrap"
        await printed(alone, saving(source))
        assert await printed(alone, code) == "did create_note\n"
    async with office(runtime_dir, policy={"profile": "read_only"}) as reader:
        before = len(reader.done)
        assert "create_note" in await failed(reader, code)
        assert [name for name, _ in reader.done[before:]] in ([], ["read_note"])

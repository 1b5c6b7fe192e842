"""A folder that every program of every caller finds as `shared/`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import lab_fold
from toolfold import Toolfold
from toolfold.errors import SandboxUnavailable

pytestmark = pytest.mark.anyio

LOOK = "import os\nprint(sorted(os.listdir('.')))"


async def printed(fold: Toolfold, code: str, *, caller: str = "local", session: str | None = None) -> str:
    result = await fold.run(code, caller=caller, session=session)
    assert result.success, result.error
    return result.output.strip()


@pytest.mark.parametrize("isolation", ["shared", "strict"])
async def test_programs_of_all_callers_meet_in_it(runtime_dir: Path, tmp_path: Path, isolation: str) -> None:
    folder = tmp_path / "project" / "area"
    sandbox = {"shared": str(folder), "isolation": isolation, "disk": "2MB"}
    async with lab_fold(runtime_dir, sandbox=sandbox) as fold:
        await printed(fold, "import os\nos.mkdir('shared/d')\nopen('shared/d/plan', 'w').write('one')", caller="ada")
        (folder / "from outside").write_text("two")
        more = "open('shared/d/plan', 'a').write(' more')\nprint(open('shared/d/plan').read(), os.listdir('shared/d'))"
        assert await printed(fold, f"import os\n{more}", caller="bob", session="s") == "one more ['plan']"
        assert await printed(fold, "print(open('shared/from outside').read())") == "two"
        full = "open('shared/large', 'wb').write(b'x' * 1_900_000)\nopen('workspace/x', 'wb').write(b'x' * 1_900_000)"
        assert "sandbox.disk" in str((await fold.run(full)).error)
        execute = "open('shared/p', 'w').write('#!/x')\nos.chmod('shared/p', 0o755)\nos.execv('shared/p', ['p'])"
        ran = await fold.run(f"import os\n{execute}")
        assert "PermissionError" in str(ran.error)


async def test_without_the_setting_there_is_none(lab: Toolfold) -> None:
    assert await printed(lab, LOOK) == "['servers', 'skills', 'workspace']"


async def test_it_must_be_apart_from_the_data_folder(runtime_dir: Path) -> None:
    for folder in (runtime_dir, runtime_dir.parent, runtime_dir / "sessions"):
        async with lab_fold(runtime_dir, sandbox={"shared": str(folder)}) as fold:
            with pytest.raises(SandboxUnavailable, match="must be apart"):
                await fold.run("1")
    relative = Toolfold.open({"sandbox": {"shared": "here"}}, data_dir=runtime_dir)
    assert relative.settings.sandbox.shared is None
    assert "absolute path" in str(relative.loaded.problems)

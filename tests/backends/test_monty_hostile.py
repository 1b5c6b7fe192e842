"""Programs that try to leave Monty. Each is shown to reach its aim in an ordinary Python, so failing means held."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.backends.available import candidate
from tests.backends.box import SETTINGS, Box, box_around

pytestmark = pytest.mark.anyio

SECRET = "the-secret-of-the-host"
# `PATH` is a file of the host that holds the secret. Printing it, in whatever form, is the aim.
READS = {
    "a path": "print(open(PATH).read())",
    "a path in pieces": "print(open('/' + PATH[1:]).read())",
    "climbing": "print(open('workspace/../../../../../../../../..' + PATH).read())",
    "an object path": "from pathlib import Path\nprint(Path(PATH).read_text())",
    "a resolved path": "from pathlib import Path\nprint((Path('workspace') / '..' / Path(PATH)).resolve().read_text())",
    "bytes": "print(open(PATH, 'rb').read())",
    "a link that the workspace holds": "print(open('workspace/link').read())",
    "a folder that is a link": "print(open('workspace/folder/' + PATH.split('/')[-1]).read())",
    "exec": "exec('print(open(PATH).read())')",
    "eval": "print(eval('open(PATH).read()'))",
    "an import by name": "print(__import__('pathlib').Path(PATH).read_text())",
    "a shell": "import os\nprint(os.popen('cat ' + PATH).read())",
    "a process": "import subprocess\nprint(subprocess.run(['cat', PATH], capture_output=True, text=True).stdout)",
    "C": "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.system(('cat ' + PATH).encode())",
    "a file descriptor": "import os\nf = os.open(PATH, os.O_RDONLY)\nprint(os.read(f, 1000))",
    "the builtins of a function": "def f(): pass\nprint(f.__builtins__['open'](PATH).read())",
    "the globals of a function": "import os\ndef f(): pass\nprint(f.__globals__['os'].popen('cat ' + PATH).read())",
    "every class there is": """
for found in ().__class__.__base__.__subclasses__():
    if found.__name__ == 'FileLoader':
        print(found('x', PATH).get_data(PATH))
""",
    "a format string": """
class Holder:
    def __init__(self): self.text = open(PATH).read()
print('{0.text}'.format(Holder()))
""",
    "the frame of an exception": """
try:
    1/0
except Exception as error:
    frame = error.__traceback__.tb_frame
    print(frame.f_builtins['open'](PATH).read())
""",
    "the code cache": "import linecache\nprint(linecache.getline(PATH, 1))",
    "a module's loader": """
import importlib.util
print(importlib.util.spec_from_file_location('m', PATH).loader.get_data(PATH))
""",
    "the process list": "print(open('/proc/self/root' + PATH).read())",
}
# Programs that would keep an interpreter busy or fill its memory.
HOGS = {
    "a power": "x = 10 ** (10 ** 9)",
    "a text": "x = 'a' * 10 ** 11",
    "a list": "x = sorted(range(10 ** 10))",
    "a format": "x = f'{1:>100000000000}'",
    "a pattern": "import re\nre.match('(a|aa)+$', 'a' * 5000 + 'b')",
    "nesting": "x = []\nfor _ in range(10 ** 7): x = [x]\nprint(x)",
    "digits": "x = str(7 ** 10 ** 7)",
    "brackets": "(" * 100_000,
    "a loop": "while True: pass",
    "calls without an end": "from servers.lab import echo\nwhile True: await echo(text='x')",
}


@pytest.fixture(scope="module")
async def monty(engine_data: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Box]:
    found = await candidate("monty", engine_data, SETTINGS)
    async with box_around(found.backend, tmp_path_factory.mktemp("monty")) as box:
        yield box


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("host") / "secret.py"
    path.write_text(SECRET)
    return path


def _outside(code: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, check=False, timeout=30)


@pytest.mark.parametrize("name", READS)
async def test_a_file_of_the_host_cannot_be_read_by(monty: Box, secret: Path, name: str) -> None:
    (monty.home.workspace / "link").unlink(missing_ok=True)
    (monty.home.workspace / "link").symlink_to(secret)
    (monty.home.workspace / "folder").unlink(missing_ok=True)
    (monty.home.workspace / "folder").symlink_to(secret.parent)
    code = f"PATH = {str(secret)!r}\n{READS[name]}"

    outside = await asyncio.to_thread(_outside, code, monty.home.path)
    assert SECRET.encode() in outside.stdout, f"this would prove nothing: {outside}"

    ran = await monty.run(code)
    assert SECRET not in ran.output + ran.error + ran.shown
    assert ran.error
    assert await monty.printed("print('alive')") == "alive\n"


@pytest.mark.parametrize("name", HOGS)
async def test_an_interpreter_is_not_kept_busy_by(monty: Box, name: str) -> None:
    ran = await monty.run(HOGS[name], timeout=3)
    assert ran.error or ran.failure or name == "a pattern"
    assert await monty.printed("print('alive')") == "alive\n"


@pytest.mark.parametrize(
    "path", ["outside.txt", "/outside.txt", "servers/lab/echo.py", "skills/x.py", "workspace/link"]
)
async def test_nothing_outside_of_the_workspace_can_be_written(monty: Box, secret: Path, path: str) -> None:
    (monty.home.workspace / "link").unlink(missing_ok=True)
    (monty.home.workspace / "link").symlink_to(secret)
    before = {found: found.stat().st_mtime_ns for found in (secret, monty.api / "servers/lab/echo.py")}
    ran = await monty.run(f"with open({path!r}, 'w') as file: file.write('x')")
    assert "PermissionError" in ran.error
    assert {found: found.stat().st_mtime_ns for found in before} == before
    assert not list(monty.home.skills.iterdir())

"""A library in a git repository, by the git program.

The repository is not trusted. It is fetched into a bare copy of ours and read object by object: there is no work tree,
so nothing is checked out, filtered or linked, and no hook, submodule or setting of the repository takes effect.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from toolfold.errors import SkillError
from toolfold.skills.library import INDEX, LONGEST_INDEX, Edit, FolderLibrary, Library

_TIP = "refs/toolfold/tip"
_TIMEOUT = 120.0
_LONGEST_OUTPUT = 100_000_000
_LARGEST_FILE = 1_000_000_000
"""Bytes of a file that git may write, its packs included."""
_ATTEMPTS = 20
_URL = re.compile(r"(https|ssh)://(?:([^/@:]+)@)?([\w.-]+|\[[0-9a-fA-F:]+\])(?::\d+)?/[^\s]+", re.ASCII)
_SCP = re.compile(r"[\w.-]+@[A-Za-z0-9][\w.-]*:[^\s:][^\s]*", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?:://|::)")
_HARDENED = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.symlinks": "false",
    "core.alternateRefsCommand": ":",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "receive.autogc": "false",
    "transfer.fsckObjects": "true",
    "transfer.bundleURI": "false",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "push.recurseSubmodules": "no",
    "push.gpgSign": "false",
    "safe.bareRepository": "all",
}
_OPTIONS = [part for key, value in _HARDENED.items() for part in ("-c", f"{key}={value}")]
_PASSED_ON = re.compile(r"(?!GIT_)[A-Z_]+|https?_proxy|no_proxy|all_proxy", re.ASCII)


def open_library(location: str, base: Path, cache: Path, env: Mapping[str, str]) -> Library:
    """The library at a folder (relative to `base`), a bare repository, or an https or ssh address of one."""
    if not location or location.startswith("-") or not location.isprintable():
        raise SkillError(f"{location!r} is no library.", hint="Name a folder, a bare git repository, or its address.")
    if location.startswith("file://"):
        location = location.removeprefix("file://")
    if (found := _URL.fullmatch(location)) is not None or _SCP.fullmatch(location):
        if found is not None and ":" in (found[2] or ""):
            raise SkillError("The address has a password in it.", hint="Use a credential helper of git, or ssh.")
        return GitLibrary(location, cache, env)
    if _SCHEME.match(location):
        raise SkillError(f"{location!r} is no library: only https:// and ssh:// addresses are used.")
    folder = Path(os.path.realpath(base / Path(location).expanduser()))
    if not folder.is_dir():
        raise SkillError(
            f"There is no library at {folder}.",
            hint=f"Make one: `mkdir {folder}`, or `git init --bare {folder}` to share it by git.",
        )
    if (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir():
        return GitLibrary(str(folder), cache, env)
    return FolderLibrary(folder)


class GitLibrary:
    def __init__(self, location: str, cache: Path, env: Mapping[str, str]) -> None:
        self.location = location
        self.stale = ""
        """Why the copy of the last time is used, where the repository cannot be reached."""
        self.is_local = location.startswith("/")
        self._copy = cache / f"{sha256(location.encode()).hexdigest()[:32]}.git"
        self._env = {name: value for name, value in env.items() if _PASSED_ON.fullmatch(name)}
        self._env |= {
            "LC_ALL": "C",
            "GIT_ALLOW_PROTOCOL": "file:https:ssh",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_ATTR_NOSYSTEM": "1",
        }
        self._tip: str | None = None
        """The commit that is read; empty where the repository has none."""

    def read(self, path: str, limit: int) -> bytes | None:
        if self._tip is None:
            try:
                self._fetch()
            except SkillError as error:
                found = self._git("rev-parse", "--verify", "-q", f"{_TIP}^{{commit}}", check=False)
                if found is None:
                    raise
                self._tip, self.stale = found.decode().strip(), error.message
        return self._blob(path, limit)

    def change(self, edit: Edit, message: str) -> None:
        """By a commit. When somebody else's came first, it is made again on top of theirs."""
        for _ in range(_ATTEMPTS):
            branch = self._fetch()
            files = edit(self._blob(INDEX, LONGEST_INDEX))
            if not files or self._push(self._commit(files, message), branch):
                return
        raise SkillError(f"Cannot publish to {self.location}: others were faster {_ATTEMPTS} times. Try again.")

    def _fetch(self) -> str:
        """Bring the copy up to date; the branch that is read and written."""
        if not (self._copy / "HEAD").is_file():
            self._copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._ask("init", "-q", "--bare", "--template=", str(self._copy))
        listed = self._ask("ls-remote", "--symref", *self._program("upload-pack"), "--", self.location).decode()
        heads = {line.partition("\t")[2] for line in listed.splitlines() if not line.startswith("ref: ")}
        shown = re.search(r"^ref: (refs/heads/\S+)\tHEAD$", listed, re.MULTILINE)
        branch = shown[1] if shown else ""
        if not branch:
            named = [name for name in sorted(heads) if name.startswith("refs/heads/")]
            usual = [name for name in ("refs/heads/main", "refs/heads/master") if name in named]
            branch = [*usual, *named, self._unborn()][0]
        if branch not in heads:
            self._tip = ""
            return branch
        refs = f"+{branch}:{_TIP}"
        self._ask("fetch", "-q", "--depth=1", "--no-tags", *self._program("upload-pack"), "--", self.location, refs)
        self._tip = self._ask("rev-parse", "--verify", f"{_TIP}^{{commit}}").decode().strip()
        return branch

    def _unborn(self) -> str:
        """The branch that an empty repository will have."""
        head = ""
        if self.is_local:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                head = (Path(self.location) / "HEAD").read_text("ascii").strip().removeprefix("ref: ")
        return head if re.fullmatch(r"refs/heads/[\w.-]+", head) else "refs/heads/main"

    def _blob(self, path: str, limit: int) -> bytes | None:
        if not self._tip:
            return None
        size = self._git("cat-file", "-s", f"{self._tip}:{path}", check=False)
        if size is None:
            return None
        if int(size) > limit:
            raise SkillError(f"{path} in {self.location} is larger than the {limit:,} bytes that are allowed.")
        return self._git("cat-file", "blob", f"{self._tip}:{path}", check=False)

    def _commit(self, files: Mapping[str, bytes], message: str) -> str:
        with tempfile.TemporaryDirectory(dir=self._copy) as folder:
            env = {"GIT_INDEX_FILE": f"{folder}/index"}
            self._ask("read-tree", self._tip or "--empty", env=env)
            for path, content in files.items():
                blob = self._ask("hash-object", "-w", "--stdin", content=content).decode().strip()
                self._ask("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", env=env)
            tree = self._ask("write-tree", env=env).decode().strip()
        parent = ("-p", self._tip) if self._tip else ()
        author = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in _AUTHOR.items()}
        return self._ask("commit-tree", tree, *parent, "-m", message, env=author).decode().strip()

    def _push(self, commit: str, branch: str) -> bool:
        """False where somebody else has pushed meanwhile."""
        options = ("--porcelain", "--no-verify", "--recurse-submodules=no", *self._program("receive-pack"))
        done, output, errors = self._run("push", *options, "--", self.location, f"{commit}:{branch}")
        refused = [line for line in output.decode("utf-8", "replace").splitlines() if line.startswith("!")]
        if done and refused and not re.search(r"hook declined|protected|not allowed|denied|prohibited", refused[0]):
            return False
        if done:
            raise SkillError(f"Cannot publish to {self.location}: {refused[0] if refused else _reason(errors)}.")
        return True

    def _program(self, name: str) -> tuple[str, ...]:
        """For a repository on this machine the other side runs here too, as us: without its hooks and commands.

        So it may also belong to another user, which git refuses by itself.
        """
        options = [*_OPTIONS, "-c", f"safe.directory={self.location}"]
        return (f"--{name}=git {shlex.join(options)} {name}",) if self.is_local else ()

    def _ask(self, *arguments: str, content: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
        output = self._git(*arguments, content=content, env=env)
        assert output is not None
        return output

    def _git(
        self, *arguments: str, content: bytes = b"", env: Mapping[str, str] | None = None, check: bool = True
    ) -> bytes | None:
        """What git prints; None where it fails and `check` is off."""
        failed, output, errors = self._run(*arguments, content=content, env=env)
        if failed and check:
            raise SkillError(f"Cannot use the library {self.location}: {_reason(errors)}.")
        return None if failed else output

    def _run(
        self, command: str, *arguments: str, content: bytes = b"", env: Mapping[str, str] | None = None
    ) -> tuple[int, bytes, bytes]:
        place = () if command == "init" else (f"--git-dir={self._copy}",)
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as given:
            given.write(content)
            given.seek(0)
            try:
                process = subprocess.Popen(
                    ["git", *place, *_OPTIONS, command, *arguments],
                    stdin=given,
                    stdout=output,
                    stderr=errors,
                    env={**self._env, **(env or {})},
                    cwd="/",
                    start_new_session=True,
                )
            except FileNotFoundError:
                raise SkillError("git is not installed.", hint="Install it, or use a library in a folder.") from None
            try:
                _limit(process.pid)
                failed = process.wait(_TIMEOUT)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise SkillError(f"{self.location} did not answer within {_TIMEOUT:g} seconds.") from None
                raise
            output.seek(0)
            errors.seek(0)
            printed, complaint = output.read(_LONGEST_OUTPUT + 1), errors.read(20_000)
        if len(printed) > _LONGEST_OUTPUT:
            raise SkillError(f"{self.location} holds more than is allowed.")
        return failed, printed, complaint


_AUTHOR = {"NAME": "toolfold", "EMAIL": "toolfold@localhost"}


def _limit(process: int) -> None:
    with contextlib.suppress(ProcessLookupError, AttributeError):  # it has ended; or this is no Linux
        resource.prlimit(process, resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))


def _reason(errors: bytes) -> str:
    lines = [line for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines or ["git failed"]
    return told[0].removeprefix("fatal: ").removeprefix("error: ")[:500]

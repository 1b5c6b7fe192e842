"""`github`: a few repositories in memory. Files, branches, issues and pull requests hang together."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from toolfold.demo.servers.draw import Draw
from toolfold.demo.servers.hosting import Arguments, DemoServer, DemoTool, Refusal
from toolfold.demo.servers.schema import flag, listing, record, text, whole

_HOST = "https://github.example"
_README = "# payments\n\nTakes payments and writes them to the ledger.\n\nRun `make test` before you push.\n"
_LIMITS = """MAX_IN_FLIGHT = 40


async def checkout(card: str) -> str:
    return await charge(card)
"""
_WORDS = (
    "ledger",
    "webhook",
    "invoice",
    "catalog",
    "search",
    "session",
    "export",
    "metrics",
    "identity",
    "mailer",
)
_KINDS = ("service", "client", "tools", "docs")
_LANGUAGES = ("Python", "TypeScript", "Go", "Rust")


class _Repository:
    def __init__(self, owner: str, name: str, draw: Draw) -> None:
        self.full_name = f"{owner}/{name}"
        self.language = draw.pick(_LANGUAGES)
        self.stars = draw.whole(0, 4000)
        self.description = f"The {name.replace('-', ' ')} of the {owner} team"
        self.branches: dict[str, dict[str, str]] = {
            "main": {"README.md": f"# {name}\n\n{self.description}.\n", "src/limits.py": _LIMITS}
        }
        self.last_number = draw.whole(80, 400)
        self.pulls: dict[str, int] = {}

    def branch(self, name: str) -> dict[str, str]:
        if name not in self.branches:
            raise Refusal(f"no branch {name} in {self.full_name}; there are {', '.join(self.branches)}")
        return self.branches[name]

    def number(self) -> int:
        """The next issue's or pull request's number: they count together."""
        self.last_number += 1
        return self.last_number


class _Host:
    def __init__(self) -> None:
        draw = Draw("repositories")
        names = [f"{word}-{kind}" for word in _WORDS for kind in _KINDS]
        self._repositories = {f"acme/{name}": _Repository("acme", name, draw) for name in ["payments", *names]}
        self._repositories["acme/payments"].branches["main"]["README.md"] = _README

    def _repository(self, arguments: Arguments) -> _Repository:
        full_name = f"{arguments['owner']}/{arguments['repo']}"
        if full_name not in self._repositories:
            raise Refusal(f"404 Not Found: {full_name}; for example acme/payments exists")
        return self._repositories[full_name]

    def search(self, arguments: Arguments) -> dict[str, Any]:
        words = re.findall(r"[\w:.]+", arguments["query"].lower())
        languages = {word.removeprefix("language:") for word in words if word.startswith("language:")}
        terms = [word for word in words if not word.startswith("language:")]
        found = [
            repository
            for repository in self._repositories.values()
            if (not languages or repository.language.lower() in languages)
            and all(term in f"{repository.full_name} {repository.description}".lower() for term in terms)
        ]
        found.sort(key=lambda repository: (-repository.stars, repository.full_name))
        return {
            "total_count": len(found),
            "items": [
                {
                    "full_name": repository.full_name,
                    "description": repository.description,
                    "language": repository.language,
                    "stargazers_count": repository.stars,
                    "html_url": f"{_HOST}/{repository.full_name}",
                }
                for repository in found[: arguments["per_page"]]
            ],
        }

    def read(self, arguments: Arguments) -> dict[str, Any]:
        repository, path = self._repository(arguments), arguments["path"].strip("/")
        files = repository.branch(arguments["branch"])
        if path in files:
            content = files[path]
            return {
                "type": "file",
                "path": path,
                "size": len(content.encode()),
                "sha": _sha(content),
                "content": content,
            }
        inside = [name for name in sorted(files) if not path or name.startswith(f"{path}/")]
        if not inside:
            raise Refusal(f"404 Not Found: {path} in {repository.full_name}@{arguments['branch']}")
        return {"type": "dir", "path": path, "entries": inside}

    def create_issue(self, arguments: Arguments) -> dict[str, Any]:
        repository = self._repository(arguments)
        number = repository.number()
        return {
            "number": number,
            "title": arguments["title"],
            "state": "open",
            "labels": arguments["labels"],
            "assignees": arguments["assignees"],
            "body_length": len(arguments["body"]),
            "html_url": f"{_HOST}/{repository.full_name}/issues/{number}",
        }

    def push(self, arguments: Arguments) -> dict[str, Any]:
        repository, name = self._repository(arguments), arguments["branch"]
        if name not in repository.branches:
            repository.branches[name] = dict(repository.branch("main"))
        files = repository.branches[name]
        files.update((file["path"].strip("/"), file["content"]) for file in arguments["files"])
        state = "".join(f"{path}\0{_sha(content)}\0" for path, content in sorted(files.items()))
        return {
            "branch": name,
            "commit": {"sha": _sha(state + arguments["message"]), "message": arguments["message"]},
            "files": [file["path"] for file in arguments["files"]],
        }

    def create_pull_request(self, arguments: Arguments) -> dict[str, Any]:
        repository, head, base = self._repository(arguments), arguments["head"], arguments["base"]
        before, after = repository.branch(base), repository.branch(head)
        changed = sorted(path for path in after if before.get(path) != after[path])
        if not changed:
            raise Refusal(f"422: no commits between {base} and {head}")
        if f"{base}...{head}" in repository.pulls:
            raise Refusal(f"422: a pull request already exists for {head}: #{repository.pulls[f'{base}...{head}']}")
        number = repository.pulls[f"{base}...{head}"] = repository.number()
        return {
            "number": number,
            "title": arguments["title"],
            "state": "open",
            "draft": arguments["draft"],
            "head": head,
            "base": base,
            "changed_files": changed,
            "html_url": f"{_HOST}/{repository.full_name}/pull/{number}",
        }


def _sha(content: str) -> str:
    return hashlib.sha1(content.encode(), usedforsecurity=False).hexdigest()


def server() -> DemoServer:
    host = _Host()
    place = {"owner": text("The account that owns the repository"), "repo": text("The repository's name")}
    return DemoServer(
        "github",
        (
            DemoTool(
                name="search_repositories",
                title="Search repositories",
                description=(
                    "Search GitHub repositories by words in name and description, most stars first. "
                    "Returns total_count and items, each with full_name, description and stargazers_count."
                ),
                arguments=record(
                    {
                        "query": text("Words, and language:NAME to narrow, for example webhook language:go"),
                        "per_page": whole("How many at most", minimum=1, maximum=100, default=10),
                    },
                    optional=("per_page",),
                ),
                defaults={"per_page": 10},
                open_world=True,
                run=host.search,
            ),
            DemoTool(
                name="get_file_contents",
                title="Read a file or folder",
                description="Read a file of a repository (content, sha), or list the files of a folder (entries).",
                arguments=record(
                    {
                        **place,
                        "path": text("Path from the repository's root; empty for the root"),
                        "branch": text("The branch", default="main"),
                    },
                    optional=("branch",),
                ),
                defaults={"branch": "main"},
                run=host.read,
            ),
            DemoTool(
                name="create_issue",
                title="Create an issue",
                description="Create an issue in a repository. Returns number, title, labels and html_url.",
                arguments=record(
                    {
                        **place,
                        "title": text("The issue's title", minLength=1, maxLength=256),
                        "body": text("The text, in Markdown", maxLength=65_536, default=""),
                        "labels": listing(text(), "Labels to put on it", default=[]),
                        "assignees": listing(text(), "Accounts to assign", default=[]),
                    },
                    optional=("body", "labels", "assignees"),
                ),
                defaults={"body": "", "labels": [], "assignees": []},
                writes=True,
                open_world=True,
                run=host.create_issue,
            ),
            DemoTool(
                name="push_files",
                title="Push files",
                description="Write several files to a branch in one commit; a new branch starts from main.",
                arguments=record(
                    {
                        **place,
                        "branch": text("The branch to write to"),
                        "files": listing(record({"path": text(), "content": text()}), minItems=1),
                        "message": text("The commit's message", minLength=1),
                    }
                ),
                writes=True,
                destructive=True,
                run=host.push,
            ),
            DemoTool(
                name="create_pull_request",
                title="Create a pull request",
                description=(
                    "Open a pull request that asks to merge one branch into another. "
                    "Returns number, title, changed_files and html_url."
                ),
                arguments=record(
                    {
                        **place,
                        "title": text("The pull request's title", minLength=1),
                        "head": text("The branch with the changes"),
                        "base": text("The branch to merge into", default="main"),
                        "body": text("The text, in Markdown", default=""),
                        "draft": flag("Open it as a draft", default=False),
                    },
                    optional=("base", "body", "draft"),
                ),
                defaults={"base": "main", "body": "", "draft": False},
                writes=True,
                open_world=True,
                run=host.create_pull_request,
            ),
        ),
    )

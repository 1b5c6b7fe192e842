"""What is kept of a server's words: its lists, its results, its log, and how its state is told."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.upstream_lab import polite
from toolfold.config.secrets import Redactor
from toolfold.definitions import BlobPart, LinkPart, Listing, PromptArgument, TextPart
from toolfold.errors import UpstreamError
from toolfold.upstream import listing as limits
from toolfold.upstream.listing import ListingReader, schema_flaw
from toolfold.upstream.processes.supervisor import Exit
from toolfold.upstream.results import InvalidResponseError, prompt_messages, resource_parts, tool_result
from toolfold.upstream.roster import LONGEST_PAUSE, SHORTEST_PAUSE, ServerState, State, pause_after
from toolfold.upstream.serverlog import LOG_BYTES, NOTES, ServerLog, readable, without_paths

Page = dict[str, Any]


class Server:
    """Answers list requests from what it is given: pages by method, or an error to raise."""

    def __init__(self, **lists: list[Page] | Exception) -> None:
        self._lists = lists
        self.asked: list[tuple[str, str]] = []

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        name = method.removesuffix("/list").replace("/", "_")
        self.asked.append((name, params.get("cursor", "")))
        pages = self._lists.get(name, [])
        if isinstance(pages, Exception):
            raise pages
        key = "resourceTemplates" if name == "resources_templates" else name
        number = int(params.get("cursor", 0))
        return pages[number] if number < len(pages) else {key: []}

    def read(self, *, claims: str = "tools resources prompts") -> tuple[Listing, list[str]]:
        reader = ListingReader("s", self.request)
        claimed = {name: name in claims for name in ("tools", "resources", "prompts")}
        return asyncio.run(reader.read(instructions="Be gentle.", **claimed)), reader.problems


def _error(code: int) -> Exception:
    from mcp.shared.exceptions import MCPError

    return MCPError(code=code, message="no")


class TestListing:
    def test_everything_of_an_entry_is_kept(self) -> None:
        tool: dict[str, Any] = {
            "name": "t",
            "title": "T",
            "description": "Does it.",
            "inputSchema": {"type": "object"},
            "outputSchema": {"type": "object", "properties": {}},
            "annotations": {"readOnlyHint": True},
        }
        prompt = {"name": "p", "arguments": [{"name": "a", "description": "A.", "required": True}, {"name": "b"}, {}]}
        server = Server(
            tools=[{"tools": [tool]}],
            resources=[{"resources": [{"uri": "u://1", "name": "one", "mimeType": "text/plain"}]}],
            resources_templates=[{"resourceTemplates": [{"uriTemplate": "u://{n}"}]}],
            prompts=[{"prompts": [prompt]}],
        )
        found, problems = server.read()
        assert problems == []
        assert (found.server, found.instructions) == ("s", "Be gentle.")
        (kept,) = found.tools
        assert (kept.server, kept.name, kept.title, kept.description) == ("s", "t", "T", "Does it.")
        assert (kept.input_schema, kept.output_schema) == (tool["inputSchema"], tool["outputSchema"])
        assert kept.annotations == {"readOnlyHint": True}
        assert [(one.uri, one.name, one.mime_type, one.template) for one in found.resources] == [
            ("u://1", "one", "text/plain", False),
            ("u://{n}", "", "", True),
        ]
        assert found.prompts[0].arguments == [
            PromptArgument(name="a", description="A.", required=True),
            PromptArgument(name="b", description="", required=False),
        ]

    def test_what_is_wrong_is_left_out_and_said(self) -> None:
        tools = [
            {"description": "nameless"},
            "no object",
            {"name": "a", "title": 5, "inputSchema": {"type": "object"}},
            {"name": "a", "inputSchema": {"type": "object"}},
            {"name": "b" * 81, "inputSchema": {"type": "strin"}},
            {"name": "c"},
        ]
        server = Server(
            tools=[{"tools": tools}],
            resources=[{"resources": [{"name": "without"}]}],
            resources_templates=[{"resourceTemplates": [{"uri": "wrong key"}]}],
            prompts=[{"prompts": [{}, {"name": "p", "arguments": 7}]}],
        )
        found, problems = server.read()
        assert [tool.name for tool in found.tools] == ["a", "b" * 81, "c"]
        assert found.tools[2].input_schema == {"type": "object"}
        assert [problem for problem in problems if "invalid inputSchema" not in problem] == [
            "a resource without `uri` was left out",
            "a resource without `uriTemplate` was left out",
            "a prompt without a name was left out",
            "prompt `p` has a `arguments` of the wrong type, which was left out",
            "tool number 1 has no name and was left out",
            "tool number 2 has no name and was left out",
            "tool `a` has a `title` of the wrong type, which was left out",
            "tool `a` is listed twice; the first one is used",
            "tool `c` has no inputSchema; any arguments are let through",
        ]
        (flawed,) = [problem for problem in problems if "invalid inputSchema" in problem]
        assert flawed.startswith(f"tool `{'b' * 79}…` has an invalid inputSchema: ")

    def test_only_so_many_problems_are_told(self) -> None:
        for count, told in ((50, 50), (51, 51), (90, 51)):
            _, problems = Server(tools=[{"tools": [{}] * count}]).read()
            assert len(problems) == told
            assert (problems[-1] == "… and more") is (count > 50)

    def test_only_what_is_claimed_is_asked_for_and_tools_always(self) -> None:
        server = Server(tools=_error(-32601))
        found, problems = server.read(claims="")
        assert (found.tools, problems, server.asked) == ([], [], [("tools", "")])
        with pytest.raises(Exception, match="no"):
            Server(tools=_error(-32601)).read(claims="tools")

    def test_a_list_that_fails_costs_only_itself_unless_the_connection_is_gone(self) -> None:
        from mcp_types import CONNECTION_CLOSED

        server = Server(
            tools=[{"tools": [{"name": "t", "inputSchema": {}}]}], resources=_error(-32603), prompts=[{"prompts": 5}]
        )
        found, problems = server.read()
        assert len(found.tools) == 1
        assert [problem.split(":")[0] for problem in problems] == ["resources/list failed", "prompts/list failed"]
        with pytest.raises(Exception, match="no"):
            Server(resources=_error(CONNECTION_CLOSED)).read()
        with pytest.raises(InvalidResponseError, match="has no list of tools"):
            Server(tools=[{"tools": "text"}]).read()

    def test_pages_are_read_until_they_end_or_repeat(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def page(number: int, **more: Any) -> Page:
            return {"tools": [{"name": f"t{number}", "inputSchema": {}}], **more}

        whole = Server(tools=[page(0, nextCursor="1"), page(1, nextCursor="2"), page(2)])
        found, problems = whole.read(claims="tools")
        assert [tool.name for tool in found.tools] == ["t0", "t1", "t2"]
        assert problems == []
        assert whole.asked == [("tools", ""), ("tools", "1"), ("tools", "2")]
        _, problems = Server(tools=[page(0, nextCursor="1"), page(1, nextCursor="1")]).read(claims="tools")
        assert problems == ["tools/list never ends; 2 entries were kept"]
        # Some servers end with an empty cursor.
        assert Server(tools=[page(0, nextCursor="1"), page(1, nextCursor="")]).read(claims="tools")[1] == []
        monkeypatch.setattr(limits, "PAGES", 2)
        endless = Server(tools=[page(number, nextCursor=str(number + 1)) for number in range(5)])
        found, problems = endless.read(claims="tools")
        assert len(found.tools) == 2
        assert problems == ["tools/list has more than 2 pages; 2 entries were kept"]

    def test_resources_templates_and_prompts_have_pages_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def pages(key: str, name: str) -> list[Page]:
            return [{key: [{name: f"x{number}"}], "nextCursor": str(number + 1)} for number in range(5)]

        server = Server(
            resources=pages("resources", "uri"),
            resources_templates=pages("resourceTemplates", "uriTemplate"),
            prompts=pages("prompts", "name"),
        )
        found, problems = server.read()
        assert (len(found.resources), len(found.prompts), problems) == (10, 5, [])
        monkeypatch.setattr(limits, "PAGES", 2)
        found, problems = server.read()
        assert (len(found.resources), len(found.prompts)) == (4, 2)
        assert [problem.split()[0] for problem in problems] == [
            "resources/list",
            "resources/templates/list",
            "prompts/list",
        ]

    @pytest.mark.parametrize("draft", ["http://json-schema.org/draft-07/schema#", "https://example.com/own", None])
    def test_a_schema_is_checked_whatever_dialect_it_names(self, draft: str | None) -> None:
        named = {"$schema": draft} if draft else {}
        assert schema_flaw({**named, "type": "object"}) == ""
        flaw = schema_flaw({**named, "type": "strin"})
        assert flaw
        assert "\n" not in flaw
        assert len(schema_flaw({**named, "type": "x" * 1000})) <= 200


class TestResults:
    def test_each_kind_of_content(self) -> None:
        result = tool_result(
            {
                "content": [
                    {"type": "text", "text": "a"},
                    {"type": "image", "data": "AA==", "mimeType": "image/png"},
                    {"type": "audio", "data": "AA=="},
                    {"type": "resource", "resource": {"uri": "file:///b/c.txt/", "blob": "AA=="}},
                    {"type": "resource", "resource": {"uri": "u", "text": "t"}},
                    {"type": "resource_link", "uri": "u://1", "name": "n", "description": "d", "mimeType": "m"},
                    {"type": "new", "x": "ä"},
                    {"type": "text", "text": 5},
                ],
                "structuredContent": {"n": 1},
                "isError": True,
            },
            modern=True,
        )
        assert result.parts == [
            TextPart("a"),
            BlobPart("AA==", "image/png", ""),
            BlobPart("AA==", "application/octet-stream", ""),
            BlobPart("AA==", "application/octet-stream", "c.txt", "file:///b/c.txt/"),
            TextPart("t", "u"),
            LinkPart("u://1", "n", "d", "m"),
            TextPart('{"type": "new", "x": "ä"}'),
            TextPart('{"type": "text", "text": 5}'),
        ]
        assert (result.structured, result.has_structured, result.is_error) == ({"n": 1}, True, True)
        assert not tool_result({"isError": "yes"}, modern=True).is_error

    @pytest.mark.parametrize(
        "raw",
        [
            {"content": "text"},
            {"content": ["text"]},
            {"content": [{"type": "image"}]},
            {"content": [{"type": "resource", "resource": 5}]},
            {"content": [{"type": "resource", "resource": {"uri": "u"}}]},
            {"resultType": "input_required"},
        ],
    )
    def test_what_is_no_result_is_refused(self, raw: dict[str, Any]) -> None:
        with pytest.raises(InvalidResponseError):
            tool_result(raw, modern=True)

    def test_resources_and_prompts(self) -> None:
        assert resource_parts({"contents": [{"text": "a"}]}) == [TextPart("a")]
        messages = [{"role": "user", "content": {"type": "text"}, "more": 1}, {"role": "assistant"}]
        assert prompt_messages({"messages": messages}) == [
            {"role": "user", "content": {"type": "text"}},
            {"role": "assistant", "content": None},
        ]
        for value in (None, "text", [5]):
            with pytest.raises(InvalidResponseError):
                resource_parts({"contents": value})
        for value in (None, "text", [5], [{"role": 5}]):
            with pytest.raises(InvalidResponseError):
                prompt_messages({"messages": value})


class TestLog:
    def log(self, folder: Path, server: str = "s") -> ServerLog:
        return ServerLog(folder, server, Redactor(polite(env={"TOKEN": "sk-a-long-secret-token-123"})))

    def test_notes_are_bounded_for_each_connection(self, tmp_path: Path) -> None:
        log = self.log(tmp_path)
        log.begin("starting")
        for number in range(NOTES + 50):
            log.note(f"note {number}")
        lines = log.path.read_text().splitlines()
        assert len(lines) == NOTES
        assert lines[-1].endswith("more of the same is not recorded")
        assert lines[-2].endswith(f"note {NOTES - 3}")
        assert log.path.stat().st_mode & 0o777 == 0o600
        log.begin("starting again")
        assert log.path.read_text().splitlines()[-1].endswith("starting again")
        assert re.match(r"\[toolfold \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] starting$", lines[0])

    def test_a_large_log_is_put_aside(self, tmp_path: Path) -> None:
        log = self.log(tmp_path)
        for size, put_aside in ((LOG_BYTES, False), (LOG_BYTES + 1, True)):
            log.path.write_bytes(b"x" * size)
            log.begin("starting")
            assert (tmp_path / "s.log.1").exists() is put_aside
            assert (log.path.stat().st_size < 100) is put_aside

    def test_secrets_are_masked_in_notes_and_junk(self, tmp_path: Path) -> None:
        log = self.log(tmp_path)
        log.note("the key sk-a-long-secret-token-123 was refused")
        log.junk(b"sk-a-long-secret-token-123 " + b"y" * 5000)
        written = log.path.read_text()
        assert "secret-token" not in written
        assert "ignored 5027 bytes on stdout that are no message" in written
        assert len(written.splitlines()) == 2
        assert max(map(len, written.splitlines())) < 400

    @pytest.mark.parametrize("server", ["a/b", "..", ".hidden", "with space"])
    def test_a_name_is_one_file_in_the_folder(self, tmp_path: Path, server: str) -> None:
        other = self.log(tmp_path, server + "_")
        path = self.log(tmp_path, server).path
        assert path.parent == tmp_path
        assert not path.name.startswith(".")
        assert path != other.path
        assert self.log(tmp_path, "plain").path.name == "plain.log"

    def test_a_folder_that_is_gone_costs_only_the_note(self, tmp_path: Path) -> None:
        log = self.log(tmp_path / "gone")
        log.begin("starting")
        assert not log.path.exists()

    def test_readable_text_is_the_end_of_it(self) -> None:
        assert readable(" a\x1b[31mb\x07c \n", 10) == "abc"
        assert readable("0123456789", 10) == "0123456789"
        assert readable("0123456789x", 10) == "…123456789x"
        assert readable("a\n\tb", 10) == "a\n\tb"

    def test_paths_lose_their_folders(self) -> None:
        assert without_paths("cannot open /home/ada/.keys/token: denied") == "cannot open token: denied"
        assert without_paths("see https://example.com/a/b and 1/2") == "see https://example.com/a/b and 1/2"


class TestState:
    def state(self, state: State, message: str = "", **more: Any) -> ServerState:
        error = UpstreamError("s", message, hint="Look.") if message else None
        return ServerState(server="s", state=state, log_file=Path("/logs/s.log"), error=error, **more)

    def test_one_line_for_a_model(self) -> None:
        assert self.state("idle").text == "s: not started yet"
        assert self.state("starting").text == "s: still starting"
        assert self.state("listed").text == "s: ready"
        failed = self.state("failed", "the server\n/opt/bin/x  ended.", next_try_in=8.4)
        assert failed.text == "s: failed: the server x ended. Next try in 8 s."
        assert self.state("failed", "x", next_try_in=0.2).text == "s: failed: x Next try in 1 s."
        assert self.state("failed", "x").text == "s: failed: x"
        assert self.state("failed", "x" * 200).text == f"s: failed: {'x' * 200}"
        assert self.state("failed", "x" * 201).text == f"s: failed: {'x' * 200}…"

    def test_one_line_for_an_operator(self) -> None:
        assert self.state("listed").detail == "s: ready"
        assert self.state("listed", "It /opt/x broke.").detail == "s: failed: It /opt/x broke. Look. (log: /logs/s.log)"

    def test_pauses_double_up_to_the_longest(self) -> None:
        assert [pause_after(failures) for failures in (1, 2, 3, 4)] == [0.5, 1.0, 2.0, 4.0]
        assert pause_after(1) == SHORTEST_PAUSE
        assert pause_after(10) == 256.0
        assert pause_after(11) == pause_after(10_000) == LONGEST_PAUSE

    def test_how_a_process_ended(self) -> None:
        assert str(Exit(None)) == "ended for an unknown reason"
        assert str(Exit(0)) == "ended with exit status 0"
        assert str(Exit(3)) == "ended with exit status 3"
        assert str(Exit(-9)) == "was killed by SIGKILL"
        assert str(Exit(-99)) == "was killed by signal 99"

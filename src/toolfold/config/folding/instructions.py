"""What a project's agents are told about Toolfold, between marks in the file that they read."""

from __future__ import annotations

from toolfold.config.folding.drafts import BLOCK_BEGINS, BLOCK_ENDS

BLOCK = f"""{BLOCK_BEGINS} (written by `toolfold fold --instructions`, removed by `toolfold unfold`) -->
## MCP tools

The MCP servers of this project are behind two tools of the server `toolfold`:

- `search_tools` finds tools. Search before you write code; an empty query lists the servers.
- `run_code` runs a Python program in a sandbox: `from servers.github import create_issue`, then
  `await create_issue(owner="o", repo="r", title="t")`.

Do a whole task in one program: loop, filter and join there, and print only what you need to know. Variables stay from
run to run; files in `workspace/` do too.
{BLOCK_ENDS}"""

TOOLSET = {
    "toolfold-tools": {
        "tools": ["toolfold/search_tools", "toolfold/run_code"],
        "description": "All MCP servers, through Toolfold: search them, and run code that calls them.",
        "icon": "tools",
    }
}
"""For VS Code: both tools by one name."""

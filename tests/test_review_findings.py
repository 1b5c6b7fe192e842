"""What the review finds, and what it leaves alone."""
# ruff: noqa: E501 - a table reads better with its rows on one line

from __future__ import annotations

import ast
import asyncio.tasks
import dataclasses
import typing
import unittest.mock
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.typed_api import simple
from toolfold.codegen.names import ApiNames
from toolfold.review.finding import Finding
from toolfold.review.review import review

TEXT = {"type": "string"}
TOOLS = [
    simple(
        "create_issue",
        "github",
        owner_=TEXT,
        title_=TEXT,
        labels={"type": "array", "items": TEXT},
        state={"enum": ["open", "closed"]},
        page={"type": "integer", "minimum": 1},
        meta={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        note={"anyOf": [TEXT, {"type": "null"}]},
    ),
    simple("list-issues", "github", owner_=TEXT, **{"If-Match": TEXT}),
    simple("merge", "gitlab", id_={"type": ["integer", "string"]}),
    simple("anything", "open-server", x=TEXT),
    simple("settings", "gitlab", values_={"type": "object", "properties": {"theme": TEXT}}, force={"type": "boolean"}),
    simple("odd", "gitlab", a={"properties": {"x": TEXT}}, b={}, c={"type": "nonsense"}),
]
TOOLS[0].input_schema["additionalProperties"] = False
TOOLS[3].input_schema["additionalProperties"] = True
NAMES = ApiNames.of(TOOLS)
BY_NAME = {(tool.server, tool.name): tool for tool in TOOLS}


def found(code: str) -> list[Finding]:
    return review(code, NAMES, lambda server, tool: BY_NAME.get((server, tool)))


def told(code: str) -> list[tuple[int, str, str]]:
    return [(finding.line, finding.code, f"{finding.message} {finding.hint}".strip()) for finding in found(code)]


IMPORT = "from servers.github import create_issue\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = (", (1, "syntax", "SyntaxError: '(' was never closed in `x = (`.")),
        ("a = 1\ndef f():\n    await g()", (3, "syntax", "SyntaxError: 'await' outside async function. Write `async def f`, and `await f(...)` where it is called.")),
        ("a = 1\nf = lambda: await g()", (2, "syntax", "SyntaxError: 'await' outside async function. `await` works at the top level and inside `async def`.")),
        ("class A:\n    return 5", (2, "syntax", "SyntaxError: 'return' outside function.")),
        ("x = 1\nyield x", (2, "syntax", "SyntaxError: 'yield' outside function.")),
        ("```python\nx = 1\ny = (\n```", (3, "syntax", "SyntaxError: '(' was never closed in `y = (`.")),
        ("Here it is:\n```python\nx = 1\n```", (1, "syntax", "SyntaxError: invalid syntax in `Here it is:`. Send only the program, without Markdown or text around it.")),
        ("x = 1\n!pip install pandas", (2, "syntax", "SyntaxError: invalid syntax in `!pip install pandas`. There is no shell and no notebook here; write Python only.")),
        ("x = 1\0", (1, "syntax", "SyntaxError: source code string cannot contain null bytes.")),
        ("from servers.githb import create_issue", (1, "unknown_server", "There is no server module servers.githb. Did you mean github or gitlab?")),
        ("import servers.nothing_like_it", (1, "unknown_server", "There is no server module servers.nothing_like_it. There are: github, gitlab, open_server.")),
        ("from servers import gitub", (1, "unknown_server", "There is no server module servers.gitub. Did you mean github or gitlab?")),
        ("from servers.github import creat_issue", (1, "unknown_tool", "servers.github has no tool 'creat_issue'. Did you mean create_issue or list_issues?")),
        ("import os\nfrom servers.github import merge as m", (2, "unknown_tool", "servers.github has no tool 'merge'. It is in servers.gitlab.")),
        ("from servers.open-server import anything", (1, "syntax", "SyntaxError: invalid syntax in `from servers.open-server import anything`. Write `from servers.open_server import anything`.")),
        ("import servers.open-server as o", (1, "syntax", "SyntaxError: invalid syntax in `import servers.open-server as o`. Write `from servers import open_server`.")),
        ("from servers import open-server", (1, "syntax", "SyntaxError: invalid syntax in `from servers import open-server`. Write `from servers import open_server`.")),
        ("from servers.github import create_issue, list-issues", (1, "syntax", "SyntaxError: invalid syntax in `from servers.github import create_issue, list-issues`. Write `from servers.github import create_issue, list_issues`.")),
        ("from servers.github import send_newsletter", (1, "unknown_tool", "servers.github has no tool 'send_newsletter'. It has create_issue, list_issues.")),
        ("from servers import github\nx = 1\nawait github.creat_issue()", (3, "unknown_tool", "servers.github has no tool 'creat_issue'. Did you mean create_issue or list_issues?")),
        ("import servers\nawait servers.githb.create_issue()", (2, "unknown_server", "There is no server module servers.githb. Did you mean github or gitlab?")),
        ("if __name__ == '__main__':\n    from servers.github import creat_issue", (2, "unknown_tool", "servers.github has no tool 'creat_issue'. Did you mean create_issue or list_issues?")),
        ("import servers.github.creat_issue", (1, "unknown_tool", "servers.github has no tool 'creat_issue'. Did you mean create_issue or list_issues?")),
    ],
)  # fmt: skip
def test_what_cannot_be_parsed_or_imported_is_found(code: str, expected: tuple[int, str, str]) -> None:
    assert told(code) == [expected]


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        ("create_issue(owner='o')", "missing_argument", "create_issue: missing required argument 'title'."),
        ("create_issue()", "missing_argument", "create_issue: missing required arguments 'owner', 'title'."),
        ("create_issue(owner='o', title=...)", "missing_argument", "create_issue: missing required argument 'title'."),
        ("create_issue('o')", "missing_argument", "create_issue: missing required argument 'title'."),
        ("create_issue('o', ...)", "missing_argument", "create_issue: missing required argument 'title'."),
        ("create_issue('o', 5)", "invalid_argument", "create_issue: title: must be string, not integer."),
        ("create_issue('o', 't', 'bug')", "invalid_argument", "create_issue: labels: must be array, not string."),
        ("create_issue('o', 't', ['bug'], 'open', 1, {'a': 1}, 'note', 'more')", "invalid_argument", "create_issue takes at most 7 arguments, not 8."),
        ("create_issue('o', 't', owner='o')", "invalid_argument", "create_issue got multiple values for argument 'owner'."),
        ("create_issue('o', 't', lables=[])", "unknown_argument", "create_issue has no argument 'lables'. Did you mean labels?"),
        ("create_issue(arguments, lables=[])", "unknown_argument", "create_issue has no argument 'lables'. Did you mean labels?"),
        ("create_issue({'owner': 'o', 'title': 't'}, title='t')", "invalid_argument", "create_issue got multiple values for argument 'title'."),
        ("create_issue({'owner': 'o'}, page=1)", "missing_argument", "create_issue: missing required argument 'title'."),
        ("create_issue(owner='o', title='t', lables=[])", "unknown_argument", "create_issue has no argument 'lables'. Did you mean labels?"),
        ("create_issue(owner='o', title='t', zzz=1)", "unknown_argument", "create_issue has no argument 'zzz'. It takes owner, title, labels, state, page, meta, note."),
        ("create_issue(owner='o', title=5)", "invalid_argument", "create_issue: title: must be string, not integer."),
        ("create_issue(owner='o', title=None)", "invalid_argument", "create_issue: title: must be string, not null."),
        ("create_issue(owner='o', title='t', labels='bug')", "invalid_argument", "create_issue: labels: must be array, not string."),
        ("create_issue(owner='o', title='t', labels=['a', 1])", "invalid_argument", "create_issue: labels[1]: must be string, not integer."),
        ("create_issue(owner='o', title=[x])", "invalid_argument", "create_issue: title: must be string, not array."),
        ("create_issue(owner='o', title='t', labels=f'{x}')", "invalid_argument", "create_issue: labels: must be array, not string."),
        ("create_issue(owner='o', title='t', state='opn')", "invalid_argument", "create_issue: state: must be one of 'open', 'closed'."),
        ("create_issue(owner='o', title='t', page=-1)", "invalid_argument", "create_issue: page: is less than the minimum of 1."),
        ("create_issue(owner='o', title='t', meta={'a': 'x'})", "invalid_argument", "create_issue: meta.a: must be integer, not string."),
        ("create_issue(owner='o', title='t', meta={})", "invalid_argument", "create_issue: meta: missing required key 'a'."),
        ("create_issue(owner='o', title='t', note=1)", "invalid_argument", "create_issue: note: must be string or null, not integer."),
        ("create_issue({'owner': 'o'})", "missing_argument", "create_issue: missing required argument 'title'."),
        ("create_issue({'owner': 'o', 'title': 5})", "invalid_argument", "create_issue: title: must be string, not integer."),
        ("create_issue({'owner': 'o', 'title': 't', 'lable': 1})", "unknown_argument", "create_issue has no argument 'lable'. Did you mean labels?"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_found(call: str, code: str, message: str) -> None:
    assert told(f"{IMPORT}\nx = 1\nawait {call}") == [(4, code, message)]


@pytest.mark.parametrize(
    "way",
    [
        "from servers.github import create_issue as ci\nawait ci(owner='o')",
        "from servers.github.create_issue import create_issue\nawait create_issue(owner='o')",
        "import servers.github\nawait servers.github.create_issue(owner='o')",
        "import servers\nawait servers.github.create_issue(owner='o')",
        "import servers.github as gh\nawait gh.create_issue(owner='o')",
        "from servers import github\nawait github.create_issue(owner='o')",
        "from servers.github import create_issue\nasync def f():\n    for i in range(3):\n        await create_issue(owner='o')\nawait f()",
        "async def f():\n    from servers.github import create_issue\n    return await create_issue(owner='o')",
        "import asyncio\nfrom servers.github import create_issue\nawait asyncio.gather(*[create_issue(owner=o) for o in 'ab'])",
        "from servers.github import create_issue\ntry:\n    await create_issue(owner='o')\nexcept KeyError:\n    pass",
        "from servers.github import create_issue\nx = [create_issue for create_issue in await create_issue(owner='o')]",
    ],
)  # fmt: skip
def test_a_call_is_known_by_every_way_to_import_it(way: str) -> None:
    assert [finding.code for finding in found(way)] == ["missing_argument"]


@pytest.mark.parametrize(
    "program",
    [
        "{call}",
        "if x:\n    {call}",
        "print({call})",
        "issue = {call}['id']",
        "issue = {call}.get('id')",
        "for issue in {call}:\n    pass",
        "titles = [issue['title'] for issue in {call}]",
        'print(f"{{{call}}}")',
        "issue = {call}\nprint(issue['id'], issue['title'])",
        "issue = {call}\nprint(issue)",
        "async def f():\n    issue = {call}\n    return issue['id']",
    ],
)
def test_a_call_that_nobody_awaits_is_found(program: str) -> None:
    code = IMPORT + program.format(call="create_issue(owner='o', title='t')")
    assert [finding.code for finding in found(code)] == ["not_awaited"]
    assert found(code)[0].hint == "Write `await create_issue(...)`."


@pytest.mark.parametrize("program", ["[{call} for o in 'ab']", "({call}, 1)", "def f():\n    {call}\nf()"])
def test_calls_that_are_made_and_dropped_are_found(program: str) -> None:
    code = IMPORT + program.format(call="create_issue(owner='o', title='t')")
    assert [finding.code for finding in found(code)] == ["not_awaited"]


def test_a_plain_function_that_calls_a_tool_is_told_to_become_async() -> None:
    code = (
        f"{IMPORT}def make(title):\n    issue = create_issue(owner='o', title=title)\n    return issue['id']\nmake('t')"
    )
    [finding] = found(code)
    assert (finding.line, finding.code) == (3, "not_awaited")
    assert finding.hint == (
        "Write `async def make`, `await create_issue(...)` in it, and `await make(...)` where it is called."
    )


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("await asyncio.gather(*[await {call} for o in 'ab'])", "asyncio.gather(...) takes the call itself, not its result."),
        ("await asyncio.gather(await {call}, await {call})", "asyncio.gather(...) takes the call itself, not its result."),
        ("task = asyncio.create_task(await {call})", "asyncio.create_task(...) takes the call itself, not its result."),
        ("asyncio.run(await {call})", "asyncio.run(...) takes the call itself, not its result."),
        ("async def main():\n    await {call}\nawait asyncio.run(main())", "asyncio.run(...) has run main() when it returns, so there is nothing to await."),
    ],
)  # fmt: skip
def test_what_would_fail_only_after_its_calls_were_made_is_found(program: str, message: str) -> None:
    code = f"import asyncio\n{IMPORT}" + program.format(call="create_issue(owner='o', title='t')")
    assert {finding.message for finding in found(code)} == {message}


@pytest.mark.parametrize(
    ("call", "exception", "refused"),
    [
        ("create_issue(owner='o')", "TypeError", False),
        ("create_issue(owner='o')", "Exception", False),
        ("create_issue(owner='o')", "(KeyError, TypeError)", False),
        ("create_issue(owner='o')", "MyError", False),
        ("create_issue(owner='o')", "ToolError", True),
        ("create_issue(owner='o')", "ValueError", True),
        ("create_issue(owner='o')", "json.JSONDecodeError", True),
        ("create_issue(owner='o', title=None)", "ToolError", False),
        ("create_issue(owner='o', title=None)", "toolfold.ToolError", False),
        ("create_issue(owner='o', title=None)", "Exception", False),
        ("create_issue(owner='o', title=None)", "TypeError", True),
        ("create_issue(owner='o', title=None)", "(OSError, KeyError)", True),
        ("create_issue(owner='o', title='t', lables=[])", "TypeError", False),
        ("create_issue(owner='o', title='t', lables=[])", "ToolError", True),
        ("create_issue(arguments, lables=[])", "ToolError", False),
        ("create_issue(arguments, lables=[])", "TypeError", True),
    ],
)
def test_a_wrong_call_is_the_programs_own_business_where_it_catches_what_that_raises(
    call: str, exception: str, refused: bool
) -> None:
    assert bool(found(f"{IMPORT}try:\n    await {call}\nexcept {exception}:\n    pass")) == refused
    assert (
        bool(found(f"{IMPORT}import contextlib\nwith contextlib.suppress({exception}):\n    await {call}")) == refused
    )


WRONG = "create_issue(owner='o', title=None)"


@pytest.mark.parametrize(
    ("program", "refused"),
    [
        (f"async def f():\n    await {WRONG}\ntry:\n    await f()\nexcept Exception:\n    pass", False),
        (f"async def f():\n    await {WRONG}\nasync def g():\n    await f()\ntry:\n    await g()\nexcept Exception:\n    pass", False),
        (f"for f in [lambda: {WRONG}]:\n    try:\n        await f()\n    except Exception:\n        pass", False),
        (f"@retry\nasync def f():\n    await {WRONG}\ntry:\n    pass\nexcept Exception:\n    pass\nawait f()", False),
        (f"async def f():\n    await {WRONG}\nfor g in [f]:\n    try:\n        await g()\n    except Exception:\n        pass", False),
        (f"import asyncio\nawait asyncio.gather({WRONG}, return_exceptions=True)", False),
        (f"async def f():\n    await {WRONG}\ntry:\n    x = 1\nexcept Exception:\n    pass\nawait f()", True),
        (f"async def f():\n    await {WRONG}\nawait f()", True),
        (f"try:\n    x = 1\nexcept Exception:\n    await {WRONG}", True),
        (f"try:\n    x = 1\nfinally:\n    await {WRONG}", True),
        ("import asyncio\nawait asyncio.gather(create_issue(owner='o'), return_exceptions=True)", True),
        (f"try:\n    async def f():\n        await {WRONG}\nexcept Exception:\n    pass\nawait f()", True),
        (f"try:\n    pass\nexcept Exception:\n    pass\nelse:\n    await {WRONG}", True),
        (f"class A:\n    async def f(self):\n        await {WRONG}\ntry:\n    await A().f()\nexcept Exception:\n    pass", False),
        (f"import contextlib\nasync def f():\n    await {WRONG}\nwith contextlib.suppress(Exception):\n    await f()", False),
        (f"async def f():\n    try:\n        await {WRONG}\n    except* Exception:\n        pass\nawait f()", False),
    ],
)  # fmt: skip
def test_a_function_may_be_called_where_its_mistake_is_caught(program: str, refused: bool) -> None:
    assert bool(found(IMPORT + program)) == refused


@pytest.mark.parametrize("name", ["x", "a_thing", "missing"])
def test_a_tool_that_a_module_does_not_have_is_found_by_its_call(name: str) -> None:
    (line, code, message), *rest = told(f"import servers.github\nawait servers.github.{name}()")
    assert (line, code, rest) == (2, "unknown_tool", [])
    assert message.startswith(f"servers.github has no tool {name!r}.")
    assert told("import servers.github\nservers.github._x()") == []
    assert told(f"import servers.github\nif hasattr(servers.github, {name!r}): await servers.github.{name}()") == []


def test_a_forgotten_await_of_a_call_by_name_is_found() -> None:
    assert [finding.code for finding in found("from toolfold import call_mcp_tool\ncall_mcp_tool('x', {})")] == [
        "not_awaited"
    ]


FINE = [
    "",
    "1 + 1",
    "await something()",
    "{call}  # not imported here, but perhaps in an earlier run of the session",
    f"{IMPORT}await {{call}}",
    f"{IMPORT}task = {{call}}\nawait task",
    f"{IMPORT}task = {{call}}\nprint('later')",
    f"{IMPORT}import asyncio\ntasks = [{{call}} for _ in range(3)]\nprint(await asyncio.gather(*tasks))",
    f"{IMPORT}import asyncio\ntask = asyncio.create_task({{call}})\nawait task",
    f"{IMPORT}import asyncio\nprint(asyncio.run({{call}}))",
    f"{IMPORT}def later():\n    return {{call}}\nprint(await later())",
    f"{IMPORT}pending = {{call}}\npending.close()",
    f"{IMPORT}print = log\nprint({{call}})",
    f"{IMPORT}await create_issue(**arguments)",
    f"{IMPORT}await create_issue(owner='o', **{{'title': 't'}})",
    f"{IMPORT}await create_issue(*args)",
    f"{IMPORT}await create_issue(arguments)",
    f"{IMPORT}await create_issue({{'owner': 'o', **rest}})",
    f"{IMPORT}await create_issue({{key: 1}})",
    f"{IMPORT}await create_issue(owner=owner, title=title, labels=labels, state=state, page=page)",
    f"{IMPORT}await create_issue(owner='o', title='t', labels=[x, y], page=1 if x else 2, note=None)",
    f"{IMPORT}await create_issue(owner='o', title='t', labels=('a', 'b'), meta={{'a': x}}, page=...)",
    f"{IMPORT}await create_issue({{'owner': 'o', 'title': 't', 'labels': ['a']}})",
    f"{IMPORT}await create_issue('o', 't', ['bug'], note=None)",
    f"{IMPORT}await create_issue(owner, title)",
    f"{IMPORT}await create_issue({{name: 'x' for name in names}})",
    f"{IMPORT}await create_issue({{name: 'x' for name in names}}, page=1)",
    f"{IMPORT}await create_issue({{'owner': 'o'}}, title='t')",
    f"{IMPORT}await create_issue({{'owner': 'o', 'title': 't'}}, page=2)",
    f"{IMPORT}await create_issue('o', **rest)",
    "from servers.gitlab import settings\nawait settings({'theme': 'dark'})",
    "from servers.gitlab import settings\nawait settings({'theme': 'dark'}, force=True)",
    "from servers.gitlab import settings\nawait settings({'values': {'theme': 'dark'}, 'force': True})",
    "from servers.gitlab import settings\nawait settings({'theme': theme})",
    "from servers.open_server import anything\nawait anything('a', more=1)",
    f"{IMPORT}return await {{call}}",
    f"{IMPORT}if x:\n    return 1\nawait {{call}}",
    f"```python\n{IMPORT}await {{call}}\n```",
    f"import asyncio\n{IMPORT}async def main():\n    return await {{call}}\nasyncio.run(main())\nawait main()",
    f"import asyncio\n{IMPORT}async def main():\n    return {{call}}\nawait asyncio.run(main())",
    "import servers.github as gh\nif hasattr(gh, 'close_issue'):\n    await gh.close_issue()",
    "from servers import github\ntool = getattr(github, 'close_issue', None)\nawait github.close_it()",
    "from servers import github\ntry:\n    await github.close_issue()\nexcept AttributeError:\n    pass",
    "async def f():\n    from servers.jira import create\ntry:\n    await f()\nexcept ImportError:\n    pass",
    "import servers\nservers.github()\nservers.github.create_issue.later()\nservers.github._load()",
    "servers = ['a', 'b']\nfor server in servers:\n    print(server.upper())",
    "from servers.github import create_issue\nservers = {}\nservers.github()",
    f"{IMPORT}issue = {{call}}\nissue = await issue\nprint(issue['id'])",
    f"{IMPORT}issue = {{call}}\nissue = known\nprint(issue['id'])",
    f"{IMPORT}issue = {{call}}\nprint(issue.cr_frame)",
    f"{IMPORT}issue = {{call}}\ndef f(issue):\n    print(issue['id'])",
    f"{IMPORT}x = [(create_issue := print) for y in z]\ncreate_issue()",
    f"{IMPORT}x = [create_issue for create_issue in create_issue_list() for z in create_issue()]",
    # Another meaning of the name: rebinding, shadowing, a parameter, a loop variable, a class, a capture.
    f"{IMPORT}create_issue = partial(create_issue, owner='o')\nawait create_issue(title='t')",
    f"{IMPORT}def f(create_issue):\n    create_issue(1, 2)",
    f"{IMPORT}for create_issue in things:\n    create_issue()",
    f"{IMPORT}def create_issue():\n    pass\ncreate_issue()",
    f"{IMPORT}f = lambda create_issue: create_issue()",
    f"{IMPORT}x = [create_issue() for create_issue in things]",
    f"{IMPORT}with open('f') as create_issue:\n    create_issue()",
    f"{IMPORT}try:\n    pass\nexcept Exception as create_issue:\n    create_issue()",
    f"{IMPORT}match x:\n    case [create_issue]:\n        create_issue()",
    f"{IMPORT}match x:\n    case {{**create_issue}}:\n        create_issue()",
    f"{IMPORT}if (create_issue := other):\n    create_issue()",
    f"{IMPORT}def f():\n    global create_issue\n    create_issue = print\nf()\ncreate_issue()",
    f"{IMPORT}def f():\n    create_issue = 1\n    def g():\n        nonlocal create_issue\n        create_issue()",
    f"{IMPORT}del create_issue\ncreate_issue()",
    f"{IMPORT}globals()['create_issue'] = print\ncreate_issue()",
    f"{IMPORT}exec('create_issue = print')\ncreate_issue()",
    f"{IMPORT}from mine import *\ncreate_issue()",
    f"{IMPORT}from servers.gitlab import merge as create_issue\ncreate_issue(id=1)['x']",
    "import servers.github as gh\ngh.create_issue = print\ngh.create_issue()",
    "servers = other()\nservers.github.create_issue()",
    "class A:\n    from servers.github import create_issue\n    async def f(self):\n        create_issue()",
    # Imports that the program has a plan for, or that are not ours to judge.
    "try:\n    from servers.jira import create\nexcept ImportError:\n    create = None",
    "if available:\n    import servers.jira",
    "import servers\nfrom servers import *",
    "from servers.github import *\nprint(create_issue())",
    "from servers.github.create_issue import Meta, create_issue",
    "import numpy, toolfold, tool_discovery, client, skills.mine\nfrom skills.report import make\nfrom workspace.helpers import x",
    "from toolfold import search_tools, call_mcp_tool, read_resource, save_skill, progress\nprint(search_tools('x'))",
    "from .servers import x\nfrom . import servers",
    # Schemas that say little.
    "from servers.gitlab import odd\nawait odd(a='text', b=[1], c={'x': 1})",
    f"{IMPORT}class create_issue:\n    pass\ncreate_issue()",
    "from servers.gitlab import merge\nawait merge(id=1)\nawait merge(id='1')",
    "from servers.open_server import anything\nawait anything(x='a', more=1, **rest)",
    "from servers.github import list_issues\nawait list_issues(owner='o', If_Match='x')",
    "from servers.github import list_issues\nawait list_issues({'owner': 'o', 'If-Match': 'x', 'unheard': 1})",
    "'\\d'  # an odd escape",
]  # fmt: skip


@pytest.mark.parametrize("program", FINE)
def test_what_is_right_or_cannot_be_known_passes(program: str) -> None:
    code = program.replace("{call}", "create_issue(owner='o', title='t')")
    assert found(code) == []


def test_an_unknown_key_is_found_where_it_is_written() -> None:
    (finding,) = found(f"{IMPORT}await create_issue({{'owner': 'o', 'title': 't',\n  'lable':\n  1}})")
    assert (finding.line, finding.column) == (IMPORT.count("\n") + 2, 2)


def test_findings_come_in_the_order_of_the_lines_and_once() -> None:
    code = f"{IMPORT}from servers.nope import x\n" + "await create_issue(owner=1)\n" * 3 + "create_issue()\n"
    lines = [finding.line for finding in found(code)]
    assert lines == sorted(lines)
    assert len(set(found(code))) == len(found(code))


def test_a_program_that_is_wrong_everywhere_is_told_only_so_much() -> None:
    assert len(found(IMPORT + "await create_issue(x=1)\n" * 500)) == 20


def test_of_many_names_the_first_are_listed_and_the_others_counted() -> None:
    many = [
        simple(f"tool{number:02}", "big", **{f"a{n}_" if n < 10 else f"a{n}": TEXT for n in range(14)})
        for number in range(15)
    ]
    servers = [simple("x", f"s{number:02}") for number in range(13)]

    def said(code: str) -> str:
        names, tools = ApiNames.of([*many, *servers]), {(tool.server, tool.name): tool for tool in (*many, *servers)}
        [finding] = review(code, names, lambda server, tool: tools.get((server, tool)))
        return f"{finding.message} {finding.hint}".strip()

    listed = ", ".join(f"tool{number:02}" for number in range(12))
    assert said("from servers.big import zzz") == f"servers.big has no tool 'zzz'. It has {listed} and 3 more."
    given = "from servers.big import tool00\nawait tool00("
    eight = ", ".join(f"'a{number}'" for number in range(8))
    assert said(f"{given})") == f"tool00: missing required arguments {eight}."
    some = ", ".join(f"a{number}='x'" for number in range(10))
    twelve = ", ".join(f"a{number}" for number in range(12))
    assert said(f"{given}{some}, zzz=1)") == f"tool00 has no argument 'zzz'. It takes {twelve} …."
    eleven = ", ".join(f"s{number:02}" for number in range(11))
    assert said("import servers.zzz") == f"There is no server module servers.zzz. There are: big, {eleven} …."


def test_a_program_is_read_up_to_a_length() -> None:
    wrong = "from servers.nope import x\n#"
    assert len(found(wrong + "x" * (100_000 - len(wrong)))) == 1
    assert found(wrong + "x" * (100_001 - len(wrong))) == []


def test_no_program_takes_long_to_review() -> None:
    """Each of these would take minutes if a hint were looked for at every line, or every line with every other."""
    many = [simple(f"tool_number_{number}", "big", x=TEXT) for number in range(2000)]
    names = ApiNames.of(many)
    lines = 100_000 // 40
    chained = "".join(f"async def f{n}():\n await f{n + 1}()\n" for n in range(lines))
    wrong = "from servers.big import tool_number_1 as t\nasync def g():\n" + " await t(y=1)\n" * 1000
    for code in (
        "\n".join(f"from servers.big import tool_{n}x" for n in range(lines)),
        "import servers.big as b\n" + "\n".join(f"await b.tool_{n}x()" for n in range(lines)),
        "\n".join(f"import servers.bg{n}" for n in range(lines)),
        f"{chained}try:\n await f0()\nexcept Exception: pass\n{wrong}",
    ):
        assert len(code) <= 100_000
        findings = review(code, names, lambda server, tool: next(t for t in many if t.name == tool))
        assert len(findings) == 20
        assert [finding.line for finding in findings] == sorted(finding.line for finding in findings)
    for code in ("```" + " " * 90_000 + "!", "~~~" + " " * 90_000 + "!", "x = 1\n" + "```\n" * 20_000):
        assert [finding.code for finding in found(code)] == ["syntax"]


@pytest.mark.parametrize("code", ["(" * 5000, "x" + "[0]" * 5000, "-" * 50_000 + "1", "\ud800", "f(" * 90 + ")" * 90])
def test_a_program_that_breaks_parsers_does_not_break_the_review(code: str) -> None:
    assert isinstance(found(code), list)


FRAGMENTS = st.sampled_from(
    [
        "from servers.github import create_issue", "import servers.github as gh", "create_issue = 1", "x = create_issue(owner='o')",
        "await create_issue(owner='o', title='t')", "def f(create_issue):\n    return create_issue()", "gh.create_issue(title=1)",
        "class A:\n    create_issue = 2", "[create_issue(owner=o) for o in x]", "global x", "del create_issue", "print(x)", "for gh in x: pass",
        "async def g():\n    async with a as b, c:\n        yield (await create_issue({'owner': b}))",
        "match x:\n    case {'a': gh, **rest} if gh: pass", "lambda *a, **k: (y := create_issue(*a, **k))", "try:\n    pass\nfinally:\n    pass",
    ]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(FRAGMENTS, max_size=8))
def test_any_program_is_reviewed_without_an_error_and_every_finding_has_its_place(parts: list[str]) -> None:
    code = "\n".join(parts)
    for finding in found(code):
        assert 1 <= finding.line <= code.count("\n") + 1
        assert finding.message


@pytest.mark.parametrize("module", [ast, asyncio.tasks, dataclasses, typing, unittest.mock])
def test_real_code_of_every_kind_is_read_without_a_finding(module: ModuleType) -> None:
    assert module.__file__ is not None
    assert found(Path(module.__file__).read_text(encoding="utf-8")) == []

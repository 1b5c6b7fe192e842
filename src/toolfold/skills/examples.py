"""The examples in a skill's docstring, as a program that tries them. An `await` at the start of a line works."""

from __future__ import annotations

_PROGRAM = '''
import ast, asyncio, contextlib, doctest, inspect, io, sys, traceback, types

def _load(name, source):
    module = types.ModuleType(f"skills.{name}")
    module.__file__ = f"/agent/skills/{name}.py"
    sys.modules[module.__name__] = module
    exec(compile(source, module.__file__, "exec"), module.__dict__)
    setattr(sys.modules["skills"], name, module)
    return module

async def _run(example, space):
    """What an example prints, or how the traceback that it ends with begins."""
    tree = ast.parse(example.source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            for part, mode in ((tree, "exec"), (last and ast.Expression(last.value), "eval")):
                if part is None:
                    continue
                value = eval(compile(part, "<example>", mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), space)
                if inspect.iscoroutine(value):
                    value = await value
            if last is not None and inspect.iscoroutine(value):
                value = await value
            if last is not None and value is not None:
                print(repr(value))
    except Exception as error:
        return printed.getvalue(), "".join(traceback.format_exception_only(error))
    return printed.getvalue(), None

async def _failures(name, source):
    function = getattr(_load(name, source), name)
    space = {**function.__globals__, name: function}
    checker, flags = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed = []
    for example in doctest.DocTestParser().get_examples(inspect.getdoc(function) or ""):
        if example.options.get(doctest.SKIP):
            continue
        printed, error = await _run(example, space)
        shown = example.source.strip().splitlines()[0][:120]
        if error is not None:
            if example.exc_msg is None or not checker.check_output(example.exc_msg, error, flags):
                failed.append(f"`{shown}` raised {error.strip()[:300]}")
        elif example.exc_msg is not None:
            failed.append(f"`{shown}` did not raise {example.exc_msg.strip()[:120]}")
        elif not checker.check_output(example.want, printed, flags):
            given, wanted = (text.strip()[:200] or "nothing" for text in (printed, example.want))
            failed.append(f"`{shown}` gave {given}, not {wanted}")
        if failed:
            break
    return failed

await _failures({name!r}, {source!r})
'''


def program(module: str, source: str) -> str:
    """A program whose value is a list of what is wrong; empty where every example gives what it says."""
    head, _, _ = _PROGRAM.rpartition("await _failures(")
    return f"{head}await _failures({module!r}, {source!r})\n"

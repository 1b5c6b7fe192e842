"""A skill from the program of a past run: its functions without what it did, or all of it as one function."""

from __future__ import annotations

import ast
import textwrap

from toolfold.errors import SkillError
from toolfold.skills.function import parsed
from toolfold.skills.names import folder_name, module_name

_Def = ast.FunctionDef | ast.AsyncFunctionDef


def promoted(code: str, name: str = "") -> tuple[str, str]:
    """The name and the source of a skill.

    Where the program defines the function `name` (or, without a name, just one function), the source is that function
    with the imports, constants, functions and classes around it. Otherwise the whole program becomes the body of an
    async function, whose value is that of the last expression.
    """
    tree = _tree(code)
    functions = [node.name for node in tree.body if isinstance(node, _Def)]
    if not name and len(functions) == 1:
        name = functions[0]
    if not name:
        found = f": it defines {', '.join(functions)}" if functions else ""
        raise SkillError(f"the program needs a name as a skill{found}", hint="Give one with --name.")
    module = module_name(folder_name(name))
    wanted = next((one for one in functions if one in (name, module)), None)
    if wanted is None:
        return module, _wrapped(code, tree, module)
    kept = [node for node in tree.body if _is_definition(node)]
    source = "\n\n".join(ast.get_source_segment(code, node) or ast.unparse(node) for node in kept)
    decorated = {node.name: node for node in kept if isinstance(node, _Def | ast.ClassDef) and node.decorator_list}
    if decorated:  # a segment of source leaves decorators out
        source = "\n\n".join(ast.unparse(node) for node in kept)
    return module, source if wanted == module else f"{source}\n\n{module} = {wanted}\n"


def _tree(code: str) -> ast.Module:
    """The program; `await` and `return` outside of functions are a program's right."""
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise SkillError(f"the program is no Python: {error}") from None


def _is_definition(node: ast.stmt) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return True
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            try:
                ast.literal_eval(value)
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                return False
            return True
        case _:
            return False


def _wrapped(code: str, tree: ast.Module, module: str) -> str:
    lines = code.splitlines()
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        lines[last.lineno - 1] = (
            f"{lines[last.lineno - 1].encode()[: last.col_offset].decode()}return "
            f"{lines[last.lineno - 1].encode()[last.col_offset :].decode()}"
        )
    source = f"async def {module}():\n{textwrap.indent(chr(10).join(lines) or 'pass', '    ')}\n"
    parsed(source)
    return source

"""Writes src/drumbeat/blocking_pool.py, the types of a pool without await, from the class Pool: run this file to do so."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "drumbeat" / "pool" / "service.py"
TARGET = ROOT / "src" / "drumbeat" / "blocking_pool.py"

#: the types of options that Pool takes as ``**options: Any``, by method
OPTIONS = {
    "create": "PoolSettings",
    "update": "PoolChanges",
    "push": "NewJobOptions",
    "push_many": "NewJobOptions",
    "push_on": "NewJobOptions",
    "claim": "ClaimOptions",
    "list": "JobFilters",
}
HEAD = '''"""The types of a pool without await. Written by tests/docs/blocking_types.py from the class Pool; do not edit it."""
'''
CLASS = '''class BlockingPool(Protocol):
    """The methods of ``Pool``, for code without an event loop: each waits for its result. See ``Pool`` for what they do."""

    pool_id: PoolId
    most_bytes: int
'''


def generated() -> str:
    """The text of the module."""
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    pool = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Pool")
    methods = [_method(node) for node in pool.body if isinstance(node, ast.AsyncFunctionDef) and node.name[0] != "_"]
    body = CLASS + "".join(f"\n    {ast.unparse(each).splitlines()[0]} ...\n" for each in methods)
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    return _formatted(f"{HEAD}\n{_imports(tree, used)}\n\n\n{body}")


def _method(node: ast.AsyncFunctionDef) -> ast.FunctionDef:
    """The same method without await, body and Any: a payload may be any object, options have their types."""
    arguments = node.args
    for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        if each.annotation is not None:
            each.annotation = ast.parse(ast.unparse(each.annotation).replace("Any", "object"), mode="eval").body
    if arguments.kwarg is not None:
        options = f"Unpack[{OPTIONS[node.name]}]" if node.name in OPTIONS else "object"
        arguments.kwarg.annotation = ast.parse(options, mode="eval").body
    returns = node.returns.value if isinstance(node.returns, ast.Constant) and node.returns.value else node.returns
    returns = ast.Name(str(returns)) if isinstance(returns, str) else node.returns
    dots: list[ast.stmt] = [ast.Expr(ast.Constant(...))]
    made = ast.FunctionDef(name=node.name, args=arguments, body=dots, decorator_list=[], returns=returns)
    made.type_params = []  # type: ignore[attr-defined]  # needed since Python 3.12
    return ast.fix_missing_locations(made)


def _imports(tree: ast.Module, used: set[str]) -> str:
    """Import lines for the names that are used: from where Pool's module has them, or from that module itself."""
    found = {"typing": {"Protocol", "Unpack"}, "drumbeat.pool.option_types": {*OPTIONS.values()}}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.setdefault(node.module, set()).update(each.name for each in node.names if each.name in used)
        elif isinstance(node, ast.ClassDef) and node.name in used:
            found.setdefault("drumbeat.pool.service", set()).add(node.name)
    lines = [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(found.items()) if names]
    ours = [line for line in lines if line.startswith("from drumbeat")]
    return "\n".join([*(line for line in lines if line not in ours), "", *ours])


def _formatted(text: str) -> str:
    ruff = (str(Path(sys.executable).with_name("ruff")), "format", "--stdin-filename", str(TARGET), "-")
    return subprocess.run(ruff, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def main() -> None:
    TARGET.write_text(generated(), encoding="utf-8")


if __name__ == "__main__":
    main()

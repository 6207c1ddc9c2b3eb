"""Writes src/drumbeat/blocking_pool.py, the types of a pool without await, from the class Pool: run this file to do so."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "drumbeat" / "pool" / "service.py"
SCHEDULES = ROOT / "src" / "drumbeat" / "pool" / "schedules" / "service.py"
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
    "add": "NewJobOptions",
}
HEAD = '''"""The types of a pool without await. Written by tests/docs/blocking_types.py from the class Pool; do not edit it."""
'''
CLASS = '''class BlockingPool(Protocol):
    """The methods of ``Pool``, for code without an event loop: each waits for its result. See ``Pool`` for what they do."""

    pool_id: PoolId
    most_bytes: int

    @property
    def schedules(self) -> BlockingSchedules: ...
'''
SCHEDULES_CLASS = '''class BlockingSchedules(Protocol):
    """The methods of ``Schedules``, for code without an event loop: each waits for its result."""
'''


def generated() -> str:
    """The text of the module."""
    trees = {
        "drumbeat.pool.service": ast.parse(SOURCE.read_text(encoding="utf-8")),
        "drumbeat.pool.schedules.service": ast.parse(SCHEDULES.read_text(encoding="utf-8")),
    }
    pool, schedules = trees.values()
    body = f"{SCHEDULES_CLASS}{_methods(schedules, 'Schedules')}\n\n{CLASS}{_methods(pool, 'Pool')}"
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    return _formatted(f"{HEAD}\n{_imports(trees, used)}\n\n\n{body}")


def _methods(tree: ast.Module, name: str) -> str:
    """The public methods of a class, without await."""
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    methods = [_method(node) for node in found.body if isinstance(node, ast.AsyncFunctionDef) and node.name[0] != "_"]
    return "".join(f"\n    {ast.unparse(each).splitlines()[0]} ...\n" for each in methods)


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


def _imports(trees: dict[str, ast.Module], used: set[str]) -> str:
    """Import lines for the names that are used: from where the modules of the classes have them, or from those modules."""
    found = {"typing": {"Protocol", "Unpack"}, "drumbeat.pool.option_types": {*OPTIONS.values()}}
    for module, node in ((name, node) for name, tree in trees.items() for node in ast.walk(tree)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.setdefault(node.module, set()).update(each.name for each in node.names if each.name in used)
        elif isinstance(node, ast.ClassDef) and node.name in used:
            found.setdefault(module, set()).add(node.name)
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

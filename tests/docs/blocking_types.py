"""Writes src/drumbeat/blocking_pool.py, the types of a pool without await, from the class Pool: run this file to do so."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
POOL = ROOT / "src" / "drumbeat" / "pool"
TARGET = ROOT / "src" / "drumbeat" / "blocking_pool.py"

#: classes with await, each with its file and module
SOURCES = {
    "Schedules": (POOL / "schedules" / "service.py", "drumbeat.pool.schedules.service"),
    "PoolOperations": (POOL / "operations.py", "drumbeat.pool.operations"),
    "PoolWorkflows": (POOL / "workflows.py", "drumbeat.pool.workflows"),
    "Pool": (POOL / "service.py", "drumbeat.pool.service"),
}
BASES = {"Pool": "BlockingPoolOperations, BlockingPoolWorkflows, "}  #: classes that these inherit from
#: the types of options that these classes take as ``**options: Any``, by method
OPTIONS = {
    "create": "NewPoolOptions",
    "update": "PoolChanges",
    "push": "NewJobOptions",
    "push_many": "NewJobOptions",
    "claim": "ClaimOptions",
    "list": "JobFilters",
    "add": "NewJobOptions",
}
HEAD = '''"""The types of a pool without await. Written by tests/docs/blocking_types.py from the class Pool; do not edit it."""
'''
#: the methods for a transaction of the caller: with a blocking driver they are the same in both classes
OWN_TRANSACTION = """
    def push_on(self, connection: object, payload: object, **options: Unpack[NewJobOptions]) -> JobId: ...

    def push_many_on(
        self, connection: object, payloads: Iterable[object], **options: Unpack[NewJobOptions]
    ) -> Sequence[JobId]: ...

    def push_jobs_on(self, connection: object, jobs: Sequence[NewJob], method: str = "push_on") -> Sequence[JobId]: ...

    def complete_on(self, connection: object, job: Job, result: object = None) -> None: ...
"""
FIELDS = dict.fromkeys(SOURCES, "") | {"Pool": f"    pool_id: PoolId\n    most_bytes: int\n{OWN_TRANSACTION}"}


def generated() -> str:
    """The text of the module."""
    trees = {name: ast.parse(file.read_text(encoding="utf-8")) for name, (file, _) in SOURCES.items()}
    body = "\n\n".join(_class(name, tree) for name, tree in trees.items())
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    return _formatted(f"{HEAD}\n{_imports(trees, used)}\n\n\n{body}")


def _class(name: str, tree: ast.Module) -> str:
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    parts = [_member(node) for node in found.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    says = f"The methods of ``{name}``, for code without an event loop: each waits for its result. See ``{name}``."
    head = f"class Blocking{name}({BASES.get(name, '')}Protocol):"
    return f'{head}\n    """{says}"""\n\n{FIELDS[name]}' + "".join(filter(None, parts))


def _member(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    if node.name.startswith("_"):
        return ""
    if isinstance(node, ast.AsyncFunctionDef):
        return f"\n    {ast.unparse(_method(node)).splitlines()[0]} ...\n"
    kind = _text(node.returns)
    return f"\n    @property\n    def {node.name}(self) -> {f'Blocking{kind}' if kind in SOURCES else kind}: ...\n"


def _method(node: ast.AsyncFunctionDef) -> ast.FunctionDef:
    """The same method without await, body and Any: a payload may be any object, options have their types."""
    arguments = node.args
    for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        if each.annotation is not None:
            each.annotation = _expression(_text(each.annotation).replace("Any", "object"))
    if arguments.kwarg is not None:
        arguments.kwarg.annotation = _expression(f"Unpack[{OPTIONS[node.name]}]" if node.name in OPTIONS else "object")
    dots: list[ast.stmt] = [ast.Expr(ast.Constant(...))]
    made = ast.FunctionDef(
        name=node.name, args=arguments, body=dots, decorator_list=[], returns=_expression(_text(node.returns))
    )
    made.type_params = []  # type: ignore[attr-defined]  # needed since Python 3.12
    return ast.fix_missing_locations(made)


def _text(annotation: ast.expr | None) -> str:
    """An annotation as text, without quotes."""
    assert annotation is not None
    return str(annotation.value) if isinstance(annotation, ast.Constant) else ast.unparse(annotation)


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _imports(trees: dict[str, ast.Module], used: set[str]) -> str:
    """Import lines for the names that are used: from where the classes' modules have them, or from these modules."""
    found = {"typing": {"Protocol", "Unpack"}, "drumbeat.pool.option_types": {*OPTIONS.values()}}
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                found.setdefault(node.module, set()).update(each.name for each in node.names if each.name in used)
            elif isinstance(node, ast.ClassDef) and node.name in used:
                found.setdefault(SOURCES[name][1], set()).add(node.name)
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

"""One word has one meaning: no two public classes share a name, and names that said nothing to a newcomer stay away."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "drumbeat"
#: Names of files, classes and functions that were replaced by the field's own words.
REPLACED = frozenset(
    {
        "PoolDesk",
        "BenchDesk",
        "FleetDesk",
        "TriggerDesk",
        "ConnectionDesk",
        "desk",
        "lives",
        "Lives",
        "unbidden",
        "patience",
        "unless",
        "Overtaken",
        "answered",
        "sight",
        "hands",
        "conduct",
        "Pulse",
        "pulse",
        "hand",
        "seat",
        "seats",
        "settling",
        "keeping",
        "asking",
        "pushing",
        "crew",
        "scene",
        "levels",
        "knowledge",
        "laboratory",
        "mend",
        "postgres_lending",
        "postgres_line",
        "Express",
        "postgres_bell",
        "sqlite_bell",
        "Ear",
        "floor",
        "news",
        "turns",
        "doubts",
        "little",
        "frequent",
        "too_small",
        "looks",
        "gather",
        "lanes",
        "places",
        "feeding",
        "supply",
        "house",
        "gate",
        "leaving",
        "renewing",
        "told",
        "chosen",
        "wanted",
        "living",
        "opening",
        "arriving",
        "outlet",
        "quick",
        "fleet_hands",
        "heart",
        "control_plane",
    }
)


@cache
def trees() -> dict[str, ast.Module]:
    return {str(path.relative_to(SOURCE)): ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}


def test_no_two_public_classes_have_the_same_name() -> None:
    found = defaultdict[str, list[str]](list)
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path)

    assert len(found) > 500
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_names_that_were_replaced_are_not_used_again() -> None:
    every = trees()
    files = [path for path in every if Path(path).stem in REPLACED]
    names = [
        f"{path}: {node.name}"
        for path, tree in every.items()
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name in REPLACED
    ]

    assert len(every) > 500
    assert files + names == []

"""drumbeat engine: list the kinds of engines and the named engines, check an engine, and show its workers and their logs."""

from collections.abc import Mapping
from typing import Any

import typer

from drumbeat.cli.options import JsonOption, StoreOption, with_control_plane
from drumbeat.cli.render import Columns, show
from drumbeat.composition.engines import KINDS, EngineKind, EngineReport
from drumbeat.core.plain import time_span

app = typer.Typer(no_args_is_help=True, help="Engines, the places where workers run: list, check, show workers and logs.")

_KIND: Columns = {
    "kind": lambda row: row["kind"],
    "what": lambda row: row["what"],
    "extra": lambda row: row["extra"],
    "usable here": lambda row: "yes" if row["problem"] is None else f"no: {row['problem']}",
}
_ENGINE: Columns = {
    "engine": lambda row: row.name,
    "kind": lambda row: row.kind,
    "price/h": lambda row: None if row.price_per_hour is None else f"{row.price_per_hour:g}",
    "starts in": lambda row: time_span(row.traits["usual_start"]) if row.traits else None,
    "traits": lambda row: _traits(row),
    "problem": lambda row: row.problem,
}


@app.command()
def kinds(as_json: JsonOption = False) -> None:
    """List the kinds of engines, the pip extra that each needs, and whether it can be used here."""
    show([_kind_json(each) for each in KINDS.values()], _KIND, as_json=as_json, nothing="no kinds of engines")


def _kind_json(kind: EngineKind) -> Mapping[str, Any]:
    problem = kind.problem
    return {
        "kind": kind.name,
        "what": kind.summary,
        "extra": kind.extra,
        "install": None if kind.extra is None else f"pip install 'drumbeat[{kind.extra}]'",
        "elsewhere": kind.elsewhere,
        "usable": problem is None,
        "problem": problem,
    }


@app.command("list")
def list_engines(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the engines named in engines.toml or drumbeat.toml, and those that need no naming, with traits and prices."""

    async def read(plane: Any) -> list[EngineReport]:
        return [plane.engines.report(each) for each in plane.engines.list()]

    show(with_control_plane(store, read, create=True), _ENGINE, as_json=as_json, nothing="no engines")


def _traits(report: EngineReport) -> str:
    return ", ".join(name.replace("_", " ") for name, value in report.traits.items() if value is True)

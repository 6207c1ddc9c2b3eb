"""drumbeat bench template: documents that runs are made from."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.syntax import Syntax

from drumbeat.cli.options import JsonOption, StoreOption, with_control_plane
from drumbeat.cli.render import Columns, console, say, show, show_json, to_json
from drumbeat.composition.offline import template_schema
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import InvalidInput
from drumbeat.core.run import Template

app = typer.Typer(no_args_is_help=True, help="Templates: documents that runs are made from.")

NameArgument = Annotated[str, typer.Argument(metavar="TEMPLATE", help="A template's name or id.")]
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="A YAML or JSON file; - is standard input.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="A setting, such as scaling.max_workers=4. Repeatable.")
]

_TEMPLATE: Columns = {
    "template": lambda template: template.name,
    "id": lambda template: template.template_id,
    "load mode": lambda template: template.config.get("load_mode"),
    "scaling": lambda template: (template.config.get("scaling") or {}).get("mode"),
    "target": lambda template: (template.config.get("target") or {}).get("url"),
    "used": lambda template: template.usage_count,
    "last used": lambda template: template.last_used_at,
    "tags": lambda template: ", ".join(template.tags) or None,
}


def read_document(file: str) -> str:
    """The text of a file, or of standard input. Raises InvalidInput."""
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except OSError as exc:
        raise InvalidInput(f"expected a template in the file {file!r}, got: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise InvalidInput(f"expected the file {file!r} to be text in UTF-8, got a byte that is not at {exc.start}") from exc


@app.command("add")
def add(
    file: FileArgument,
    name: Annotated[str | None, typer.Option("--name", help="Instead of the name in the document.")] = None,
    store: StoreOption = None,
) -> None:
    """Keep a template, checked whole."""
    text = read_document(file)
    made = with_control_plane(store, lambda plane: plane.bench().add_template(text, name), create=True)
    say(f"kept {made.name} as {made.template_id}; run it with: drumbeat bench run {shlex.quote(made.name)}")


@app.command("list")
def list_templates(
    search: Annotated[str | None, typer.Option("--search", help="Part of a name or description.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Only those with this tag.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Templates, by name."""
    rows = with_control_plane(store, lambda plane: plane.store.templates.list(search, tag))
    show(rows, _TEMPLATE, as_json=as_json, nothing="no templates; keep one with: drumbeat bench template add FILE")


@app.command("show")
def show_template(name: NameArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """One template, whole."""
    template = with_control_plane(store, lambda plane: plane.store.templates.get(name))
    if as_json:
        show_json(template)
        return
    say(f"{template.name} ({template.template_id}), used {template.usage_count} times", style="bold")
    console.print(Syntax(_document(template), "json", background_color="default"))


@app.command("edit")
def edit(
    name: NameArgument,
    file: Annotated[str | None, typer.Option("--file", help="The new document; without it, --set or your $EDITOR.")] = None,
    settings: SetOption = None,
    store: StoreOption = None,
) -> None:
    """Change a template. One that has been used is read-only: copy it."""
    text = read_document(file) if file else None
    if text is None and not settings:
        kept = with_control_plane(store, lambda plane: plane.store.templates.get(name))
        text = _edited(_document(kept))
    made = with_control_plane(store, lambda plane: plane.bench().change_template(name, text, settings or ()))
    say(f"changed {made.name}")


@app.command("copy")
def copy(
    name: NameArgument,
    new: Annotated[str, typer.Argument(metavar="NEW_NAME")],
    settings: SetOption = None,
    store: StoreOption = None,
) -> None:
    """A new template like another."""
    made = with_control_plane(store, lambda plane: plane.bench().copy_template(name, new, settings or ()))
    say(f"kept {made.name} as {made.template_id}")


@app.command("rm")
def remove(name: NameArgument, store: StoreOption = None) -> None:
    """Remove a template; runs made from it stay."""
    with_control_plane(store, lambda plane: plane.bench().remove_template(name))
    say(f"removed {name}")


@app.command("sql")
def show_sql(name: NameArgument, settings: SetOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """The SQL a run of a template would have its workers run, made for its table. Nothing is run."""

    async def work(plane: ControlPlane) -> Sequence[Any]:
        desk = plane.bench()
        return await desk.preview(await desk.document(name, settings or ()))

    found = with_control_plane(store, work)
    if as_json:
        show_json(
            [{"kind": each.kind, "weight": each.weight, "statements": [one.sql for one in each.statements]} for each in found]
        )
        return
    for each in found:
        say(f"{each.kind} ({each.weight:g})", style="bold")
        for statement in each.statements:
            say(f"  {statement.sql}")


@app.command("schema")
def schema() -> None:
    """The JSON Schema of templates, for editors."""
    show_json(template_schema())


def _document(template: Template) -> str:
    fields = {"name": template.name, "description": template.description, "tags": list(template.tags), **template.config}
    return json.dumps(json.loads(to_json(fields)), indent=2, ensure_ascii=False)


def _edited(text: str) -> str:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise InvalidInput("expected --file, --set or an editor in $EDITOR to change the template with")
    with tempfile.TemporaryDirectory(prefix="drumbeat-") as folder:
        path = Path(folder) / "template.json"
        path.write_text(text, encoding="utf-8")
        if subprocess.run([*editor.split(), str(path)], check=False).returncode:
            raise InvalidInput(f"{editor} did not end well; the template is as it was")
        return path.read_text(encoding="utf-8")

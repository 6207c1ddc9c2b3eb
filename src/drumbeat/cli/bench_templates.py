"""drumbeat bench template: templates of benchmark runs."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.syntax import Syntax

from drumbeat.cli.editor import edited_file
from drumbeat.cli.interrupt import interruptible
from drumbeat.cli.options import JsonOption, StoreOption, with_control_plane
from drumbeat.cli.render import Columns, console, say, show, show_json, to_json
from drumbeat.composition.offline import template_schema
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import InvalidInput
from drumbeat.core.run import Template

app = typer.Typer(no_args_is_help=True, help="Manage benchmark templates (YAML or JSON documents that runs are created from).")

NameArgument = Annotated[str, typer.Argument(metavar="TEMPLATE", help="Template name or id.")]
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON file; - for standard input.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="A setting, such as scaling.max_workers=4. Repeatable."),
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
_EXTENSIONS = (".yml", ".yaml", ".json")


def is_file(source: str) -> bool:
    """Whether a command's TEMPLATE|FILE argument means a file or standard input, not a saved template."""
    try:
        return source == "-" or source.endswith(_EXTENSIONS) or Path(source).is_file()
    except OSError:  # too long for a path, or in a folder that may not be read
        return False


def read_document(file: str) -> str:
    """Read the text of a file, or of standard input for ``-``. Raises InvalidInput."""
    what = "standard input" if file == "-" else f"the file {file!r}"
    try:
        return _read(file).decode("utf-8-sig")
    except OSError as exc:
        raise InvalidInput(f"cannot read the template {file!r}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise InvalidInput(f"expected {what} to be UTF-8 text, got an invalid byte at offset {exc.start}") from exc


def _read(file: str) -> bytes:
    if file != "-":
        return Path(file).read_bytes()
    with interruptible():
        return sys.stdin.buffer.read()


@app.command("add")
def add(
    file: FileArgument,
    name: Annotated[str | None, typer.Option("--name", help="Template name. Default: the name in the document")] = None,
    store: StoreOption = None,
) -> None:
    """Validate a template and save it."""
    text = read_document(file)
    made = with_control_plane(store, lambda plane: plane.bench().add_template(text, name), create=True)
    say(f"saved {made.name} as {made.template_id}; run it with: drumbeat bench run {shlex.quote(made.name)}")


@app.command("list")
def list_templates(
    search: Annotated[str | None, typer.Option("--search", help="Part of a name or description.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Only templates with this tag.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List templates by name."""
    rows = with_control_plane(store, lambda plane: plane.store.templates.list(search, tag))
    show(rows, _TEMPLATE, as_json=as_json, nothing="no templates; add one with: drumbeat bench template add FILE")


@app.command("show")
def show_template(name: NameArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show a template."""
    template = with_control_plane(store, lambda plane: plane.store.templates.get(name))
    if as_json:
        show_json(template)
        return
    say(f"{template.name} ({template.template_id}), used {template.usage_count} times", style="bold")
    console.print(Syntax(_document(template), "json", background_color="default"))


@app.command("edit")
def edit(
    name: NameArgument,
    file: Annotated[
        str | None, typer.Option("--file", help="File with the new document. Without --file and --set, $EDITOR is opened.")
    ] = None,
    settings: SetOption = None,
    store: StoreOption = None,
) -> None:
    """Change a template. A template that a run was created from is read-only: copy it instead."""
    if file or settings:
        text = read_document(file) if file else None
        made = with_control_plane(store, lambda plane: plane.bench().change_template(name, text, settings or ()))
    else:
        made = _change_in_editor(store, name)
    say(f"changed {made.name}")


def _change_in_editor(store: str | None, name: str) -> Template:
    """Change a template in an editor. Raises StaleWrite if someone else has changed the template meanwhile."""

    async def read(plane: ControlPlane) -> tuple[Template, str]:
        template = await plane.store.templates.get(name)
        return template, plane.bench().revision(template)

    template, seen = with_control_plane(store, read)
    with edited_file(_document(template), "template.json", f"drumbeat bench template edit {shlex.quote(name)} --file") as path:
        text = read_document(str(path))
        return with_control_plane(store, lambda plane: plane.bench().change_template(template.template_id, text, seen=seen))


@app.command("copy")
def copy(
    name: NameArgument,
    new: Annotated[str, typer.Argument(metavar="NEW_NAME", help="Name of the copy.")],
    settings: SetOption = None,
    store: StoreOption = None,
) -> None:
    """Copy a template."""
    made = with_control_plane(store, lambda plane: plane.bench().copy_template(name, new, settings or ()))
    say(f"saved {made.name} as {made.template_id}")


@app.command("rm")
def remove(name: NameArgument, store: StoreOption = None) -> None:
    """Remove a template. Runs created from it stay."""
    with_control_plane(store, lambda plane: plane.bench().remove_template(name))
    say(f"removed {name}")


@app.command("sql")
def show_sql(name: NameArgument, settings: SetOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show the SQL that workers would run for a template. Nothing is executed."""

    async def work(plane: ControlPlane) -> Sequence[Any]:
        bench = plane.bench()
        return await bench.preview(await bench.document(name, settings or ()))

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
    """Print the JSON Schema of templates, for editors."""
    show_json(template_schema())


def _document(template: Template) -> str:
    fields = {"name": template.name, "description": template.description, "tags": list(template.tags), **template.config}
    return json.dumps(json.loads(to_json(fields)), indent=2, ensure_ascii=False)

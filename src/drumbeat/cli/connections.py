"""drumbeat connection: databases under test by name, their passwords sealed."""

import sys
from getpass import getpass
from typing import Annotated, Any

import typer

from drumbeat.cli.options import JsonOption, StoreOption, with_control_plane
from drumbeat.cli.render import Columns, say, show, show_json
from drumbeat.core.connection import StoredConnection
from drumbeat.core.errors import InvalidInput

app = typer.Typer(no_args_is_help=True, help="Connections: databases under test by name, their passwords sealed.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A connection's name.")]
PasswordOption = Annotated[
    bool, typer.Option("--password", help="Ask for the password; where nobody can be asked, read a line of standard input.")
]
DescriptionOption = Annotated[str | None, typer.Option("--description", help="What it is, in a few words.")]

_CONNECTION: Columns = {
    "connection": lambda each: each.name,
    "url": lambda each: each.url,
    "password": lambda each: f"sealed with key {each.secret.key_id}" if each.secret else None,
    "default": lambda each: "yes" if each.is_default else "",
    "changed": lambda each: each.updated_at,
    "description": lambda each: each.description,
}


def public(connection: StoredConnection) -> dict[str, Any]:
    """What anybody may see of a connection."""
    secret = connection.secret
    told = {
        name: getattr(connection, name) for name in ("name", "url", "description", "is_default", "created_at", "updated_at")
    }
    return {**told, "has_password": secret is not None, "key_id": secret.key_id if secret else None}


@app.command()
def add(
    name: NameArgument,
    url: Annotated[str, typer.Argument(metavar="URL", help="Where the database is, without a password.")],
    password: PasswordOption = False,
    description: DescriptionOption = None,
    store: StoreOption = None,
) -> None:
    """Keep a connection; templates name it as target.connection. Its password is sealed with a key in DRUMBEAT_KEY."""
    secret = _password() if password else None
    made = with_control_plane(store, lambda plane: plane.connections().add(name, url, secret, description), create=True)
    say(f"kept {made.name}: {made.url}" + (", password sealed" if made.secret else ""))


@app.command()
def change(
    name: NameArgument,
    url: Annotated[str | None, typer.Option("--url", help="Another URL; a password must be given again for it.")] = None,
    password: PasswordOption = False,
    description: DescriptionOption = None,
    default: Annotated[bool, typer.Option("--default", help="Have it offered first.")] = False,
    store: StoreOption = None,
) -> None:
    """Change a connection. Runs that were made with another URL do not go on with the new one."""
    secret = _password() if password else None

    async def work(plane: Any) -> StoredConnection:
        made: StoredConnection = await plane.connections().change(name, url, secret, description)
        return await plane.store.connections.set_default(name) if default else made

    made = with_control_plane(store, work)
    say(f"changed {made.name}: {made.url}" + (", offered first" if made.is_default else ""))


@app.command("list")
def list_connections(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Connections by name. No password is ever shown."""
    rows = with_control_plane(store, lambda plane: plane.store.connections.list())
    if as_json:
        show_json([public(each) for each in rows])
    else:
        show(rows, _CONNECTION, as_json=False, nothing="no connections; keep one with: drumbeat connection add NAME URL")


@app.command("test")
def try_out(name: NameArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Ask the database whether it is there. Exit code 1 when it is not."""
    found = with_control_plane(store, lambda plane: plane.connections().test(name))
    if as_json:
        show_json(found)
    else:
        say(f"{name}: {found.location} answers" if found.ok else f"{name}: {found.detail}", style=None if found.ok else "red")
    if not found.ok:
        raise typer.Exit(1)


@app.command()
def tables(
    name: NameArgument,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="A table, to see its columns.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """The tables of a connection's database, or one table's columns."""
    if table is None:
        rows = with_control_plane(store, lambda plane: plane.connections().tables(name))
        columns: Columns = {"schema": lambda each: each.schema, "table": lambda each: each.name, "rows": lambda each: each.rows}
        show(rows, columns, as_json=as_json, nothing=f"the database of {name} has no tables; see: drumbeat bench prepare")
        return
    found = with_control_plane(store, lambda plane: plane.connections().table(name, table))
    kinds: Columns = {
        "column": lambda each: each.name,
        "type": lambda each: each.native_type,
        "nullable": lambda each: each.nullable,
    }
    show(found.columns, kinds, as_json=as_json, nothing=f"{table} has no columns")


@app.command("rm")
def remove(name: NameArgument, store: StoreOption = None) -> None:
    """Remove a connection; templates and runs that name it cannot be run any more."""

    async def work(plane: Any) -> None:
        await plane.store.connections.get(name)
        await plane.store.connections.delete(name)

    with_control_plane(store, work)
    say(f"removed {name}")


@app.command()
def reseal(store: StoreOption = None) -> None:
    """Seal every password with the first key of DRUMBEAT_KEY; after that the others may be taken away."""
    done = with_control_plane(store, lambda plane: plane.connections().reseal())
    say(f"resealed: {', '.join(done)}" if done else "all passwords are sealed with the first key already")


def _password() -> str:
    """Asked for, so that it is in no history and no list of processes."""
    said = getpass("Password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not said:
        raise InvalidInput("expected a password, got none")
    return said

"""drumbeat connection: named database connections for benchmarks, with encrypted passwords."""

import sys
from getpass import getpass
from typing import Annotated, Any

import typer

from drumbeat.cli.options import JsonOption, StoreOption, with_control_plane
from drumbeat.cli.render import Columns, say, show, show_json
from drumbeat.core.connection import StoredConnection
from drumbeat.core.errors import InvalidInput

app = typer.Typer(no_args_is_help=True, help="Manage named connections to databases under test, with encrypted passwords.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Connection name.")]
PasswordOption = Annotated[
    bool, typer.Option("--password", help="Prompt for the password; without a terminal, read one line of standard input.")
]
DescriptionOption = Annotated[str | None, typer.Option("--description", help="Short description.")]

_CONNECTION: Columns = {
    "connection": lambda each: each.name,
    "url": lambda each: each.url,
    "password": lambda each: f"encrypted with key {each.secret.key_id}" if each.secret else None,
    "default": lambda each: "yes" if each.is_default else "",
    "updated": lambda each: each.updated_at,
    "description": lambda each: each.description,
}


def public(connection: StoredConnection) -> dict[str, Any]:
    """Return the fields of a connection that are not secret."""
    secret = connection.secret
    fields = {
        name: getattr(connection, name) for name in ("name", "url", "description", "is_default", "created_at", "updated_at")
    }
    return {**fields, "has_password": secret is not None, "key_id": secret.key_id if secret else None}


@app.command()
def add(
    name: NameArgument,
    url: Annotated[str, typer.Argument(metavar="URL", help="Database URL, without a password.")],
    password: PasswordOption = False,
    description: DescriptionOption = None,
    store: StoreOption = None,
) -> None:
    """Add a connection. Templates refer to it as target.connection. Its password is encrypted with the key in DRUMBEAT_KEY."""
    secret = _password() if password else None
    made = with_control_plane(store, lambda plane: plane.connections().add(name, url, secret, description), create=True)
    say(f"added {made.name}: {made.url}" + (", password encrypted" if made.secret else ""))


@app.command()
def change(
    name: NameArgument,
    url: Annotated[str | None, typer.Option("--url", help="New URL; a stored password must then be given again.")] = None,
    password: PasswordOption = False,
    description: DescriptionOption = None,
    default: Annotated[bool, typer.Option("--default", help="Make it the default connection.")] = False,
    store: StoreOption = None,
) -> None:
    """Change a connection. Runs created with the old URL do not continue on the new one."""
    secret = _password() if password else None

    async def work(plane: Any) -> StoredConnection:
        made: StoredConnection = await plane.connections().change(name, url, secret, description)
        return await plane.store.connections.set_default(name) if default else made

    made = with_control_plane(store, work)
    say(f"changed {made.name}: {made.url}" + (", the default" if made.is_default else ""))


@app.command("list")
def list_connections(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List connections. Passwords are never shown."""
    rows = with_control_plane(store, lambda plane: plane.store.connections.list())
    if as_json:
        show_json([public(each) for each in rows])
    else:
        show(rows, _CONNECTION, as_json=False, nothing="no connections; add one with: drumbeat connection add NAME URL")


@app.command("test")
def check_connection(name: NameArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Test a connection. Exit code 1 if the database does not answer."""
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
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="Show the columns of this table.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the tables of a connection's database, or the columns of one table."""
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
    """Remove a connection. Templates and runs that use it can no longer be run."""

    async def work(plane: Any) -> None:
        await plane.store.connections.get(name)
        await plane.store.connections.delete(name)

    with_control_plane(store, work)
    say(f"removed {name}")


@app.command()
def reseal(store: StoreOption = None) -> None:
    """Encrypt every password with the first key in DRUMBEAT_KEY; the other keys can then be removed."""
    done = with_control_plane(store, lambda plane: plane.connections().reseal())
    say(f"re-encrypted: {', '.join(done)}" if done else "all passwords are already encrypted with the first key")


def _password() -> str:
    """Prompt for the password, which keeps it out of the shell history and the process list."""
    try:
        password = getpass("Password: ") if sys.stdin.isatty() else sys.stdin.buffer.readline().decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise InvalidInput("expected the password on standard input to be UTF-8 text, got something else") from None
    if not password:
        raise InvalidInput("expected a password, got none")
    return password

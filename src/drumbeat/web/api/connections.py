"""API for stored connections to databases under test. Passwords are accepted, but never returned."""

from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

from fastapi import Response
from pydantic import AfterValidator, ConfigDict, Field, SecretStr

from drumbeat.core.connection import LONGEST_PASSWORD, LONGEST_URL, StoredConnection
from drumbeat.core.errors import InvalidInput
from drumbeat.web.api.answers import created, problems, set_location
from drumbeat.web.api.entry import OPERATORS, PREFIX, Plane
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.shapes import Id, RequestBody, Shape
from drumbeat.web.problems import prefix_field

router = checked("connections")

CONNECTIONS = f"{PREFIX}/connections"
_CONNECTION = f"{CONNECTIONS}/{{name}}"
_LINKS = {name: f"{name}_connection" for name in ("show", "change", "test", "remove")}


def _readable(url: str) -> str:
    """Return the URL. Raises ValueError if it cannot be parsed; the message does not repeat the URL and its password."""
    try:
        urlsplit(url).port  # noqa: B018  (raises ValueError)
    except ValueError:
        raise ValueError(
            "expected SCHEME://USER@HOST:PORT/DATABASE with a port from 1 to 65535, got a URL that cannot be parsed"
        ) from None
    return url


Url = Annotated[
    str,
    Field(min_length=1, max_length=LONGEST_URL, description="URL of the database, without a password."),
    AfterValidator(_readable),
]
Password = Annotated[SecretStr, Field(max_length=LONGEST_PASSWORD, description="Stored encrypted, and never returned.")]
Words = Annotated[str, Field(max_length=1000)]


class NewConnection(RequestBody):
    """A database connection to save."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "orders", "url": "sqlite:///target.db"}]})

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
    url: Url
    password: Password | None = None
    description: Words | None = None


class ConnectionChange(RequestBody):
    """The fields of a connection to change. An empty password removes the stored password."""

    url: Url | None = None
    password: Password | None = None
    description: Words | None = None


class ConnectionShape(Shape):
    """A connection, without its password."""

    name: str
    url: str
    description: str | None
    has_password: bool
    key_id: str | None = Field(description="Id of the key that the password is encrypted with.")
    is_default: bool
    created_at: datetime | None
    updated_at: datetime | None


class TestedShape(Shape):
    """Result of a connection test: whether the database answered, and if not, why not."""

    ok: bool
    location: str | None
    detail: str | None


class TableShape(Shape):
    """A table, with an estimate of its number of rows."""

    schema_name: str | None
    name: str
    rows: int | None
    reference: str = Field(description="The table as a template names it: with its schema, in quotes where that is needed.")


class ColumnShape(Shape):
    """A column of a table. `native_type` is the name that the database itself uses for the type."""

    name: str
    type: str
    native_type: str
    nullable: bool


class WholeTable(Shape):
    """A table, described for generating SQL: its columns, its key with the range of key values, and its time column."""

    name: str
    columns: list[ColumnShape]
    key: str | None
    key_low: int | None
    key_high: int | None
    time_column: str | None
    rows: int | None


def _shown(connection: StoredConnection) -> ConnectionShape:
    secret = connection.secret
    fields = {
        name: getattr(connection, name) for name in ("name", "url", "description", "is_default", "created_at", "updated_at")
    }
    return ConnectionShape(**fields, has_password=secret is not None, key_id=secret.key_id if secret else None)


def _revealed(password: SecretStr | None) -> str | None:
    return None if password is None else password.get_secret_value()


@router.post(
    CONNECTIONS,
    status_code=201,
    operation_id="make_connection",
    responses={**created(_LINKS, "name", "name"), **problems(409, 501)},
)
async def create_connection(body: NewConnection, plane: Plane, response: Response) -> ConnectionShape:
    """Store a connection. Templates use it by its name, in `target.connection`."""
    with prefix_field("url"):
        stored = await plane.connections().add(body.name, body.url, _revealed(body.password), body.description)
    set_location(response, f"{CONNECTIONS}/{quote(stored.name)}")
    return _shown(stored)


@router.get(CONNECTIONS, operation_id="list_connections", responses=problems(409))
async def list_connections(plane: Plane) -> list[ConnectionShape]:
    """List all stored connections, sorted by name."""
    return [_shown(each) for each in await plane.store.connections.list()]


@router.get(_CONNECTION, operation_id="show_connection", responses=problems(404, 409))
async def show_connection(name: Id, plane: Plane) -> ConnectionShape:
    """Return one stored connection, without its password."""
    return _shown(await plane.store.connections.get(name))


@router.patch(_CONNECTION, operation_id="change_connection", responses=problems(404, 409, 501))
async def change_connection(name: Id, body: ConnectionChange, plane: Plane) -> ConnectionShape:
    """Change a connection. With a new URL, send the password again: the stored password belongs to the old URL."""
    if not body.model_fields_set:
        raise InvalidInput("url: expected a new url, password or description, got none of them")
    with prefix_field("url"):
        return _shown(await plane.connections().change(name, body.url, _revealed(body.password), body.description))


@router.post(f"{_CONNECTION}/default", operation_id="default_connection", responses=problems(404, 409))
async def set_default_connection(name: Id, plane: Plane) -> ConnectionShape:
    """Make a connection the default: new forms have it already selected."""
    return _shown(await plane.store.connections.set_default(name))


@router.post(f"{_CONNECTION}/test", operation_id="test_connection", responses=problems(404, 409, 501))
async def test_connection(name: Id, plane: Plane) -> TestedShape:
    """Test a connection: connect to its database."""
    return TestedShape.model_validate(await plane.connections().test(name))


@router.get(
    f"{_CONNECTION}/tables", operation_id="connection_tables", dependencies=OPERATORS, responses=problems(404, 409, 501)
)
async def list_tables(name: Id, plane: Plane) -> list[TableShape]:
    """List the tables of the connection's database, at most 1000."""
    found = await plane.connections().tables(name)
    return [TableShape(schema_name=each.schema, name=each.name, rows=each.rows, reference=each.reference) for each in found]


@router.get(
    f"{_CONNECTION}/tables/{{table}}",
    operation_id="connection_table",
    dependencies=OPERATORS,
    responses=problems(404, 409, 501),
)
async def show_table(name: Id, table: Id, plane: Plane) -> WholeTable:
    """Return one table of the connection's database, with its columns."""
    found: Any = await plane.connections().table(name, table)
    return WholeTable.model_validate(found)


@router.delete(_CONNECTION, status_code=204, operation_id="remove_connection", responses=problems(404, 409))
async def remove_connection(name: Id, plane: Plane) -> None:
    """Delete a connection. Templates that use it can no longer be run, and runs that used it cannot be repeated."""
    await plane.store.connections.get(name)
    await plane.store.connections.delete(name)

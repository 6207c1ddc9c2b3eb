"""Settings: connections to databases under test, what an hour costs, and the store."""

from nicegui import ui

from drumbeat import __version__
from drumbeat.core.connection import StoredConnection
from drumbeat.web.house import House
from drumbeat.web.pages.asking import button, confirmed, say
from drumbeat.web.pages.fleet_one import is_scaled
from drumbeat.web.pages.forms import Form, text_of
from drumbeat.web.pages.frame import empty, heading, page
from drumbeat.web.pages.parts import Column, Table, words

_CONNECTIONS = (
    Column(name="name", read=lambda row: row.name),
    Column(name="url", loose=True, label="URL", read=lambda row: row.url),
    Column(name="password", read=lambda row: "sealed" if row.secret else "none"),
    Column(name="default", read=lambda row: row.is_default),
    Column(name="description", loose=True, read=lambda row: row.description),
    Column(name="changed", label="changed (UTC)", read=lambda row: row.updated_at or row.created_at),
)
_PRICES = (
    Column(name="of", read=lambda row: row[0], href=lambda row: row[1]),
    Column(name="worker", label="worker an hour", read=lambda row: row[2], number=True),
    Column(name="database", label="database an hour", read=lambda row: row[3], number=True),
    Column(name="currency", read=lambda row: row[4]),
)


def add(house: House) -> None:
    @page(house, "/settings", "Settings")
    async def settings() -> None:
        heading("Settings")
        await _connections(house)
        await _prices(house)
        await _store(house)


async def _connections(house: House) -> None:
    desk = house.plane.connections()

    async def show() -> None:
        found = await house.plane.store.connections.list()
        table.show(found)
        table.element.set_visibility(bool(found))
        none.set_visibility(not found)

    async def test(name: str) -> None:
        told = await desk.test(name)
        say(f"{name} answers: {told.location}." if told.ok else f"{name} does not answer: {told.detail}", wrong=not told.ok)

    async def prefer(name: str) -> None:
        await house.plane.store.connections.set_default(name)
        await show()

    async def delete(name: str) -> None:
        if await confirmed(f"Forget the connection {name}? Templates that name it cannot be run then.", "Delete"):
            await house.plane.store.connections.delete(name)
            await show()

    async def new() -> None:
        made = await _form(house)
        if made is not None:
            say(f"{made.name} is kept.")
            await show()

    with ui.row().classes("w-full items-center"):
        heading("Connections", 2)
        ui.space()
        button("Add a connection", new, icon="add")
    with ui.column().classes("w-full") as none:
        empty("No connection yet. A template may name one instead of a URL, and its password stays sealed in the store.")
    table = Table(
        "Connections", _CONNECTIONS, key=lambda row: row.name, deeds={"Test": test, "Make default": prefer, "Delete": delete}
    )
    await show()


async def _form(house: House) -> StoredConnection | None:
    """A connection somebody adds. What they type as a password leaves the form only sealed."""
    form = Form("Add a connection", "Add")
    with form.card:
        name = form.field("name", ui.input("Name"))
        url = form.field("url", ui.input("URL", placeholder="postgresql://user@host:5432/database"))
        password = form.field("password", ui.input("Password", password=True).props('autocomplete="new-password"'))
        description = form.field("description", ui.input("Description"))
    if not house.plane.vault().is_open:
        with form.card:
            ui.label("DRUMBEAT_KEY is not set: this server can keep connections without a password only.").classes(
                "text-caption"
            )

    async def add_it() -> StoredConnection:
        secret = str(getattr(password, "value", "") or "") or None
        return await house.plane.connections().add(text_of(name), text_of(url), secret, text_of(description) or None)

    return await form.ask(add_it)


async def _prices(house: House) -> None:
    """What an hour costs, wherever it is said: each template and each fleet has its own."""
    heading("Prices", 2)
    templates = await house.plane.store.templates.list()
    rows: list[tuple[object, ...]] = []
    for each in templates:
        prices = each.config.get("prices") or {}
        if prices.get("worker_hour") is not None or prices.get("target_hour") is not None:
            way = f"/templates/{each.template_id}"
            rows.append((each.name, way, prices.get("worker_hour"), prices.get("target_hour"), prices.get("currency", "USD")))
    for pool in await house.plane.store.pools.list():
        if is_scaled(pool) and pool.policy.get("price_per_hour") is not None:
            rows.append((pool.pool_id, f"/fleet/{pool.pool_id}/policy", pool.policy["price_per_hour"], None, None))
    if rows:
        Table("Prices", _PRICES, key=lambda row: str(row[1])).show(rows)
    else:
        ui.label("No template and no fleet has a price; set one in a template's prices, or a fleet's policy.").classes("faint")


async def _store(house: House) -> None:
    heading("This server", 2)
    report = await house.plane.store.upkeep.check()
    facts = {
        "version": __version__,
        "store": report.backend,
        "location": report.location,
        "database": report.server,
        "schema": f"{report.schema_version} of {report.latest_version}",
        "rows": ", ".join(f"{words(count)} {name}" for name, count in report.rows.items() if count),
        "passwords": "sealed with a key" if house.plane.vault().is_open else "DRUMBEAT_KEY is not set",
    }
    with ui.element("dl").classes("grid w-full gap-x-4 gap-y-1").style("grid-template-columns: max-content 1fr"):
        for name, value in facts.items():
            with ui.element("dt").classes("faint"):
                ui.label(name)
            with ui.element("dd"):
                ui.label(value)
    for problem in report.problems:
        ui.label(problem)

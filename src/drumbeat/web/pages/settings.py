"""Settings: connections to databases under test, what an hour costs, and the store."""

from typing import Any
from urllib.parse import quote

from nicegui import ui

from drumbeat import __version__
from drumbeat.bench.model import Prices
from drumbeat.core.connection import StoredConnection
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import button, confirmed, may_change, say
from drumbeat.web.pages.components import PageTable, TableColumn, words
from drumbeat.web.pages.forms import Form, text_of
from drumbeat.web.pages.frame import empty, heading, page

_CONNECTIONS = (
    TableColumn(name="name", read=lambda row: row.name),
    TableColumn(name="url", loose=True, label="URL", read=lambda row: row.url),
    TableColumn(name="password", read=lambda row: "sealed" if row.secret else "none"),
    TableColumn(name="default", read=lambda row: row.is_default),
    TableColumn(name="description", loose=True, read=lambda row: row.description),
    TableColumn(name="changed", label="changed (UTC)", read=lambda row: row.updated_at or row.created_at),
)
_PRICES = (
    TableColumn(name="of", read=lambda row: row[0], href=lambda row: row[1]),
    TableColumn(name="worker", label="worker an hour", read=lambda row: row[2], number=True),
    TableColumn(name="database", label="database an hour", read=lambda row: row[3], number=True),
    TableColumn(name="currency", read=lambda row: row[4]),
)


def add(house: AppState) -> None:
    @page(house, "/settings", "Settings")
    async def settings() -> None:
        heading("Settings")
        await _connections(house)
        await _prices(house)
        await _store(house)


async def _connections(house: AppState) -> None:
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
    table = PageTable(
        "Connections", _CONNECTIONS, key=lambda row: row.name, deeds={"Test": test, "Make default": prefer, "Delete": delete}
    )
    await show()


async def _form(house: AppState) -> StoredConnection | None:
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


async def _prices(house: AppState) -> None:
    """What an hour costs, wherever it is said: the usual prices, those of templates and those of fleets."""

    async def change() -> None:
        if await _usual_form(house) is not None:
            await _say_usual(house, usual)

    with ui.row().classes("w-full items-center"):
        heading("Prices", 2)
        ui.space()
        if may_change():
            button("Set usual prices", change, icon="edit")
    usual = ui.label().props('aria-label="Usual prices"')
    await _say_usual(house, usual)
    await _other_prices(house)


async def _say_usual(house: AppState, label: ui.label) -> None:
    found = await house.plane.bench().prices()
    said = [f"{of}: {words(each)} {found.currency} an hour" for of, each in _hours(found).items() if each is not None]
    label.text = "Usual, where a template gives none: " + ("; ".join(said) or "no price")


def _hours(prices: Prices) -> dict[str, float | None]:
    return {"a worker": prices.worker_hour, "the database under test": prices.target_hour}


async def _usual_form(house: AppState) -> Prices | None:
    kept = await house.plane.bench().prices()
    form = Form("Usual prices", "Set")
    with form.card:
        ui.label("For runs whose template gives none. A run keeps the prices it was made with.").classes("text-caption")
        worker = form.field("worker_hour", ui.number("A worker, an hour", value=kept.worker_hour, min=0).props("clearable"))
        target = form.field("target_hour", ui.number("The database, an hour", value=kept.target_hour, min=0).props("clearable"))
        currency = form.field("currency", ui.input("Currency", value=kept.currency))

    async def set_them() -> Prices:
        prices = Prices(worker_hour=price_of(worker), target_hour=price_of(target), currency=text_of(currency))
        return await house.plane.bench().set_prices(prices)

    return await form.ask(set_them)


def price_of(element: Any) -> float | None:
    """What somebody typed; None: nothing."""
    return None if element.value is None else float(element.value)


async def _other_prices(house: AppState) -> None:
    templates = await house.plane.store.templates.list()
    rows: list[tuple[object, ...]] = []
    for each in templates:
        prices = each.config.get("prices") or {}
        if prices.get("worker_hour") is not None or prices.get("target_hour") is not None:
            way = f"/templates/{each.template_id}"
            rows.append((each.name, way, prices.get("worker_hour"), prices.get("target_hour"), prices.get("currency", "USD")))
    for pool in await house.plane.store.pools.list():
        if pool.is_scaled and pool.policy.get("price_per_hour") is not None:
            way = f"/fleet/{quote(pool.pool_id, safe='')}/policy"
            rows.append((pool.pool_id, way, pool.policy["price_per_hour"], None, None))
    if rows:
        PageTable("Prices", _PRICES, key=lambda row: str(row[1])).show(rows)
    else:
        ui.label("No template and no fleet has a price of its own.").classes("faint")


async def _store(house: AppState) -> None:
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

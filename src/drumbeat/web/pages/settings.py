"""The settings page: connections to databases under test, prices per hour, and the server."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from nicegui import ui

from drumbeat import __version__
from drumbeat.bench.model import Prices
from drumbeat.core.connection import StoredConnection
from drumbeat.core.errors import MissingExtra
from drumbeat.core.run import Template
from drumbeat.web.app_state import AppState
from drumbeat.web.pages.actions import button, confirm, may_change, notify
from drumbeat.web.pages.components import PageTable, TableColumn, as_text
from drumbeat.web.pages.fleet_text import money
from drumbeat.web.pages.forms import Form, text_of
from drumbeat.web.pages.frame import empty_state, heading, page

_CONNECTIONS = (
    TableColumn(name="name", read=lambda row: row.name),
    TableColumn(name="url", loose=True, label="URL", read=lambda row: row.url),
    TableColumn(name="password", read=lambda row: "encrypted" if row.secret else "none"),
    TableColumn(name="default", read=lambda row: row.is_default),
    TableColumn(name="description", loose=True, read=lambda row: row.description),
    TableColumn(name="changed", label="updated (UTC)", read=lambda row: row.updated_at or row.created_at),
)
_PRICES = (
    TableColumn(name="of", label="template or fleet", read=lambda row: row[0], href=lambda row: row[1]),
    TableColumn(name="worker", label="worker price per hour", read=lambda row: money(row[2]), number=True),
    TableColumn(name="database", label="database price per hour", read=lambda row: money(row[3]), number=True),
    TableColumn(name="credit", label="price of a Snowflake credit", read=lambda row: money(row[4]), number=True),
    TableColumn(name="currency", read=lambda row: row[5]),
)


def add(app: AppState) -> None:
    @page(app, "/settings", "Settings")
    async def settings() -> None:
        heading("Settings")
        for section in (_connections, _prices, _server):
            try:
                await section(app)
            except MissingExtra as exc:
                empty_state(str(exc))


async def _connections(app: AppState) -> None:
    """Show the connections to databases under test, with buttons to add, test and delete them. Raises MissingExtra."""
    connections = app.plane.connections()

    async def show() -> None:
        found = await app.plane.store.connections.list()
        table.show(found)
        table.element.set_visibility(bool(found))
        placeholder.set_visibility(not found)

    async def test(name: str) -> None:
        result = await connections.test(name)
        text = f"connection OK ({result.location})" if result.ok else f"connection failed: {result.detail}"
        notify(f"{name}: {text}", error=not result.ok)

    async def prefer(name: str) -> None:
        await app.plane.store.connections.set_default(name)
        await show()

    async def delete(name: str) -> None:
        if await confirm(f"Delete the connection {name}? Templates that use it can no longer run.", "Delete"):
            await app.plane.store.connections.delete(name)
            await show()

    async def new() -> None:
        added = await _form(app)
        if added is not None:
            notify(f"Connection {added.name} saved.")
            await show()

    with ui.row().classes("w-full items-center"):
        heading("Saved database connections", 2)
        ui.space()
        button("Add a connection", new, icon="add")
    with ui.column().classes("w-full") as placeholder:
        empty_state("No connections yet. Templates can use a connection instead of a URL; its password is stored encrypted.")
    table = PageTable(
        "Saved database connections",
        _CONNECTIONS,
        key=lambda row: row.name,
        actions={"Test": test, "Make default": prefer, "Delete": delete},
    )
    await show()


async def _form(app: AppState) -> StoredConnection | None:
    """Show the form for a new database connection, and store and return what the user enters; None if the user cancels."""
    form = Form("Add a connection", "Add")
    with form.card:
        name = form.field("name", ui.input("Name"))
        url = form.field("url", ui.input("URL", placeholder="postgresql://user@host:5432/database"))
        password = form.field("password", ui.input("Password", password=True).props('autocomplete="new-password"'))
        description = form.field("description", ui.input("Description"))
    if not app.plane.vault().is_open:
        with form.card:
            ui.label("DRUMBEAT_KEY is not set: only connections without a password can be added.").classes("text-caption")

    async def add_connection() -> StoredConnection:
        secret = str(getattr(password, "value", "") or "") or None
        return await app.plane.connections().add(text_of(name), text_of(url), secret, text_of(description) or None)

    return await form.ask(add_connection)


async def _prices(app: AppState) -> None:
    """Show prices per hour: the default prices, and the prices that templates and fleets set. Raises MissingExtra."""

    async def change() -> None:
        if await _default_prices_form(app) is not None:
            await _show_default_prices(app, default_prices)

    with ui.row().classes("w-full items-center"):
        heading("Prices", 2)
        ui.space()
        if may_change():
            button("Set default prices", change, icon="edit")
    default_prices = ui.label().props('aria-label="Default prices"')
    await _show_default_prices(app, default_prices)
    await _other_prices(app)


async def _show_default_prices(app: AppState, label: ui.label) -> None:
    found = await app.plane.bench().prices()
    hourly = {"worker": found.worker_hour, "database under test": found.target_hour}
    prices = [f"{of}: {money(price)} {found.currency} per hour" for of, price in hourly.items() if price is not None]
    if found.credit is not None:
        prices.append(f"Snowflake: {money(found.credit)} {found.currency} per credit")
    label.text = "Default for templates without prices: " + ("; ".join(prices) or "not set")


async def _default_prices_form(app: AppState) -> Prices | None:
    old = await app.plane.bench().prices()
    form = Form("Default prices", "Save")
    with form.card:
        ui.label("For runs whose template sets no prices. Existing runs keep their prices.").classes("text-caption")
        worker = form.field("worker_hour", ui.number("Worker price per hour", value=old.worker_hour, min=0).props("clearable"))
        target = form.field(
            "target_hour", ui.number("Database price per hour", value=old.target_hour, min=0).props("clearable")
        )
        credit = form.field("credit", ui.number("Price of a Snowflake credit", value=old.credit, min=0).props("clearable"))
        currency = form.field("currency", ui.input("Currency", value=old.currency))

    async def save() -> Prices:
        hourly = {"worker_hour": price_of(worker), "target_hour": price_of(target)}
        return await app.plane.bench().set_prices(Prices(**hourly, credit=price_of(credit), currency=text_of(currency)))

    return await form.ask(save)


def price_of(element: Any) -> float | None:
    """Return the typed price; None if the field is empty."""
    return None if element.value is None else float(element.value)


def template_prices(templates: Sequence[Template]) -> list[tuple[object, ...]]:
    """Return a row for each template that sets a price: its name and link, the prices, and their currency."""
    rows: list[tuple[object, ...]] = []
    for each in templates:
        prices = each.config.get("prices") or {}
        amounts = [prices.get(name) for name in ("worker_hour", "target_hour", "credit")]
        if any(amount is not None for amount in amounts):
            rows.append((each.name, f"/templates/{each.template_id}", *amounts, prices.get("currency", "USD")))
    return rows


async def _other_prices(app: AppState) -> None:
    templates = await app.plane.store.templates.list()
    rows = template_prices(templates)
    for pool in await app.plane.store.pools.list():
        if pool.is_scaled and pool.policy.get("price_per_hour") is not None:
            href = f"/fleet/{quote(pool.pool_id, safe='')}/policy"
            rows.append((pool.pool_id, href, pool.policy["price_per_hour"], None, None, None))
    if rows:
        PageTable("Prices", _PRICES, key=lambda row: str(row[1])).show(rows)
    else:
        ui.label("No template or fleet sets its own prices.").classes("faint")


async def _server(app: AppState) -> None:
    heading("Server", 2)
    report = await app.plane.store.upkeep.check()
    facts = {
        "version": __version__,
        "store type": report.backend,
        "store location": report.location,
        "store server version": report.server,
        "schema version": f"{report.schema_version} of {report.latest_version}",
        "stored rows": ", ".join(f"{as_text(count)} {name}" for name, count in report.rows.items() if count),
        "password encryption": "on" if app.plane.vault().is_open else "off: DRUMBEAT_KEY is not set",
    }
    with ui.element("dl").classes("grid w-full gap-x-4 gap-y-1").style("grid-template-columns: max-content 1fr"):
        for name, value in facts.items():
            with ui.element("dt").classes("faint"):
                ui.label(name)
            with ui.element("dd"):
                ui.label(value)
    for problem in report.problems:
        ui.label(problem)

"""TPC-C: what is loaded is what the standard says, and what must hold holds under load, from many connections."""

from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from bench.workloads.standard.consistency import check_consistency
from bench.workloads.standard.given import TARGETS, drive, empty_database, empty_file
from drumbeat.bench.model import NonUniform
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.targets.open import open_target
from drumbeat.bench.workloads.prepare import prepare
from drumbeat.bench.workloads.standard import standard
from drumbeat.bench.workloads.standard.tpcc import Size
from drumbeat.bench.workloads.standard.tpcc.names import LAST_NAMES
from drumbeat.bench.workloads.standard.tpcc.statements import delivered
from drumbeat.bench.workloads.standard.tpcc.transactions import DELIVERY, NEW_ORDER, PAYMENT, PAYMENT_BY_NAME, STOCK_LEVEL

SMALL = 0.01


@pytest.fixture(params=TARGETS)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Target]:
    async with empty_database(request.param, request, tmp_path) as target:
        await prepare(target, standard("tpcc", SMALL))
        yield target


def rows(name: str, scale: float) -> list[dict[str, Any]]:
    table = next(each for each in standard("tpcc", scale).tables if each.name == f"tpcc_{name}")
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows(0, table.count)]


# What is loaded


@pytest.mark.parametrize("warehouses", [1, 2, 10])
def test_a_warehouse_is_as_large_as_the_standard_says(warehouses: int) -> None:
    counts = {table.name.removeprefix("tpcc_"): table.count for table in standard("tpcc", warehouses).tables}

    lines = counts.pop("order_line")
    assert counts == {
        "item": 100_000,
        "warehouse": warehouses,
        "delivery": warehouses,
        "district": 10 * warehouses,
        "customer": 30_000 * warehouses,
        "history": 30_000 * warehouses,
        "orders": 30_000 * warehouses,
        "new_order": 9_000 * warehouses,
        "stock": 100_000 * warehouses,
    }
    assert abs(lines - 300_000 * warehouses) < 10


def test_below_one_there_is_a_small_warehouse_to_try_things_out() -> None:
    assert Size.of(0.01) == Size(warehouses=1, customers=30, items=1_000)
    assert Size.of(0.0001) == Size(warehouses=1, customers=10, items=100)


def test_orders_have_five_to_fifteen_lines_ten_on_average() -> None:
    said = [order["o_ol_cnt"] for order in rows("orders", 0.1)]

    assert set(said) == set(range(5, 16))
    assert abs(sum(said) / len(said) - 10) < 0.01


def test_every_customer_has_ordered_once_and_not_in_turn() -> None:
    orders = rows("orders", 0.1)
    customers = defaultdict(list)
    for order in orders:
        customers[order["o_d_id"]].append(order["o_c_id"])

    assert len(customers) == 10
    assert all(sorted(each) == list(range(1, 301)) for each in customers.values())
    assert all(each != sorted(each) for each in customers.values())


def test_the_last_three_in_ten_orders_are_new() -> None:
    orders = rows("orders", 0.1)

    assert all((order["o_carrier_id"] is None) == (order["o_id"] > 210) for order in orders)
    assert [(each["no_d_id"], each["no_o_id"]) for each in rows("new_order", 0.1)] == [
        (order["o_d_id"], order["o_id"]) for order in orders if order["o_carrier_id"] is None
    ]


def test_last_names_are_put_together_from_syllables() -> None:
    assert len(set(LAST_NAMES)) == 1_000
    assert (LAST_NAMES[0], LAST_NAMES[371], LAST_NAMES[999]) == ("BARBARBAR", "PRICALLYOUGHT", "EINGEINGEING")


def test_a_district_has_every_name_that_is_asked_for() -> None:
    names: dict[int, Counter[str]] = defaultdict(Counter)
    for customer in rows("customer", 0.5):
        names[customer["c_d_id"]][customer["c_last"]] += 1

    assert all(set(each) == set(LAST_NAMES) for each in names.values())
    assert max(names[1].values()) > 2


@pytest.mark.parametrize(("table", "column"), [("item", "i_data"), ("stock", "s_data")])
def test_one_in_ten_says_that_it_is_original(table: str, column: str) -> None:
    data = [row[column] for row in rows(table, 0.1)]

    assert 0.08 < sum("ORIGINAL" in each for each in data) / len(data) < 0.12
    assert all(26 <= len(each) <= 50 for each in data)


# The transactions


def test_the_mix_is_the_standards() -> None:
    weights = {operation.kind: operation.weight for operation in standard("tpcc", 1).load.operations}

    assert weights[NEW_ORDER] == 45
    assert weights[PAYMENT] + weights[PAYMENT_BY_NAME] == 43
    assert weights[DELIVERY] == weights[STOCK_LEVEL] == 4


def test_a_new_orders_items_are_asked_for_in_ascending_order() -> None:
    new_order = next(each for each in standard("tpcc", 1).load.operations if each.kind == NEW_ORDER)
    values = [value for statement in new_order.statements for value in statement.values]

    _, *items = [(value.low, value.high) for value in values if isinstance(value, NonUniform)]
    assert items == [(tenth * 10_000 + 1, tenth * 10_000 + 10_000) for tenth in range(10)]


async def test_what_is_loaded_holds_all_conditions(target: Target) -> None:
    assert await check_consistency(target, standard("tpcc", SMALL)) == ()


async def test_an_order_that_comes_in_the_middle_of_a_delivery_is_left_to_the_next(postgres_url: str) -> None:
    """The district has no new order when the delivery begins, and gets one between its first and second statement."""
    workload = standard("tpcc", 0.01)
    first, *others = [sql.replace(":w", "1").replace(":carrier", "1").replace(":now", "now()") for sql in delivered(1)]
    async with open_target(postgres_url) as target:
        await prepare(target, workload)
        deliverer, customer = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
        await customer.execute("UPDATE tpcc_orders SET o_carrier_id = 1 WHERE o_d_id = 1 AND o_carrier_id IS NULL")
        await customer.execute("UPDATE tpcc_order_line SET ol_delivery_d = now() WHERE ol_d_id = 1 AND ol_delivery_d IS NULL")
        await customer.execute("DELETE FROM tpcc_new_order WHERE no_d_id = 1")
        async with deliverer.transaction():
            await deliverer.execute(first)
            async with customer.transaction():
                await customer.execute("UPDATE tpcc_orders SET o_carrier_id = NULL WHERE o_d_id = 1 AND o_id = 1")
                await customer.execute("UPDATE tpcc_order_line SET ol_delivery_d = NULL WHERE ol_d_id = 1 AND ol_o_id = 1")
                await customer.execute("INSERT INTO tpcc_new_order (no_w_id, no_d_id, no_o_id) VALUES (1, 1, 1)")
            for sql in others:
                await deliverer.execute(sql)
        new = await customer.fetchval("SELECT count(*) FROM tpcc_new_order WHERE no_d_id = 1")
        broken = [each.condition for each in await check_consistency(target, workload)]
        for sql in (first, *others):
            await deliverer.execute(sql)
        new_later = await customer.fetchval("SELECT count(*) FROM tpcc_new_order WHERE no_d_id = 1")
        await deliverer.close()
        await customer.close()

    assert not any(each.startswith(("5:", "7:")) for each in broken), broken
    assert (new, new_later) == (1, 0)


async def test_all_conditions_hold_after_a_load_from_many_connections(target: Target) -> None:
    """DuckDB lets the first of two writers win and fails the other, which is counted and leaves no trace."""
    workload = standard("tpcc", SMALL)
    connections = 2 if target.traits.name == "duckdb" else 8

    driven = await drive(
        target, workload.load, operations=60 if target.traits.name == "duckdb" else 400, connections=connections
    )

    assert target.traits.name == "duckdb" or (driven.failed, list(driven.samples)) == (0, [])
    assert await check_consistency(target, workload) == ()
    assert set(driven.rows(NEW_ORDER)) == {25}
    ((ordered,),) = await target.fetch("SELECT COUNT(*) FROM tpcc_orders WHERE o_id > 30")
    assert ordered == len(driven.rows(NEW_ORDER))
    ((turns,),) = await target.fetch("SELECT SUM(dl_count) FROM tpcc_delivery")
    assert turns == len(driven.rows(DELIVERY))


@pytest.mark.parametrize(
    ("what", "sql", "broken"),
    [
        ("a payment lost", "UPDATE tpcc_warehouse SET w_ytd = w_ytd - 0.01", {"1", "8"}),
        ("a district's payment lost", "UPDATE tpcc_district SET d_ytd = d_ytd - 1 WHERE d_id = 3", {"1", "9"}),
        ("an order number used twice", "UPDATE tpcc_district SET d_next_o_id = 30 WHERE d_id = 2", {"2"}),
        ("an order number skipped", "UPDATE tpcc_district SET d_next_o_id = 32 WHERE d_id = 2", {"2"}),
        ("a new order lost", "DELETE FROM tpcc_new_order WHERE no_d_id = 1 AND no_o_id = 25", {"3", "5"}),
        ("a line lost", "DELETE FROM tpcc_order_line WHERE ol_d_id = 1 AND ol_o_id = 7 AND ol_number = 1", {"4", "6"}),
        ("a carrier lost", "UPDATE tpcc_orders SET o_carrier_id = NULL WHERE o_d_id = 1 AND o_id = 1", {"5", "7"}),
        ("half a delivery", "UPDATE tpcc_order_line SET ol_delivery_d = NULL WHERE ol_d_id = 1 AND ol_o_id = 1", {"7"}),
        ("a balance changed", "UPDATE tpcc_customer SET c_balance = 1 WHERE c_d_id = 1 AND c_id = 1", {"10", "12"}),
        ("history lost", "DELETE FROM tpcc_history WHERE h_c_d_id = 4 AND h_c_id = 4", {"8", "9", "10"}),
    ],
)
async def test_what_does_not_hold_is_found_and_named(tmp_path: Path, what: str, sql: str, broken: set[str]) -> None:
    async with empty_file("sqlite", tmp_path) as target:
        await prepare(target, standard("tpcc", SMALL))
        await target.define([sql])

        violations = await check_consistency(target, standard("tpcc", SMALL))

    assert {violation.condition.partition(":")[0] for violation in violations} == broken
    assert all(violation.count >= 1 and violation.examples for violation in violations)

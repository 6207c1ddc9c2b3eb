"""TPC-C's five transactions, in the standard's shares of the load."""

from collections.abc import Callable

from drumbeat.bench.model import Either, Load, NonUniform, Now, Operation, Pick, RandomNumber, SameAs, Value, ValueType
from drumbeat.bench.workloads.standard.script import Named, Places, operation, transaction
from drumbeat.bench.workloads.standard.tpcc import statements
from drumbeat.bench.workloads.standard.tpcc.names import LAST_NAMES
from drumbeat.bench.workloads.standard.tpcc.size import DISTRICTS, Size

LINES = 10  #: how many lines (items) a new order has

NEW_ORDER, PAYMENT, DELIVERY, STOCK_LEVEL = "NEW_ORDER", "PAYMENT", "DELIVERY", "STOCK_LEVEL"
PAYMENT_BY_NAME, ORDER_STATUS, ORDER_STATUS_BY_NAME = "PAYMENT_BY_NAME", "ORDER_STATUS", "ORDER_STATUS_BY_NAME"


def load(size: Size) -> Load:
    """Build the TPC-C mix: of 100 operations, 45 new orders, 43 payments, 4 order statuses, 4 deliveries, 4 stock levels."""
    return Load(
        name="tpcc",
        operations=(
            new_order(size, 45),
            payment(size, 17),
            payment_by_name(size, 26),
            order_status(size, 2),
            order_status_by_name(size, 2),
            delivery(size, 4),
            stock_level(size, 4),
        ),
    )


def new_order(size: Size, weight: int) -> Operation:
    """Build the transaction in which a customer orders ten items; one item in a hundred comes from another warehouse."""
    values: dict[str, Value | Callable[[Places], Value]] = {**_where(size), "c": _customer(size), "now": Now()}
    for line in range(1, LINES + 1):
        values[f"i{line}"] = _item(size, line)
        values[f"s{line}"] = _mostly("w", RandomNumber(low=1, high=size.warehouses), 0.99)
        values[f"q{line}"] = RandomNumber(low=1, high=10)
    lines = [sql for line in range(1, LINES + 1) for sql in statements.order_line(line)]
    return transaction(NEW_ORDER, weight, values, *statements.ORDER, *lines)


def payment(size: Size, weight: int) -> Operation:
    values = {**_where(size), **_payer(size), "c": _customer(size)}
    return transaction(PAYMENT, weight, values, *statements.PAYMENT, *statements.paid_by(":c"))


def payment_by_name(size: Size, weight: int) -> Operation:
    values = {**_where(size), **_payer(size), "name": _last_name(size)}
    return transaction(
        PAYMENT_BY_NAME, weight, values, *statements.PAYMENT, *statements.paid_by(statements.namesake(":cw", ":cd"))
    )


def order_status(size: Size, weight: int) -> Operation:
    values = {**_where(size), "c": _customer(size)}
    return transaction(ORDER_STATUS, weight, values, *statements.status_of(":c"), reads=True)


def order_status_by_name(size: Size, weight: int) -> Operation:
    values = {**_where(size), "name": _last_name(size)}
    return transaction(ORDER_STATUS_BY_NAME, weight, values, *statements.status_of(statements.namesake(":w", ":d")), reads=True)


def delivery(size: Size, weight: int) -> Operation:
    """Build the transaction that delivers the oldest new order of each district of a warehouse."""
    values = {**_where(size), "carrier": RandomNumber(low=1, high=10), "now": Now()}
    districts = [sql for district in range(1, DISTRICTS + 1) for sql in statements.delivered(district)]
    return transaction(DELIVERY, weight, values, statements.NEXT_DELIVERY, *districts)


def stock_level(size: Size, weight: int) -> Operation:
    values = {**_where(size), "threshold": RandomNumber(low=10, high=20)}
    return operation(STOCK_LEVEL, weight, values, statements.STOCK_LEVEL, reads=True)


def _where(size: Size) -> Named:
    return {"w": RandomNumber(low=1, high=size.warehouses), "d": RandomNumber(low=1, high=DISTRICTS)}


def _payer(size: Size) -> Named:
    """Return value sources for a payment. In 85 of 100 payments, the customer belongs to the warehouse that is paid, in the
    others to a random warehouse."""
    return {
        "cw": _mostly("w", RandomNumber(low=1, high=size.warehouses), 0.85),
        "cd": lambda places: SameAs(index=places["d"], type=ValueType.INT),
        "amount": RandomNumber(low=100, high=500_000, scale=2, type=ValueType.FLOAT),
        "now": Now(),
    }


def _mostly(name: str, other: Value, share: float) -> Callable[[Places], Value]:
    return lambda places: Either(usual=SameAs(index=places[name], type=ValueType.INT), other=other, share=share)


def _customer(size: Size) -> Value:
    return NonUniform(a=1023, low=1, high=size.customers, c=259)


def _last_name(size: Size) -> Value:
    return Pick(values=LAST_NAMES, by=NonUniform(a=255, low=0, high=size.names - 1, c=123))


def _item(size: Size, line: int) -> Value:
    """Return a source for the item of an order line. Line n uses the n-th tenth of the items, so stock is locked in order."""
    tenth = size.items // LINES
    return NonUniform(a=1023, low=(line - 1) * tenth + 1, high=line * tenth, c=7911 % tenth)

"""TPC-C's tables. The stock table is filled last, and no operation adds or deletes its rows: once it is full, all tables have
been filled."""

from collections.abc import Mapping

from drumbeat.bench.workloads.standard.rows import row_generator
from drumbeat.bench.workloads.standard.table import StandardTable, table
from drumbeat.bench.workloads.standard.tpcc.rows import RowsOf, lines_before
from drumbeat.bench.workloads.standard.tpcc.size import Size

_ADDRESS = {"street_1": "VARCHAR(20)", "street_2": "VARCHAR(20)", "city": "VARCHAR(20)", "state": "CHAR(2)", "zip": "CHAR(9)"}


def _address(prefix: str) -> dict[str, str]:
    return {f"{prefix}_{name}": kind for name, kind in _ADDRESS.items()}


_ITEM = {"i_id": "INTEGER", "i_im_id": "INTEGER", "i_name": "VARCHAR(24)", "i_price": "NUMERIC(5,2)", "i_data": "VARCHAR(50)"}
_WAREHOUSE = {
    "w_id": "INTEGER",
    "w_name": "VARCHAR(10)",
    **_address("w"),
    "w_tax": "NUMERIC(4,4)",
    "w_ytd": "NUMERIC(12,2)",
}
_DELIVERY = {"dl_w_id": "INTEGER", "dl_count": "INTEGER"}
_DISTRICT = {
    "d_w_id": "INTEGER",
    "d_id": "INTEGER",
    "d_name": "VARCHAR(10)",
    **_address("d"),
    "d_tax": "NUMERIC(4,4)",
    "d_ytd": "NUMERIC(12,2)",
    "d_next_o_id": "INTEGER",
}
_CUSTOMER = {
    "c_w_id": "INTEGER",
    "c_d_id": "INTEGER",
    "c_id": "INTEGER",
    "c_first": "VARCHAR(16)",
    "c_middle": "CHAR(2)",
    "c_last": "VARCHAR(16)",
    **_address("c"),
    "c_phone": "CHAR(16)",
    "c_since": "TIMESTAMP",
    "c_credit": "CHAR(2)",
    "c_credit_lim": "NUMERIC(12,2)",
    "c_discount": "NUMERIC(4,4)",
    "c_balance": "NUMERIC(12,2)",
    "c_ytd_payment": "NUMERIC(12,2)",
    "c_payment_cnt": "INTEGER",
    "c_delivery_cnt": "INTEGER",
    "c_data": "VARCHAR(500)",
}
_HISTORY = {
    "h_c_w_id": "INTEGER",
    "h_c_d_id": "INTEGER",
    "h_c_id": "INTEGER",
    "h_w_id": "INTEGER",
    "h_d_id": "INTEGER",
    "h_date": "TIMESTAMP",
    "h_amount": "NUMERIC(6,2)",
    "h_data": "VARCHAR(24)",
}
_ORDER = {
    "o_w_id": "INTEGER",
    "o_d_id": "INTEGER",
    "o_id": "INTEGER",
    "o_c_id": "INTEGER",
    "o_entry_d": "TIMESTAMP",
    "o_carrier_id": "INTEGER",
    "o_ol_cnt": "INTEGER",
    "o_all_local": "INTEGER",
}
_NEW_ORDER = {"no_w_id": "INTEGER", "no_d_id": "INTEGER", "no_o_id": "INTEGER"}
_ORDER_LINE = {
    "ol_w_id": "INTEGER",
    "ol_d_id": "INTEGER",
    "ol_o_id": "INTEGER",
    "ol_number": "INTEGER",
    "ol_i_id": "INTEGER",
    "ol_supply_w_id": "INTEGER",
    "ol_delivery_d": "TIMESTAMP",
    "ol_quantity": "INTEGER",
    "ol_amount": "NUMERIC(6,2)",
    "ol_dist_info": "CHAR(24)",
}
_STOCK = {
    "s_w_id": "INTEGER",
    "s_i_id": "INTEGER",
    "s_quantity": "INTEGER",
    **{f"s_dist_{district:02}": "CHAR(24)" for district in range(1, 11)},
    "s_ytd": "INTEGER",
    "s_order_cnt": "INTEGER",
    "s_remote_cnt": "INTEGER",
    "s_data": "VARCHAR(50)",
}


def tables(size: Size) -> tuple[StandardTable, ...]:
    """Return TPC-C's tables in the order in which they are filled."""
    orders = size.all_customers
    return (
        _table("item", _ITEM, 1, size, size.items),
        _table("warehouse", _WAREHOUSE, 1, size, size.warehouses),
        _table("delivery", _DELIVERY, 1, size, size.warehouses),
        _table("district", _DISTRICT, 2, size, size.districts),
        _table("customer", _CUSTOMER, 3, size, orders, index=("c_w_id", "c_d_id", "c_last", "c_first")),
        _table("history", _HISTORY, 3, size, orders, unique=False, changes=True),
        _table("orders", _ORDER, 3, size, orders, index=("o_w_id", "o_d_id", "o_c_id", "o_id"), changes=True),
        _table("new_order", _NEW_ORDER, 3, size, size.districts * (size.customers - size.delivered), changes=True),
        _table("order_line", _ORDER_LINE, 4, size, lines_before(orders), changes=True),
        _table("stock", _STOCK, 2, size, size.warehouses * size.items),
    )


def _table(
    name: str,
    columns: Mapping[str, str],
    key: int,
    size: Size,
    count: int,
    *,
    index: tuple[str, ...] = (),
    unique: bool = True,
    changes: bool = False,
) -> StandardTable:
    """Describe one of TPC-C's tables; its first ``key`` columns are its key."""
    names = tuple(columns)[:key]
    return table(
        f"tpcc_{name}",
        {column: f"{kind} NOT NULL" if column in names else kind for column, kind in columns.items()},
        key=names,
        rows=row_generator(f"tpcc_{name}", getattr(RowsOf(size), name)),
        count=count,
        unique=unique,
        indexes=(index,) if index else (),
        changes=changes,
    )

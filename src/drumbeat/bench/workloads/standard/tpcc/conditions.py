"""TPC-C's consistency conditions (clause 3.3.2 of the standard). The eleventh is left out: it is true only for orders that
existed before the benchmark. Amounts can differ by half a cent, because not every database stores them as decimals."""

from drumbeat.bench.workloads.standard.scaled import Condition

_PARTS = {
    "{queue}": "(SELECT no_w_id, no_d_id, MIN(no_o_id) AS oldest, MAX(no_o_id) AS newest, COUNT(*) AS waiting"
    " FROM tpcc_new_order GROUP BY no_w_id, no_d_id) AS queue",
    "{counted}": "(SELECT ol_w_id, ol_d_id, ol_o_id, COUNT(*) AS total, COUNT(ol_delivery_d) AS delivered"
    " FROM tpcc_order_line GROUP BY ol_w_id, ol_d_id, ol_o_id) AS counted",
    "{received}": "(SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) AS amount FROM tpcc_orders, tpcc_order_line"
    " WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id AND ol_delivery_d IS NOT NULL"
    " GROUP BY o_w_id, o_d_id, o_c_id) AS received ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id",
    "{paid}": "(SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) AS amount FROM tpcc_history"
    " GROUP BY h_c_w_id, h_c_d_id, h_c_id) AS paid ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id",
}


def _condition(*, name: str, sql: str) -> Condition:
    for part, text in _PARTS.items():
        sql = sql.replace(part, text)
    return Condition(name=name, sql=sql)


CONDITIONS = (
    _condition(
        name="1: a warehouse's year-to-date is that of its districts",
        sql="SELECT w_id, w_ytd, districts FROM tpcc_warehouse, (SELECT d_w_id, SUM(d_ytd) AS districts FROM tpcc_district"
        " GROUP BY d_w_id) AS summed WHERE d_w_id = w_id AND ABS(w_ytd - districts) > 0.005",
    ),
    _condition(
        name="2: a district's next order number follows its last order",
        sql="SELECT d_w_id, d_id, d_next_o_id, latest FROM tpcc_district LEFT JOIN (SELECT o_w_id, o_d_id, MAX(o_id) AS latest"
        " FROM tpcc_orders GROUP BY o_w_id, o_d_id) AS ordered ON o_w_id = d_w_id AND o_d_id = d_id"
        " WHERE latest IS NULL OR d_next_o_id - 1 <> latest",
    ),
    _condition(
        name="2: the newest new order is the last order",
        sql="SELECT d_w_id, d_id, d_next_o_id, newest FROM tpcc_district, {queue}"
        " WHERE no_w_id = d_w_id AND no_d_id = d_id AND d_next_o_id - 1 <> newest",
    ),
    _condition(
        name="3: a district's new orders have no gaps",
        sql="SELECT no_w_id, no_d_id, oldest, newest, waiting FROM {queue} WHERE newest - oldest + 1 <> waiting",
    ),
    _condition(
        name="4: a district has as many order lines as its orders say",
        sql="SELECT o_w_id, o_d_id, said, total FROM"
        " (SELECT o_w_id, o_d_id, SUM(o_ol_cnt) AS said FROM tpcc_orders GROUP BY o_w_id, o_d_id) AS ordered,"
        " (SELECT ol_w_id, ol_d_id, COUNT(*) AS total FROM tpcc_order_line GROUP BY ol_w_id, ol_d_id) AS counted"
        " WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND said <> total",
    ),
    _condition(
        name="5: an order has a carrier unless it is new",
        sql="SELECT o_w_id, o_d_id, o_id FROM tpcc_orders LEFT JOIN tpcc_new_order"
        " ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id"
        " WHERE (o_carrier_id IS NULL AND no_o_id IS NULL) OR (o_carrier_id IS NOT NULL AND no_o_id IS NOT NULL)",
    ),
    _condition(
        name="6: an order has as many lines as it says",
        sql="SELECT o_w_id, o_d_id, o_id, o_ol_cnt, total FROM tpcc_orders LEFT JOIN {counted}"
        " ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE total IS NULL OR total <> o_ol_cnt",
    ),
    _condition(
        name="7: an order's lines are delivered when it has a carrier",
        sql="SELECT o_w_id, o_d_id, o_id, delivered FROM tpcc_orders, {counted}"
        " WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id"
        " AND delivered <> CASE WHEN o_carrier_id IS NULL THEN 0 ELSE total END",
    ),
    _condition(
        name="8: a warehouse's year-to-date is what the history says",
        sql="SELECT w_id, w_ytd, paid FROM tpcc_warehouse, (SELECT h_w_id, SUM(h_amount) AS paid FROM tpcc_history"
        " GROUP BY h_w_id) AS summed WHERE h_w_id = w_id AND ABS(w_ytd - paid) > 0.005",
    ),
    _condition(
        name="9: a district's year-to-date is what the history says",
        sql="SELECT d_w_id, d_id, d_ytd, paid FROM tpcc_district, (SELECT h_w_id, h_d_id, SUM(h_amount) AS paid"
        " FROM tpcc_history GROUP BY h_w_id, h_d_id) AS summed"
        " WHERE h_w_id = d_w_id AND h_d_id = d_id AND ABS(d_ytd - paid) > 0.005",
    ),
    _condition(
        name="10: a customer owes what was delivered, less what was paid",
        sql="SELECT c_w_id, c_d_id, c_id, c_balance FROM tpcc_customer LEFT JOIN {received} LEFT JOIN {paid}"
        " WHERE ABS(COALESCE(received.amount, 0) - COALESCE(paid.amount, 0) - c_balance) > 0.005",
    ),
    _condition(
        name="12: a customer's balance and payments make what was delivered",
        sql="SELECT c_w_id, c_d_id, c_id, c_balance, c_ytd_payment FROM tpcc_customer LEFT JOIN {received}"
        " WHERE ABS(c_balance + c_ytd_payment - COALESCE(received.amount, 0)) > 0.005",
    ),
)

"""TPC-C's statements in portable SQL. A new order first increments the next order number in its district's row. This locks
the row, so that no two orders get the same number."""

ORDER = (
    "SELECT c_discount, c_last, c_credit, w_tax FROM tpcc_warehouse, tpcc_customer"
    " WHERE w_id = :w AND c_w_id = :w AND c_d_id = :d AND c_id = :c",
    "UPDATE tpcc_district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = :w AND d_id = :d",
    "SELECT d_next_o_id - 1 AS o_id, d_tax FROM tpcc_district WHERE d_w_id = :w AND d_id = :d",
    "INSERT INTO tpcc_orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, o_all_local)"
    " SELECT d_w_id, d_id, d_next_o_id - 1, :c, :now, NULL, 10,"
    " CASE WHEN d_w_id = :s1 AND d_w_id = :s2 AND d_w_id = :s3 AND d_w_id = :s4 AND d_w_id = :s5"
    " AND d_w_id = :s6 AND d_w_id = :s7 AND d_w_id = :s8 AND d_w_id = :s9 AND d_w_id = :s10 THEN 1 ELSE 0 END"
    " FROM tpcc_district WHERE d_w_id = :w AND d_id = :d",
    "INSERT INTO tpcc_new_order (no_w_id, no_d_id, no_o_id)"
    " SELECT d_w_id, d_id, d_next_o_id - 1 FROM tpcc_district WHERE d_w_id = :w AND d_id = :d",
)

_LINE = (
    "UPDATE tpcc_stock SET"
    " s_quantity = CASE WHEN s_quantity >= :q{line} + 10 THEN s_quantity - :q{line} ELSE s_quantity - :q{line} + 91 END,"
    " s_ytd = s_ytd + :q{line}, s_order_cnt = s_order_cnt + 1,"
    " s_remote_cnt = s_remote_cnt + CASE WHEN s_w_id = :w THEN 0 ELSE 1 END"
    " WHERE s_w_id = :s{line} AND s_i_id = :i{line}",
    "INSERT INTO tpcc_order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_delivery_d, ol_quantity,"
    " ol_amount, ol_dist_info) SELECT d_w_id, d_id, d_next_o_id - 1, {line}, i_id, s_w_id, NULL, :q{line}, i_price * :q{line},"
    " CASE d_id WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05"
    " WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09 ELSE s_dist_10 END"
    " FROM tpcc_district, tpcc_item, tpcc_stock"
    " WHERE d_w_id = :w AND d_id = :d AND i_id = :i{line} AND s_w_id = :s{line} AND s_i_id = :i{line}",
)

PAYMENT = (
    "UPDATE tpcc_warehouse SET w_ytd = w_ytd + :amount WHERE w_id = :w",
    "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM tpcc_warehouse WHERE w_id = :w",
    "UPDATE tpcc_district SET d_ytd = d_ytd + :amount WHERE d_w_id = :w AND d_id = :d",
    "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM tpcc_district WHERE d_w_id = :w AND d_id = :d",
)

_PAID = (
    "SELECT c_id, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_since, c_credit,"
    " c_credit_lim, c_discount, c_balance FROM tpcc_customer WHERE c_w_id = :cw AND c_d_id = :cd AND c_id = {customer}",
    "UPDATE tpcc_customer SET c_balance = c_balance - :amount, c_ytd_payment = c_ytd_payment + :amount,"
    " c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = :cw AND c_d_id = :cd AND c_id = {customer}",
    "INSERT INTO tpcc_history (h_c_w_id, h_c_d_id, h_c_id, h_w_id, h_d_id, h_date, h_amount, h_data)"
    " SELECT c_w_id, c_d_id, c_id, w_id, :d, :now, :amount, w_name FROM tpcc_customer, tpcc_warehouse"
    " WHERE w_id = :w AND c_w_id = :cw AND c_d_id = :cd AND c_id = {customer}",
)

_LAST_ORDER = "(SELECT MAX(o_id) FROM tpcc_orders WHERE o_w_id = :w AND o_d_id = :d AND o_c_id = {customer})"
_STATUS = (
    "SELECT c_balance, c_first, c_middle, c_last FROM tpcc_customer WHERE c_w_id = :w AND c_d_id = :d AND c_id = {customer}",
    "SELECT o_id, o_entry_d, o_carrier_id FROM tpcc_orders WHERE o_w_id = :w AND o_d_id = :d AND o_id = {last}",
    "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM tpcc_order_line"
    " WHERE ol_w_id = :w AND ol_d_id = :d AND ol_o_id = {last}",
)

# The middle one, by first name, of the customers with a last name. The rows are counted in a derived table because MySQL
# cannot update a table that a subquery reads.
_NAMESAKE = (
    "(SELECT c_id FROM (SELECT c_id, ROW_NUMBER() OVER (ORDER BY c_first, c_id) AS place, COUNT(*) OVER () AS total"
    " FROM tpcc_customer WHERE c_w_id = {w} AND c_d_id = {d} AND c_last = :name) AS namesakes"
    " WHERE 2 * place IN (total, total + 1))"
)

NEXT_DELIVERY = "UPDATE tpcc_delivery SET dl_count = dl_count + 1 WHERE dl_w_id = :w"

_OLDEST = "(SELECT MIN(no_o_id) FROM tpcc_new_order WHERE no_w_id = :w AND no_d_id = {district})"
# The first statement sets the carrier of the oldest order. If a district has no order, one may arrive before the next
# statement; it has no carrier and must not be changed. MySQL cannot delete from a table that a subquery reads, unless the
# subquery is a derived table.
_DELIVERED = (
    "UPDATE tpcc_orders SET o_carrier_id = :carrier WHERE o_w_id = :w AND o_d_id = {district} AND o_id = {oldest}",
    "UPDATE tpcc_customer SET c_delivery_cnt = c_delivery_cnt + 1, c_balance = c_balance + (SELECT SUM(ol_amount)"
    " FROM tpcc_order_line WHERE ol_w_id = :w AND ol_d_id = {district} AND ol_o_id = {oldest})"
    " WHERE c_w_id = :w AND c_d_id = {district} AND c_id ="
    " (SELECT o_c_id FROM tpcc_orders WHERE o_w_id = :w AND o_d_id = {district} AND o_id = {oldest}"
    " AND o_carrier_id IS NOT NULL)",
    "UPDATE tpcc_order_line SET ol_delivery_d = :now WHERE ol_w_id = :w AND ol_d_id = {district} AND ol_o_id = {oldest}"
    " AND EXISTS (SELECT 1 FROM tpcc_orders WHERE o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id"
    " AND o_carrier_id IS NOT NULL)",
    "DELETE FROM tpcc_new_order WHERE no_w_id = :w AND no_d_id = {district} AND no_o_id = (SELECT oldest FROM"
    " (SELECT MIN(no_o_id) AS oldest FROM tpcc_new_order WHERE no_w_id = :w AND no_d_id = {district}) AS waiting)"
    " AND EXISTS (SELECT 1 FROM tpcc_orders WHERE o_w_id = no_w_id AND o_d_id = no_d_id AND o_id = no_o_id"
    " AND o_carrier_id IS NOT NULL)",
)

STOCK_LEVEL = (
    "SELECT COUNT(DISTINCT s_i_id) FROM tpcc_district, tpcc_order_line, tpcc_stock WHERE d_w_id = :w AND d_id = :d"
    " AND ol_w_id = d_w_id AND ol_d_id = d_id AND ol_o_id >= d_next_o_id - 20 AND ol_o_id < d_next_o_id"
    " AND s_w_id = d_w_id AND s_i_id = ol_i_id AND s_quantity < :threshold"
)


def order_line(line: int) -> list[str]:
    """Return the SQL that takes the item of one order line from the stock and adds it to the order."""
    return [sql.replace("{line}", str(line)) for sql in _LINE]


def namesake(warehouse: str, district: str) -> str:
    """Return SQL that finds a customer's id by the last name ``:name``: of all namesakes, the middle one by first name."""
    return _NAMESAKE.replace("{w}", warehouse).replace("{d}", district)


def paid_by(customer: str) -> list[str]:
    return [sql.replace("{customer}", customer) for sql in _PAID]


def status_of(customer: str) -> list[str]:
    return [sql.replace("{last}", _LAST_ORDER).replace("{customer}", customer) for sql in _STATUS]


def delivered(district: int) -> list[str]:
    """Return the SQL that delivers a district's oldest new order, if it has one."""
    return [sql.replace("{oldest}", _OLDEST).replace("{district}", str(district)) for sql in _DELIVERED]

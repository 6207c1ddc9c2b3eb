"""TPC-C: a wholesale supplier's orders. All five transactions in the standard's mix, each a fixed list of statements.

It differs from the standard so that every value can be drawn before a transaction begins:

- an order always has ten lines (the standard's mean) instead of five to fifteen;
- the n-th line's item comes from the n-th tenth of the items, so that all transactions lock stock in the same order;
- no order is rolled back for a missing item (the standard: one in a hundred);
- a payment does not change ``c_data``;
- deliveries for one warehouse run one after the other (``tpcc_delivery``), as in the standard's queue.

There are no keying and think times, and the results are not official TPC-C results.
"""

from drumbeat.bench.workloads.standard.scaled import Scaled, Standard
from drumbeat.bench.workloads.standard.tpcc.conditions import CONDITIONS
from drumbeat.bench.workloads.standard.tpcc.size import Size
from drumbeat.bench.workloads.standard.tpcc.tables import tables
from drumbeat.bench.workloads.standard.tpcc.transactions import load

__all__ = ["TPCC", "Size"]


def _at(scale: float) -> Scaled:
    size = Size.of(scale)
    return Scaled(name="tpcc", scale=scale, tables=tables(size), load=load(size), conditions=CONDITIONS)


TPCC = Standard(
    name="tpcc",
    summary="orders, payments, deliveries and stock of a wholesaler; the scale is the number of warehouses (600,000 rows each)",
    at=_at,
)

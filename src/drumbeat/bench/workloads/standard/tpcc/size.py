"""How large a TPC-C database is."""

from dataclasses import dataclass

from drumbeat.bench.workloads.standard.rows import scaled_count

DISTRICTS = 10  #: of a warehouse
NAMES = 1_000  #: different last names, where there are as many customers


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """As many warehouses as the scale says; below 1 a single one with fewer items and customers, to try things out."""

    warehouses: int
    customers: int  #: of a district, and orders, one for each
    items: int

    @classmethod
    def of(cls, scale: float) -> "Size":
        part = min(1.0, scale)
        return cls(
            warehouses=scaled_count("tpcc", scale, 1),
            customers=max(10, scaled_count("tpcc", part, 3_000)),
            items=max(100, scaled_count("tpcc", part, 100_000) // 10 * 10),
        )

    @property
    def districts(self) -> int:
        return self.warehouses * DISTRICTS

    @property
    def all_customers(self) -> int:
        return self.districts * self.customers

    @property
    def delivered(self) -> int:
        """Of a district's orders; those behind it are new."""
        return self.customers * 7 // 10

    @property
    def names(self) -> int:
        return min(NAMES, self.customers)

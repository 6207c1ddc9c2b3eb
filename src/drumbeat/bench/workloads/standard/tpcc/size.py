"""How many warehouses, customers and items a TPC-C database has at a scale."""

from dataclasses import dataclass

from drumbeat.bench.workloads.standard.rows import scaled_count

DISTRICTS = 10  #: how many districts a warehouse has
NAMES = 1_000  #: how many different last names there are in a district with enough customers


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a TPC-C database. The scale is the number of warehouses; a scale below 1 means one small warehouse."""

    warehouses: int
    customers: int  #: customers per district; each has one order at first
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
        """Return how many orders of a district count as delivered before the benchmark: the first 70 %; others are new."""
        return self.customers * 7 // 10

    @property
    def names(self) -> int:
        return min(NAMES, self.customers)

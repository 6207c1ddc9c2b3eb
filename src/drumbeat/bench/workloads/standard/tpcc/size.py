"""The size of a TPC-C database."""

from dataclasses import dataclass

from drumbeat.bench.workloads.standard.rows import scaled_count

DISTRICTS = 10  #: per warehouse
NAMES = 1_000  #: different last names, if a district has that many customers


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The scale is the number of warehouses; below 1, one warehouse with fewer items and customers, for trials."""

    warehouses: int
    customers: int  #: per district; each has one order
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
        """How many of a district's orders are delivered; the later ones are new."""
        return self.customers * 7 // 10

    @property
    def names(self) -> int:
        return min(NAMES, self.customers)

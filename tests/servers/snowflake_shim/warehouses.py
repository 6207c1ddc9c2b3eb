"""Warehouses: size, clusters, suspended or not, and how many statements each runs at once."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from servers.snowflake_shim.failures import Refusal
from servers.snowflake_shim.sql_text import Token, text_of, tokens

SIZES = ("X-Small", "Small", "Medium", "Large", "X-Large", "2X-Large", "3X-Large", "4X-Large", "5X-Large", "6X-Large")
_SPELLINGS = {
    **{size.upper(): size for size in SIZES},
    **{size.upper().replace("-", ""): size for size in SIZES[:5]},
    **{f"X{number}LARGE": f"{number}X-Large" for number in range(2, 7)},
    "XXLARGE": "2X-Large",
    "XXXLARGE": "3X-Large",
}  #: 2XLARGE is none of them


@dataclass(slots=True, kw_only=True, eq=False)
class Warehouse:
    """One warehouse. ``slots`` and ``service_seconds`` are what a test gives it to be slow with."""

    name: str
    size: str = "X-Small"
    kind: str = "STANDARD"
    state: str = "SUSPENDED"
    min_cluster_count: int = 1
    max_cluster_count: int = 1
    scaling_policy: str = "STANDARD"
    auto_suspend: int = 600
    auto_resume: bool = True
    comment: str = ""
    tables: set[str] = field(default_factory=set)  #: of an interactive warehouse
    running: int = 0
    queued: int = 0
    slots: int = 0  #: statements at once and cluster; 0: no limit
    service_seconds: float = 0.0
    changes: list[str] = field(default_factory=list)  #: every ALTER it was sent
    free: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def started_clusters(self) -> int:
        if self.state == "SUSPENDED":
            return 0
        needed = -(-(self.running + self.queued) // self.slots) if self.slots else 1
        return min(max(needed, self.min_cluster_count, 1), self.max_cluster_count)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[float]:
        """Wait for a free slot and hold it. Yields the seconds waited."""
        begun = time.monotonic()
        async with self.free:
            self.queued += 1
            try:
                await self.free.wait_for(lambda: not self.slots or self.running < self.slots * self.max_cluster_count)
            finally:
                self.queued -= 1
            self.running += 1
        waited = time.monotonic() - begun
        try:
            yield waited if self.slots else 0.0
        finally:
            async with self.free:
                self.running -= 1
                self.free.notify_all()

    def resume(self) -> None:
        if self.state == "SUSPENDED" and not self.auto_resume:
            raise Refusal(
                606, "57P03", f"No active warehouse selected: {self.name} is suspended and does not resume by itself."
            )
        self.state = "STARTED"


class Warehouses:
    """All warehouses of the account, and the statements that show and change them."""

    def __init__(self) -> None:
        self.by_name: dict[str, Warehouse] = {}

    def named(self, name: str) -> Warehouse:
        try:
            return self.by_name[name]
        except KeyError:
            message = f"SQL compilation error:\nWarehouse '{name}' does not exist or not authorized."
            raise Refusal(2043, "02000", message) from None

    def show(self, sql: str) -> tuple[list[str], list[list[object]]]:
        found = tokens(sql)
        like = next((text_of(found[n + 1]) for n, each in enumerate(found[:-1]) if each.upper == "LIKE"), "%")
        pattern = like.upper().replace("%", "*").replace("_", "?").replace("\\?", "_")
        chosen = [each for name, each in sorted(self.by_name.items()) if fnmatchcase(name.upper(), pattern)]
        columns = ["name", "state", "type", "size", "min_cluster_count", "max_cluster_count", "started_clusters", "running"]
        columns += ["queued", "is_default", "auto_suspend", "auto_resume", "available", "comment", "scaling_policy"]
        return columns, [_shown(each) for each in chosen]

    def create(self, found: list[Token]) -> str:
        upper = [token.upper for token in found]
        start = upper.index("WAREHOUSE") + 1
        if upper[start : start + 3] == ["IF", "NOT", "EXISTS"]:
            start += 3
        name = found[start].name
        if name in self.by_name and "EXISTS" in upper[:start]:
            return f"{name} already exists, statement succeeded."
        if name in self.by_name and "REPLACE" not in upper[:start]:
            raise Refusal(2002, "42710", f"SQL compilation error:\nObject '{name}' already exists.")
        made = Warehouse(name=name, kind="INTERACTIVE" if "INTERACTIVE" in upper[:start] else "STANDARD", state="STARTED")
        _apply(made, found[start + 1 :])
        if "INITIALLY_SUSPENDED" in upper and upper[upper.index("INITIALLY_SUSPENDED") + 2] == "TRUE":
            made.state = "SUSPENDED"
        self.by_name[name] = made
        return f"Warehouse {name} successfully created."

    def alter(self, sql: str) -> str:
        found = tokens(sql)[2:]
        exists = [token.upper for token in found[:2]] == ["IF", "EXISTS"]
        found = found[2:] if exists else found
        name = found[0].name
        if exists and name not in self.by_name:
            return "Statement executed successfully."
        warehouse, rest = self.named(name), found[1:]
        warehouse.changes.append(sql)
        match [token.upper for token in rest[:3]]:
            case ["RESUME", *more]:
                if warehouse.state != "SUSPENDED" and more[:2] != ["IF", "SUSPENDED"]:
                    raise Refusal(90063, "22000", f"Invalid state. Warehouse '{name}' cannot be resumed.")
                warehouse.state = "STARTED"
            case ["SUSPEND", *_]:
                if warehouse.state == "SUSPENDED":
                    raise Refusal(90064, "22000", f"Invalid state. Warehouse '{name}' cannot be suspended.")
                warehouse.state = "SUSPENDED"
            case ["SET", *_]:
                _apply(warehouse, rest[1:])
            case ["ADD" | "DROP" as change, "TABLES", "("]:
                named = {token.name for token in rest[3:] if token.kind in ("word", "quoted")}
                warehouse.tables = warehouse.tables | named if change == "ADD" else warehouse.tables - named
            case _:
                pass
        return "Statement executed successfully."

    def drop(self, found: list[Token]) -> str:
        exists = [token.upper for token in found[2:4]] == ["IF", "EXISTS"]
        name = found[4 if exists else 2].name
        if self.by_name.pop(name, None) is None and not exists:
            self.named(name)
        return f"{name} successfully dropped."


def _apply(warehouse: Warehouse, found: list[Token]) -> None:
    for index, token in enumerate(found[:-2]):
        if found[index + 1].text != "=":
            continue
        value = found[index + 2]
        said = text_of(value) if value.kind == "string" else value.text
        match token.upper:
            case "WAREHOUSE_SIZE":
                key = said.upper()
                if key not in _SPELLINGS:
                    raise Refusal(
                        2010, "22023", f"SQL compilation error:\ninvalid value [{said}] for parameter 'WAREHOUSE_SIZE'"
                    )
                warehouse.size = _SPELLINGS[key]
            case "MIN_CLUSTER_COUNT":
                warehouse.min_cluster_count = int(said)
            case "MAX_CLUSTER_COUNT":
                warehouse.max_cluster_count = int(said)
            case "SCALING_POLICY":
                warehouse.scaling_policy = said.upper()
            case "AUTO_SUSPEND":
                warehouse.auto_suspend = 0 if said.upper() == "NULL" else int(said)
            case "AUTO_RESUME":
                warehouse.auto_resume = said.upper() == "TRUE"
            case "COMMENT":
                warehouse.comment = said
            case _:
                pass


def _shown(each: Warehouse) -> list[object]:
    counts: list[object] = [each.min_cluster_count, each.max_cluster_count, each.started_clusters, each.running, each.queued]
    rest: list[object] = ["N", each.auto_suspend, str(each.auto_resume).lower(), "100", each.comment, each.scaling_policy]
    return [each.name, each.state, each.kind, each.size, *counts, *rest]

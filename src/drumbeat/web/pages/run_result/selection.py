"""Which single operations are looked at, as a page's address keeps it: a link that is passed on shows the same."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any
from urllib.parse import quote, urlencode

from drumbeat.core.run import RunId
from drumbeat.web.pages.paging import page_number

PAGE = 25
ORDERS = {"duration_ms": "the longest first", "started_at": "the earliest first"}
_FAILED, _ANY = "yes", "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSelection:
    """All of it as texts, the way an address has them; an empty one asks for nothing."""

    kind: str = ""
    error_class: str = ""
    error: str = ""  #: an SQLSTATE, or what else the database calls it
    failed: str = _ANY
    order: str = "duration_ms"
    page: str = "1"

    @property
    def number(self) -> int:
        return page_number(self.page)

    @property
    def offset(self) -> int:
        return (self.number - 1) * PAGE

    @property
    def failed_only(self) -> bool:
        return self.failed == _FAILED or bool(self.error_class or self.error)

    @property
    def query(self) -> str:
        """What stands behind the ? of the address."""
        usual = asdict(ExecutionSelection())
        return urlencode({name: value for name, value in asdict(self).items() if value and value != usual[name]})

    def path(self, run_id: RunId) -> str:
        return f"/runs/{quote(run_id, safe='')}" + (f"?{self.query}" if self.query else "")

    def filters(self) -> dict[str, Any]:
        """For the desk: one more than is shown is asked for, to know whether there are more."""
        return {
            "kind": self.kind or None,
            "ok": False if self.failed_only else None,
            "error_class": self.error_class or None,
            "error": self.error or None,
            "order": self.order,
            "offset": self.offset,
            "limit": PAGE + 1,
        }


def only_failed(failed: bool) -> str:
    """As an address has it."""
    return _FAILED if failed else _ANY


def read_chosen(query: Mapping[str, str]) -> ExecutionSelection | None:
    """What an address asks for; None: it does not ask for operations."""
    known = {each.name for each in fields(ExecutionSelection)}
    given = {name: value[:200] for name, value in query.items() if name in known}
    if given.get("order") not in ORDERS:
        given.pop("order", None)
    return ExecutionSelection(**given) if given else None

"""The filters of the operation log, kept in the URL so that a shared link shows the same operations."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote, urlencode

from drumbeat.core.run import RunId
from drumbeat.web.pages.paging import known_values, page_number

PAGE = 25
ORDERS = {"duration_ms": "slowest first", "started_at": "oldest first"}
_FAILED, _ANY = "yes", "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSelection:
    """The filters of the operation log as text, as in the URL; an empty text means no filter."""

    kind: str = ""
    error_class: str = ""
    error: str = ""  #: SQLSTATE, or another error code of the database
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
        """The filters as the query string of the URL."""
        defaults = asdict(ExecutionSelection())
        return urlencode({name: value for name, value in asdict(self).items() if value and value != defaults[name]})

    def path(self, run_id: RunId) -> str:
        return f"/runs/{quote(run_id, safe='')}" + (f"?{self.query}" if self.query else "")

    def filters(self) -> dict[str, Any]:
        """Return the filters as arguments for the bench service. The limit is one more than a page, to detect a next page."""
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
    """Return the URL's value of the filter ``failed``: True shows only failed operations, False shows all."""
    return _FAILED if failed else _ANY


def read_selection(query: Mapping[str, str]) -> ExecutionSelection | None:
    """Read the filters from a URL's query; None if it has no filters."""
    values = known_values(ExecutionSelection, query, ORDERS)
    return ExecutionSelection(**values) if values else None

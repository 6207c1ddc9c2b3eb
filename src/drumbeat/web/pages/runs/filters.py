"""The filters of the list of runs, kept in the URL so that a reload shows the same runs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from drumbeat.core.errors import InvalidInput
from drumbeat.core.run import RunStatus
from drumbeat.web.pages.paging import known_values, page_number

PAGE = 25
ORDERS = {"newest": "newest first", "name": "name", "qps": "highest operations/s first", "errors": "most errors first"}
_LAST_DAY = datetime(9999, 12, 31, tzinfo=UTC)  #: later days mean no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilters:
    """The filters of the list of runs as text, as in the URL; an empty text means no filter."""

    status: str = ""
    load_mode: str = ""
    scaling_mode: str = ""
    template: str = ""
    database: str = ""  #: database type, such as postgresql
    since: str = ""  #: a day, YYYY-MM-DD
    until: str = ""  #: the last day, included
    search: str = ""
    order: str = "newest"
    page: str = "1"

    @property
    def number(self) -> int:
        return page_number(self.page)

    @property
    def query(self) -> str:
        """The filters as the query string of the URL."""
        defaults = asdict(RunFilters())
        return urlencode({name: value for name, value in asdict(self).items() if value and value != defaults[name]})

    def filters(self) -> dict[str, Any]:
        """Return the filters as arguments for the store. Raises InvalidInput for an invalid date."""
        until = _day("until", self.until)
        return {
            "statuses": (RunStatus(self.status),) if self.status in set(RunStatus) else (),
            "load_mode": self.load_mode or None,
            "scaling_mode": self.scaling_mode or None,
            "template_id": self.template or None,
            "search": self.search or None,
            "since": _day("since", self.since),
            "until": until + timedelta(days=1) if until and until < _LAST_DAY else None,
        }


def read_filters(query: Mapping[str, str]) -> RunFilters:
    """Read the filters from a URL's query."""
    return RunFilters(**known_values(RunFilters, query, ORDERS))


def _day(name: str, text: str) -> datetime | None:
    if not text:
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as exc:
        raise InvalidInput(f"{name}: expected a day like 2026-03-31, got {text!r}") from exc

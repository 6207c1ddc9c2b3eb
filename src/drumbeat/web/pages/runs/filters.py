"""Which runs are looked for, as the page's address keeps it: a page that is loaded again shows the same."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from drumbeat.core.errors import InvalidInput
from drumbeat.core.run import RunStatus
from drumbeat.web.pages.paging import page_number

PAGE = 25
ORDERS = {"newest": "newest first", "name": "by name", "qps": "most operations/s first", "errors": "most errors first"}
MOST_SORTED = 1000  #: runs that are sorted by anything but their age
_LAST_DAY = datetime(9999, 12, 31, tzinfo=UTC)  #: until then is until ever


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilters:
    """All of it as texts, the way an address has them; an empty one asks for nothing."""

    status: str = ""
    load_mode: str = ""
    scaling_mode: str = ""
    template: str = ""
    database: str = ""  #: a type of database, such as postgresql
    since: str = ""  #: a day, YYYY-MM-DD
    until: str = ""  #: the last day
    search: str = ""
    order: str = "newest"
    page: str = "1"

    @property
    def number(self) -> int:
        return page_number(self.page)

    @property
    def query(self) -> str:
        """What stands behind the ? of the address."""
        usual = asdict(RunFilters())
        return urlencode({name: value for name, value in asdict(self).items() if value and value != usual[name]})

    def filters(self) -> dict[str, Any]:
        """For the store. Raises InvalidInput for a day that is none."""
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


def read_wanted(query: Mapping[str, str]) -> RunFilters:
    """What an address asks for."""
    known = {each.name for each in fields(RunFilters)}
    given = {name: value[:200] for name, value in query.items() if name in known}
    if given.get("order") not in ORDERS:
        given.pop("order", None)
    return RunFilters(**given)


def _day(name: str, text: str) -> datetime | None:
    if not text:
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError as exc:
        raise InvalidInput(f"{name}: expected a day like 2026-03-31, got {text!r}") from exc

"""An answer that is kept under its request's idempotency key, so that asking again is asking once."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAnswer:
    """What a request was answered with."""

    status: int
    body: str = ""  #: JSON
    location: str | None = None  #: where what was made is


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """One row of ``answers``. Until it is given, the key is only held."""

    key: str
    fingerprint: str  #: of the request: another one under the same key is a mistake
    expires_at: datetime
    answer: RequestAnswer | None = None  #: None: its request is still being worked on

"""A response stored under its request's idempotency key, so that a repeated request gets the same response."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAnswer:
    """The HTTP response to a request: status, body and location."""

    status: int
    body: str = ""  #: JSON
    location: str | None = None  #: address of the created resource


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """One row of ``answers``: a response by idempotency key. Until the response is known, the row only reserves the key."""

    key: str
    fingerprint: str  #: hash of the request; a different request under the same key is an error
    expires_at: datetime
    answer: RequestAnswer | None = None  #: None while the request is still being processed

"""The envelope of a payload or result: carries headers, or says where a large value is stored. Plain values have none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MARK = "$drumbeat"  #: the key that marks an envelope; a user's own value with this key is put into one, so it stays distinct
_VALUE = "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeReference:
    """Where a large value is stored, and how to check that it is unchanged."""

    key: str
    size: int  #: bytes of JSON
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A value as it was pushed or returned, with its headers; or a reference to the value, if it is stored elsewhere."""

    value: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    large: LargeReference | None = None


def needs_envelope(value: Any) -> bool:
    """Whether a value has the key ``MARK``: it is an envelope, or a user's value that must be put into one to stay distinct."""
    return type(value) is dict and MARK in value


def seal(value: Any, headers: Mapping[str, str] | None = None, large: LargeReference | None = None) -> Any:
    """Return what to store: an envelope if there are headers, a reference or a value with the key ``MARK``; else the value."""
    if not headers and large is None and not needs_envelope(value):
        return value
    inner: dict[str, Any] = {"headers": dict(headers)} if headers else {}
    if large is not None:
        inner["large"] = {"key": large.key, "bytes": large.size, "sha256": large.sha256}
        return {MARK: inner}
    return {MARK: inner, _VALUE: value}


def open_envelope(stored: Any) -> Envelope:
    """Return the content of a stored payload or result. A value that is not an envelope is the content itself."""
    if not needs_envelope(stored):
        return Envelope(value=stored)
    inner = stored[MARK]
    if not isinstance(inner, dict) or not _is_whole(inner, stored.keys()):
        return Envelope(value=stored)
    found = inner.get("large")
    large = found and LargeReference(key=str(found["key"]), size=int(found["bytes"]), sha256=str(found["sha256"]))
    return Envelope(value=stored.get(_VALUE), headers=inner.get("headers", {}), large=large)


def _is_whole(inner: Mapping[str, Any], keys: Any) -> bool:
    """Whether an envelope has the parts that ``seal`` writes. If not, it is a user's value, stored before envelopes existed."""
    headers, large = inner.get("headers", {}), inner.get("large")
    if not isinstance(headers, dict) or not inner.keys() <= {"headers", "large"}:
        return False
    if large is None:
        return set(keys) == {MARK, _VALUE}
    return set(keys) == {MARK} and isinstance(large, dict) and large.keys() >= {"key", "bytes", "sha256"}

"""Groups errors that differ only in numbers, ids and addresses. Pure functions."""

import re
from hashlib import sha256

NO_ERROR = "no error text"  #: the group of poisoned jobs without an error
_LONGEST = 200
_MASKS = (
    (re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>]+", re.IGNORECASE), "<url>"),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "<email>"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b"), "<time>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<address>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "<address>"),
    (re.compile(r"\[?\b(?:[0-9a-f]{1,4}:){3,7}(?::?[0-9a-f]{1,4})?\b\]?(?::\d+)?", re.IGNORECASE), "<address>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b(?=\w*\d)(?=\w*[A-Za-z])\w{16,}\b"), "<id>"),
    (re.compile(r"\d+(?:[.,]\d+)*"), "<n>"),
)


def normalised_error(error: str | None) -> str:
    """Return the first line of an error, with placeholders such as <n> for numbers, ids, times, addresses and URLs."""
    lines = (error or "").strip().splitlines()
    text = lines[0].strip()[: _LONGEST * 4] if lines else NO_ERROR
    for pattern, mark in _MASKS:
        text = pattern.sub(mark, text)
    return text[:_LONGEST]


def error_group_id(error: str | None) -> str:
    """Return the id of the group to which an error belongs: the same for errors that are equal once normalised."""
    return sha256(normalised_error(error).encode()).hexdigest()[:8]

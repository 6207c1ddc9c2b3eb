"""Reads row counts from PostgreSQL's answers, with a fast path for the most common kind of answer."""

import struct

MOST_ROWS = 2**31 - 1  #: the largest row count that fits in a record
_READY_IDLE = b"Z\x00\x00\x00\x05I"
_ROW, _COMPLETE, _ERROR, _READY = b"DCEZ"
_head = struct.Struct("!BI").unpack_from  #: reads a message's type and length


def rows_of_whole_answer(data: bytes) -> int:
    """Return the row count if the data is one complete, successful answer outside a transaction; −1 otherwise.

    Reads message by message, because a row can contain bytes that look like the end of an answer.
    """
    if not data.endswith(_READY_IDLE):
        return -1
    end, at, rows = len(data) - len(_READY_IDLE), 0, 0
    while at < end:
        kind, length = _head(data, at)
        at += 1 + length
        if kind == _ROW and length > 3:
            continue
        if length < 4 or kind in (_ERROR, _READY):
            return -1
        if kind == _COMPLETE:
            rows += rows_of(data[at - length + 4 : at])
    return rows if at == end else -1


def rows_of(tag: bytes) -> int:
    """Return the row count at the end of a command tag such as "SELECT 5" or "INSERT 0 5"; 0 if there is none."""
    word = tag.rstrip(b"\0").rsplit(b" ", 1)[-1]
    return min(int(word[:20]), MOST_ROWS) if word.isdigit() else 0

"""Calls the core in C (core.c) through ctypes. Only ``run`` releases the GIL. The short calls keep it, because a thread that
releases the GIL for a microsecond might wait half a millisecond to get it back, and would then send operations late."""

import ctypes
import logging
from collections.abc import Mapping, Sequence
from ctypes import c_char_p, c_double, c_int, c_int32, c_int64, c_uint8, c_uint32, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from socket import socket
from typing import Any

import numpy as np

from drumbeat.bench.driver.blocks import MessageBlock
from drumbeat.bench.driver.core import ROOM, TOO_MANY_BLOCKS, ConnectionState
from drumbeat.bench.driver.records import RECORD

log = logging.getLogger(__name__)

LIBRARY = Path(__file__).with_name("_core.so")
_LONGEST_NS = 1 << 62  #: the longest time limit: added to a clock time, it still fits 64 bits

_SIGNATURES: Mapping[str, tuple[Any, Sequence[Any]]] = {
    "core_new": (c_void_p, (c_int32, c_void_p, c_uint32, c_void_p)),
    "core_free": (None, (c_void_p,)),
    "core_add": (c_int, (c_void_p, c_int32, c_int)),
    "core_retire": (None, (c_void_p, c_int32)),
    "core_collect": (c_int, (c_void_p, c_int32)),
    "core_feed_block": (c_int, (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_uint32)),
    "core_blocks": (c_int, (c_void_p,)),
    "core_set": (None, (c_void_p, c_int64, c_int64, c_uint8)),
    "core_set_rate": (None, (c_void_p, c_double)),
    "core_forgive": (None, (c_void_p,)),
    "core_accept": (None, (c_void_p, c_uint8)),
    "core_set_epoch": (None, (c_void_p, c_uint8)),
    "core_in_flight": (c_int32, (c_void_p,)),
    "core_backlog": (c_int64, (c_void_p,)),
    "core_failed": (c_int64, (c_void_p,)),
    "core_said": (c_char_p, (c_void_p, c_char_p)),
    "core_take_records": (c_uint32, (c_void_p, c_void_p)),
    "core_take_news": (c_uint32, (c_void_p,)),
    "core_give_up": (None, (c_void_p,)),
    "core_run": (c_uint32, (c_void_p, c_int64)),
}


@dataclass(frozen=True, slots=True)
class Library:
    """The compiled core, loaded twice: for calls that release the GIL and for calls that keep it."""

    driving: ctypes.CDLL  #: releases the GIL during a call
    short: ctypes.PyDLL  #: keeps the GIL


@cache
def library() -> Library | None:
    """Load the compiled core. Returns None if it was not built; callers then use the Python core."""
    try:
        loaded = Library(ctypes.CDLL(str(LIBRARY)), ctypes.PyDLL(str(LIBRARY)))
        _declare(loaded)
    except OSError:
        return None
    except AttributeError as exc:
        log.warning("%s is of another Drumbeat version (%s); using the slower Python core; reinstall drumbeat", LIBRARY, exc)
        return None
    return loaded


def _declare(loaded: Library) -> None:
    for name, (result, arguments) in _SIGNATURES.items():
        for binding in (loaded.driving, loaded.short):
            function = getattr(binding, name)
            function.restype, function.argtypes = result, arguments


class CCore:
    """The C version of ``Core``, the loop that sends operations to PostgreSQL and receives the answers."""

    def __init__(self, connections: int) -> None:
        compiled = library()
        if compiled is None:
            raise OSError(f"expected the compiled core at {LIBRARY}; install a C compiler and run pip install again")
        self._library: Any = compiled.short
        self._run = compiled.driving.core_run
        room = ROOM + connections
        self._buffers = [np.zeros(room * RECORD.itemsize, dtype=np.uint8) for _ in range(2)]
        self._addresses = [int(buffer.ctypes.data) for buffer in self._buffers]
        self._gone = np.zeros(connections, dtype=np.int32)
        self._core = self._library.core_new(connections, self._addresses[0], room, self._gone.ctypes.data)
        if not self._core:
            raise OSError(
                "could not create the compiled driver core: not enough memory or open files; free memory, or raise ulimit -n"
            )
        self._fed: list[MessageBlock] = []  #: blocks that the core still reads from, so their memory must stay

    def add(self, index: int, connection: socket) -> None:
        if (error := self._library.core_add(self._core, index, connection.fileno())) < 0:
            raise OSError(-error, f"could not add connection {index} to the compiled driver core")

    def retire(self, index: int) -> None:
        self._library.core_retire(self._core, index)

    def collect(self) -> Sequence[tuple[int, ConnectionState]]:
        if not (count := self._library.core_take_news(self._core)):
            return ()
        gone = self._gone[:count].tolist()
        return [(index, ConnectionState(self._library.core_collect(self._core, index))) for index in gone]

    def feed(self, block: MessageBlock) -> None:
        arrays = (block.data, block.offsets, block.kinds, block.more)
        held = self._library.core_feed_block(self._core, *(array.ctypes.data for array in arrays), block.messages)
        if not held:
            raise ValueError(TOO_MANY_BLOCKS)
        self._fed = [*self._fed, block][-held:]

    def blocks(self) -> int:
        return int(self._library.core_blocks(self._core))

    def configure(self, limit_ns: int, think_ns: int, hottest_first: bool) -> None:
        self._library.core_set(self._core, min(limit_ns, _LONGEST_NS), min(think_ns, _LONGEST_NS), hottest_first)

    def set_rate(self, per_second: float | None) -> None:
        self._library.core_set_rate(self._core, -1.0 if per_second is None else per_second)

    def drop_overdue(self) -> None:
        self._library.core_forgive(self._core)

    def set_epoch(self, epoch: int) -> None:
        self._library.core_set_epoch(self._core, epoch % 256)

    def accept(self, accepting: bool) -> None:
        self._library.core_accept(self._core, accepting)

    def run(self, budget_ns: int) -> None:
        self._run(self._core, budget_ns)

    def give_up(self) -> None:
        self._library.core_give_up(self._core)

    def take(self) -> bytes:
        """Return the records in the current buffer. From now on the core writes to the other buffer."""
        full, other = self._addresses
        count = self._library.core_take_records(self._core, other)
        self._addresses = [other, full]
        return ctypes.string_at(full, count * RECORD.itemsize)

    def error_message(self, sqlstate: str) -> str:
        message: bytes | None = self._library.core_said(self._core, sqlstate.encode())
        return (message or b"").decode(errors="replace")

    @property
    def failed(self) -> int:
        return int(self._library.core_failed(self._core))

    @property
    def in_flight(self) -> int:
        return int(self._library.core_in_flight(self._core))

    @property
    def backlog(self) -> int:
        return int(self._library.core_backlog(self._core))

    def close(self) -> None:
        self._library.core_free(self._core)
        self._core = None
        self._fed.clear()


assert RECORD.itemsize == 48, "the record struct in core.c and RECORD must have the same layout"

"""Buffers of operation records, written by one thread and read by another without a lock."""

import struct
from collections import deque
from threading import Lock

import numpy as np

from drumbeat.bench.driver.records import RECORD, Records

#: The same layout as RECORD (a test checks it). Writing a record with numpy takes three times as long.
_LAYOUT = struct.Struct("@qqqiihBB8s4x")
_SIZE = _LAYOUT.size
_CHUNK_BYTES = 1024 * _SIZE
_pack_into = _LAYOUT.pack_into


class _Chunk:
    __slots__ = ("data", "end", "taken")

    def __init__(self) -> None:
        self.data = bytearray(_CHUNK_BYTES)
        self.end = 0  #: where the next record begins; only the writer changes it, after it has written a record
        self.taken = 0  #: where the first unread record begins; only the reader changes it


class Recorder:
    """Buffers the records that one thread writes, in chunks of about a thousand. A chunk is freed once it is read."""

    __slots__ = ("_chunks", "_current")

    def __init__(self) -> None:
        self._current = _Chunk()
        self._chunks = deque([self._current])

    def add(
        self, due: int, start: int, duration: int, connection: int, rows: int, kind: int, outcome: int, epoch: int, code: bytes
    ) -> None:
        chunk = self._current
        end = chunk.end
        if end == _CHUNK_BYTES:
            self._current = chunk = _Chunk()
            self._chunks.append(chunk)
            end = 0
        _pack_into(chunk.data, end, due, start, duration, connection, rows, kind, outcome, epoch, code)
        chunk.end = end + _SIZE

    def take(self) -> bytes:
        """Return the records added since the last call, as the bytes of a RECORD array. Only one thread is allowed to read."""
        pieces = []
        while True:
            chunk = self._chunks[0]
            end = chunk.end
            pieces.append(chunk.data[chunk.taken : end])
            chunk.taken = end
            if end < _CHUNK_BYTES or len(self._chunks) == 1:
                return b"".join(pieces)
            self._chunks.popleft()


class RecorderSet:
    """The recorders of several threads, read together. Threads that add records never wait for the reader."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._recorders: list[Recorder] = []
        self._left: list[bytes] = []
        self.own = self.add()  #: the recorder for the engine that owns this set

    def add(self) -> Recorder:
        """Add and return a recorder for one more thread."""
        recorder = Recorder()
        with self._lock:
            self._recorders.append(recorder)
        return recorder

    def retire(self, recorder: Recorder) -> None:
        """Remove the recorder of a thread that has ended. The next ``take`` still returns its records."""
        with self._lock:
            self._recorders.remove(recorder)
            self._left.append(recorder.take())

    def take(self) -> Records:
        """Return the records of all threads since the last call, one thread after the other."""
        with self._lock:
            left, self._left = self._left, []
            data = bytearray().join([*left, *(recorder.take() for recorder in self._recorders)])
        return np.frombuffer(data, dtype=RECORD)

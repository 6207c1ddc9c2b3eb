"""Lock-free buffers of records: written by one thread, read by another."""

import struct
from collections import deque
from threading import Lock

import numpy as np

from drumbeat.bench.driver.records import RECORD, Records

#: The same layout as RECORD (a test checks it); assigning through numpy takes three times as long.
_LAYOUT = struct.Struct("@qqqiihBB8s4x")
_SIZE = _LAYOUT.size
_CHUNK_BYTES = 1024 * _SIZE
_pack_into = _LAYOUT.pack_into


class _Chunk:
    __slots__ = ("data", "end", "taken")

    def __init__(self) -> None:
        self.data = bytearray(_CHUNK_BYTES)
        self.end = 0  #: only the writer moves it, after the record is complete
        self.taken = 0  #: only the reader moves it


class Recorder:
    """One thread's records. Memory is allocated for about a thousand records at a time and freed once they are read."""

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
        """The records added since the last call, as the bytes of a RECORD array. For one reader only."""
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
    """The recorders of several writers, read as one. Writers never wait for the reader."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._recorders: list[Recorder] = []
        self._left: list[bytes] = []
        self.own = self.add()  #: for the owner of this set

    def add(self) -> Recorder:
        """A recorder for one more writer."""
        recorder = Recorder()
        with self._lock:
            self._recorders.append(recorder)
        return recorder

    def retire(self, recorder: Recorder) -> None:
        """Remove the recorder of a writer that has ended; its records are kept until ``take``."""
        with self._lock:
            self._recorders.remove(recorder)
            self._left.append(recorder.take())

    def take(self) -> Records:
        """The records of all writers since the last call, writer by writer."""
        with self._lock:
            left, self._left = self._left, []
            data = bytearray().join([*left, *(recorder.take() for recorder in self._recorders)])
        return np.frombuffer(data, dtype=RECORD)

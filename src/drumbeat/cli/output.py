"""Lines for a reader who may not read: what cannot be written at once is left out and counted, and nobody waits for it."""

import logging
import os
import select
from typing import TextIO


class NonBlockingOutput:
    """A stream of lines that never blocks whoever writes, nor changes the file it shares with others.

    A pipe that is ready takes so many bytes at once (PIPE_BUF) without waiting, so a line goes out in such pieces, each after
    asking. A line that was begun is finished before the next, however long that takes: none is torn.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._fd = _descriptor(stream)
        self._rest = b""  #: of a line that was begun
        self.missed = 0  #: lines left out since the last that was written

    def write(self, line: str) -> bool:
        """Whether the line is on its way; False: it is left out, and counted."""
        if self._fd is None:
            print(line, file=self._stream, flush=True)
            return True
        whole = f"{line}\n".encode(errors="backslashreplace")
        went = self._push(self._fd) and self._begin(self._fd, whole)
        self.missed = 0 if went else self.missed + 1
        return went

    def _begin(self, fd: int, whole: bytes) -> bool:
        self._rest = whole
        if self._push(fd) or 0 < len(self._rest) < len(whole):
            return True
        self._rest = b""
        return False

    def _push(self, fd: int) -> bool:
        """Write what is left of a line as far as there is room; whether all of it went."""
        try:
            while self._rest and select.select([], [fd], [], 0)[1]:
                self._rest = self._rest[os.write(fd, self._rest[: select.PIPE_BUF]) :]
        except BlockingIOError:
            return False
        except OSError:
            self._rest = b""  # nobody is there to read the end of it
            return False
        return not self._rest


class NonBlockingHandler(logging.Handler):
    """Log lines that never block; the first after a gap says how many are missing."""

    def __init__(self, outlet: NonBlockingOutput) -> None:
        super().__init__()
        self._outlet = outlet

    def emit(self, record: logging.LogRecord) -> None:
        try:
            missed, line = self._outlet.missed, self.format(record)
            self._outlet.write(f"({missed} lines that nobody read are left out)\n{line}" if missed else line)
        except Exception:
            self.handleError(record)


def _descriptor(stream: TextIO) -> int | None:
    """The file beneath a stream; None for one that is only in memory, which never blocks."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None

"""Non-blocking output: lines that cannot be written without waiting are dropped and counted."""

import logging
import os
import select
from typing import TextIO


class NonBlockingOutput:
    """Writes lines to a stream without ever blocking, and without setting O_NONBLOCK on the shared file.

    A pipe that ``select`` reports as writable accepts PIPE_BUF bytes without blocking, so lines are written in pieces of that
    size. A line that was started is finished before the next one, so no line is cut.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._fd = _descriptor(stream)
        self._rest = b""  #: unwritten bytes of a line that was started
        self.missed = 0  #: lines dropped since the last one that was written

    def write(self, line: str) -> bool:
        """Write a line. Returns False if it was dropped (and counted)."""
        if self._fd is None:
            print(line, file=self._stream, flush=True)
            return True
        encoded = f"{line}\n".encode(errors="backslashreplace")
        written = self._push(self._fd) and self._begin(self._fd, encoded)
        self.missed = 0 if written else self.missed + 1
        return written

    def _begin(self, fd: int, encoded: bytes) -> bool:
        self._rest = encoded
        if self._push(fd) or 0 < len(self._rest) < len(encoded):
            return True
        self._rest = b""
        return False

    def _push(self, fd: int) -> bool:
        """Write as much of the pending line as fits. Returns whether all of it was written."""
        try:
            while self._rest and select.select([], [fd], [], 0)[1]:
                self._rest = self._rest[os.write(fd, self._rest[: select.PIPE_BUF]) :]
        except BlockingIOError:
            return False
        except OSError:
            self._rest = b""  # the reader is gone
            return False
        return not self._rest


class NonBlockingHandler(logging.Handler):
    """A log handler that never blocks. If lines were dropped, the next line that is written says how many."""

    def __init__(self, output: NonBlockingOutput) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        try:
            missed, line = self._output.missed, self.format(record)
            self._output.write(f"({missed} lines were dropped: the output was not read)\n{line}" if missed else line)
        except Exception:
            self.handleError(record)


def _descriptor(stream: TextIO) -> int | None:
    """Return the file descriptor of a stream; None for an in-memory stream, which never blocks."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None

"""Lines of a pipe as they come: whoever reads them is told when there is none for the moment, and need not wait for more."""

import io
import select
import sys
from collections.abc import Iterator
from typing import BinaryIO, TextIO

_AT_ONCE = 1 << 16
_PAUSE = 0.05  #: seconds without a line that are worth telling


def standard_input() -> Iterator[str | None]:
    """Its lines, bytes that are no UTF-8 kept for whoever reads them; None: no line for the moment."""
    try:
        sys.stdin.fileno()
    except (OSError, io.UnsupportedOperation):
        yield from _text(sys.stdin)
        return
    encoding = "utf-8-sig"
    for line in incoming_lines(sys.stdin.buffer):
        yield None if line is None else line.decode(encoding, errors="surrogateescape")
        encoding = encoding if line is None else "utf-8"


def _text(source: TextIO) -> TextIO:
    if isinstance(source, io.TextIOWrapper):
        source.reconfigure(encoding="utf-8-sig", errors="surrogateescape")
    return source


def incoming_lines(source: BinaryIO) -> Iterator[bytes | None]:
    """Lines, without their ends; None after a pause, once."""
    parts: list[bytes] = []
    while True:
        if not select.select([source], [], [], _PAUSE)[0]:
            yield None
        chunk = source.read1(_AT_ONCE)  # type: ignore[attr-defined]
        if not chunk:
            break
        first, *more = chunk.split(b"\n")
        parts.append(first)
        for part in more:
            yield b"".join(parts)
            parts = [part]
    if last := b"".join(parts):
        yield last

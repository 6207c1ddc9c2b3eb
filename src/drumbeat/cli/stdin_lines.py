"""Reads lines from a pipe as they arrive, and reports pauses between them."""

import io
import select
import sys
from collections.abc import Iterator
from typing import BinaryIO, TextIO

_CHUNK = 1 << 16
_PAUSE = 0.05  #: seconds without input that count as a pause


def standard_input() -> Iterator[str | None]:
    """Yield the lines of standard input as they arrive, and None when the input pauses. Invalid UTF-8 becomes surrogates."""
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
    """Yield each line without its line end, and None once when the input pauses: the caller can then handle its lines."""
    parts: list[bytes] = []
    while True:
        if not select.select([source], [], [], _PAUSE)[0]:
            yield None
        chunk = source.read1(_CHUNK)  # type: ignore[attr-defined]
        if not chunk:
            break
        first, *more = chunk.split(b"\n")
        parts.append(first)
        for part in more:
            yield b"".join(parts)
            parts = [part]
    if last := b"".join(parts):
        yield last

"""A CSV reader with its own limit for the length of a field; the limit of Python's ``csv`` applies to the whole process."""

from collections.abc import Iterator

from drumbeat.core.errors import InvalidInput


class CsvRows:
    """Yields the same rows as ``csv.reader``. Raises InvalidInput for a field of more than ``longest`` characters."""

    def __init__(self, lines: Iterator[str], longest: int) -> None:
        """``lines``: with their line ends, as from a file opened with newline=""; ``longest``: the longest field allowed."""
        self._lines = lines
        self._longest = longest
        self.line_number = 0  #: number of the last line read

    def __iter__(self) -> Iterator[list[str]]:
        while line := self._next():
            row = list(self._fields(line)) if '"' in line else line.rstrip("\r\n").split(",")
            self._expect_short(max(map(len, row)))
            yield row if row != [""] or '"' in line else []

    def _next(self) -> str:
        line = next(self._lines, "")
        self.line_number += bool(line)
        return line

    def _expect_short(self, length: int) -> None:
        if length > self._longest:
            raise InvalidInput(f"a field of more than {self._longest} characters; is a closing quote missing?")

    def _fields(self, line: str) -> Iterator[str]:
        """Yield the fields of the row that starts on this line."""
        at, comma = 0, 0
        while comma >= 0:
            quoted = ""
            if line.startswith('"', at):
                quoted, line, at = self._quoted(line, at + 1)
            comma = line.find(",", at)
            yield quoted + (line[at:comma] if comma >= 0 else line[at:].rstrip("\r\n"))
            at = comma + 1

    def _quoted(self, line: str, at: int) -> tuple[str, str, int]:
        """Read a quoted text, which can span lines. Returns the text, the line it ends on, and the position after it."""
        parts, length = [], 0
        while line:
            mark = line.find('"', at)
            doubled = line.startswith('""', mark) if mark >= 0 else False
            parts.append(line[at : mark + doubled] if mark >= 0 else line[at:])
            if mark >= 0 and not doubled:
                return "".join(parts), line, mark + 1
            length += len(parts[-1])
            self._expect_short(length)
            line, at = (line, mark + 2) if doubled else (self._next(), 0)
        return "".join(parts), "", 0

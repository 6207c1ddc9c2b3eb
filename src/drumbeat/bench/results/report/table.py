"""A table of text that can be written as HTML or Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

from drumbeat.bench.results.report.escape import markdown, markup


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """A header and rows. The first ``texts`` columns and those named in ``prose`` contain text, the others numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1
    prose: frozenset[str] = frozenset()
    note: str = ""

    def as_html(self) -> str:
        head = "".join(f"<th{self._side(n)}>{markup(name)}</th>" for n, name in enumerate(self.head))
        body = "".join(self._html_row(row) for row in self.rows)
        note = f'<p class="note">{markup(self.note)}</p>' if self.note else ""
        return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}'

    def _html_row(self, row: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<td{self._side(n)}>{markup(text)}</td>" for n, text in enumerate(row)) + "</tr>"

    def _side(self, column: int) -> str:
        return "" if self._is_text(column) else ' class="n"'

    def _is_text(self, column: int) -> bool:
        return column < self.texts or self.head[column] in self.prose

    def as_markdown(self) -> str:
        lines = [self.head, ["---" if self._is_text(n) else "---:" for n in range(len(self.head))]]
        text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        body = "".join("\n| " + " | ".join(markdown(each) for each in row) + " |" for row in self.rows)
        return text + body + (f"\n\n{markdown(self.note)}" if self.note else "")

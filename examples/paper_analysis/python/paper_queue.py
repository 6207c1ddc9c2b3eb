"""The table ``paper_queue``, which the crawler fills and the analysis reads, in a separate SQLite file."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_TABLE = """
CREATE TABLE IF NOT EXISTS paper_queue (
    paper_id     INTEGER PRIMARY KEY,
    text_path    TEXT NOT NULL UNIQUE,
    summary_path TEXT,
    error        TEXT
)
"""


class PaperQueue:
    """Each method is one transaction."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def add(self, texts: list[Path]) -> None:
        """Add papers, as a crawler would; existing ones are not changed."""
        with self._open() as table:
            table.executemany(
                "INSERT INTO paper_queue (text_path) VALUES (?) ON CONFLICT DO NOTHING", [(str(text),) for text in texts]
            )

    def papers(self) -> list[dict[str, Any]]:
        with self._open() as table:
            return [dict(row) for row in table.execute("SELECT * FROM paper_queue ORDER BY paper_id")]

    def summarized(self, paper_id: int, summary_path: Path) -> None:
        with self._open() as table:
            table.execute(
                "UPDATE paper_queue SET summary_path = ?, error = NULL WHERE paper_id = ?", (str(summary_path), paper_id)
            )

    def failed(self, paper_id: int, error: str) -> None:
        with self._open() as table:
            table.execute("UPDATE paper_queue SET error = ? WHERE paper_id = ?", (error, paper_id))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._file, timeout=30)
        connection.row_factory = sqlite3.Row
        try:
            with connection:
                connection.execute(_TABLE)
                yield connection
        finally:
            connection.close()

"""Notes in memory: small JSON documents that are stored under a name."""

from collections.abc import Mapping, Sequence
from typing import Any

from drumbeat.core.note import Note
from drumbeat.store.memory.state import MemoryTable, operation, plain


class MemoryNotes(MemoryTable):
    @operation
    def put(self, name: str, value: Mapping[str, Any]) -> Note:
        self.state.notes[name] = Note(name=name, value=plain(value), updated_at=self.state.now())
        return self.state.notes[name]

    @operation
    def find(self, name: str) -> Note | None:
        return self.state.notes.get(name)

    @operation
    def list(self, prefix: str = "") -> Sequence[Note]:
        return [self.state.notes[name] for name in sorted(self.state.notes) if name.startswith(prefix)]

    @operation
    def delete(self, name: str) -> None:
        self.state.notes.pop(name, None)

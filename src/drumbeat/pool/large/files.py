"""Stores large values as files in a folder, which all processes that use the pool must share."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path

from drumbeat.core.errors import LargeLost, LargeUnavailable
from drumbeat.pool.large.place import StoredValue, check_key
from drumbeat.spawn.private import private_folder

_SUFFIX = ".json"
_BATCH = 100  #: values that are listed in one call of a thread


class FilePlace:
    """A folder for large values, readable only by the user that runs the processes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.name = f"folder {root}"

    async def write(self, key: str, data: bytes) -> None:
        await asyncio.to_thread(self._write, check_key(key), data)

    def _write(self, key: str, data: bytes) -> None:
        path = self._root / key
        part = path.with_name(f"{path.stem}-part{_SUFFIX}")  # a sweep deletes what an interrupted write leaves
        try:
            private_folder(path.parent)
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
            self._sync_folder(path.parent)
        except OSError as exc:
            raise LargeUnavailable(f"cannot write a large value to {self.name}: {exc.strerror or exc}") from exc

    def _sync_folder(self, folder: Path) -> None:
        """Make the names of new files and folders durable, from this folder up to the root folder of large values."""
        while True:
            opened = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)
            if folder == self._root or self._root not in folder.parents:
                return
            folder = folder.parent

    async def read(self, key: str, most: int) -> bytes:
        return await asyncio.to_thread(self._read, check_key(key), most)

    def _read(self, key: str, most: int) -> bytes:
        try:
            with (self._root / key).open("rb") as file:
                return file.read(most + 1)
        except FileNotFoundError as exc:
            if not self._root.is_dir():
                raise LargeUnavailable(f"cannot read a large value: {self.name} does not exist here; is it mounted?") from exc
            raise LargeLost(f"{self.name} has no file {key}: it was deleted, or the setting [pool] large was changed") from exc
        except OSError as exc:
            raise LargeUnavailable(f"cannot read a large value from {self.name}: {exc.strerror or exc}") from exc

    async def list(self, prefix: str, after: str) -> AsyncIterator[StoredValue]:
        found = self._found(prefix, after)
        while batch := await asyncio.to_thread(lambda: list(itertools.islice(found, _BATCH))):
            for value in batch:
                yield value

    def _found(self, folder: str, after: str) -> Iterator[StoredValue]:
        """Yield the values in ``folder`` (a key that ends in ``/``) whose keys come after ``after``, sorted by key."""
        for key, entry in self._entries(folder):
            if key.endswith("/"):
                if key > after or after.startswith(key):
                    yield from self._found(key, after)
            elif key > after and key.endswith(_SUFFIX):
                try:
                    modified = datetime.fromtimestamp(entry.stat().st_mtime, UTC)
                except FileNotFoundError:
                    continue
                yield StoredValue(key=key, modified=modified)

    def _entries(self, folder: str) -> Sequence[tuple[str, os.DirEntry[str]]]:
        """Return the files and folders in a folder with their keys, sorted by key. The key of a folder ends in ``/``."""
        try:
            with os.scandir(self._root / folder) as entries:
                named = [(f"{folder}{each.name}{'/' * each.is_dir(follow_symlinks=False)}", each) for each in entries]
        except FileNotFoundError:
            return ()
        except OSError as exc:
            raise LargeUnavailable(f"cannot list the large values in {self.name}: {exc.strerror or exc}") from exc
        return sorted(named, key=itemgetter(0))

    async def delete(self, key: str) -> None:
        await asyncio.to_thread(self._delete, check_key(key))

    def _delete(self, key: str) -> None:
        path = self._root / key
        try:
            path.unlink(missing_ok=True)
        except OSError as exc:
            raise LargeUnavailable(f"cannot delete a large value from {self.name}: {exc.strerror or exc}") from exc
        for folder in path.parents:  # remove folders that are empty now, up to the root
            if folder == self._root:
                return
            try:
                folder.rmdir()
            except OSError:
                return

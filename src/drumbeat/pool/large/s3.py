"""Stores large values as objects of an S3-compatible service, with the library obstore (the extra ``s3``)."""

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import obstore
from obstore import exceptions
from obstore.store import S3Store

from drumbeat.core.errors import InvalidSettings, LargeLost, LargeUnavailable
from drumbeat.pool.large.place import StoredValue, check_key

_OPTIONS = ("endpoint", "region")
_RETRIES = 2
_RETRY_WITHIN = timedelta(seconds=15)


class S3Place:
    """A bucket for large values. Credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from the host's role."""

    def __init__(self, url: str) -> None:
        """``url``: ``s3://BUCKET/PREFIX?endpoint=https://…&region=…``. Raises InvalidSettings."""
        parts = urlsplit(url)
        self._prefix = parts.path.strip("/")
        self.name = f"bucket {parts.netloc}" + (f"/{self._prefix}" if self._prefix else "")
        options = _options(dict(parse_qsl(parts.query, keep_blank_values=True)))
        named: Any = {name: options[name] for name in _OPTIONS if name in options}
        retry: Any = {"max_retries": _RETRIES, "retry_timeout": _RETRY_WITHIN}
        try:
            self._store = S3Store(
                parts.netloc,
                prefix=self._prefix or None,
                client_options={"allow_http": options.get("endpoint", "").startswith("http://")},
                retry_config=retry,
                **named,
            )
        except exceptions.BaseError as exc:
            raise InvalidSettings(f"cannot use {self.name} for large values: {_first_line(exc)}") from exc

    async def write(self, key: str, data: bytes) -> None:
        try:
            await self._store.put_async(check_key(key), data)
        except (exceptions.BaseError, OSError) as exc:
            raise LargeUnavailable(f"cannot write a large value to {self.name}: {_first_line(exc)}") from exc

    async def read(self, key: str, most: int) -> bytes:
        try:
            found = await self._store.get_async(check_key(key))
            if found.meta["size"] > most:
                return bytes(await self._store.get_range_async(key, start=0, end=most + 1))
            return bytes(await found.bytes_async())
        except (FileNotFoundError, exceptions.NotFoundError) as exc:
            raise LargeLost(
                f"{self.name} has no object {key}: it was deleted, or the setting [pool] large was changed"
            ) from exc
        except (exceptions.BaseError, OSError) as exc:
            raise LargeUnavailable(f"cannot read a large value from {self.name}: {_first_line(exc)}") from exc

    async def list(self, prefix: str, after: str) -> AsyncIterator[StoredValue]:
        try:
            async for page in obstore.list(self._store, prefix=prefix, offset=after or None):
                for found in page:
                    yield StoredValue(key=found["path"], modified=found["last_modified"])
        except (exceptions.BaseError, OSError) as exc:
            raise LargeUnavailable(f"cannot list the large values in {self.name}: {_first_line(exc)}") from exc

    async def delete(self, key: str) -> None:
        try:
            await self._store.delete_async(check_key(key))
        except (FileNotFoundError, exceptions.NotFoundError):
            return
        except (exceptions.BaseError, OSError) as exc:
            raise LargeUnavailable(f"cannot delete a large value from {self.name}: {_first_line(exc)}") from exc


def _options(given: Mapping[str, str]) -> Mapping[str, str]:
    for name in given:
        if name not in _OPTIONS:
            raise InvalidSettings(f"[pool] large: expected only the options {', '.join(_OPTIONS)}, got {name!r}")
    return given


def _first_line(exc: Exception) -> str:
    return (str(exc).strip().splitlines() or [type(exc).__name__])[0][:300]

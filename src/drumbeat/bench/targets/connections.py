"""Stored connections, with encrypted passwords that are decrypted only in memory."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from drumbeat.bench.targets.catalogue import TableName, tables_of
from drumbeat.bench.targets.interface import TableDescription, Target
from drumbeat.bench.targets.open import open_target
from drumbeat.bench.targets.urls import holds_password, with_password
from drumbeat.bench.targets.vault import Vault
from drumbeat.core.connection import Sealed, StoredConnection
from drumbeat.core.errors import DrumbeatError, InvalidInput
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

TEST_TIMEOUT = 10.0  #: seconds to wait for a database to answer
LONGEST_URL = 2000
LONGEST_PASSWORD = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """The result of a connection test."""

    ok: bool
    location: str | None = None
    detail: str | None = None  #: why the test failed


class ConnectionService:
    """Stored connections by name. Results never contain a password."""

    def __init__(self, store: Store, vault: Vault) -> None:
        self._store = store
        self._vault = vault

    async def add(self, name: str, url: str, password: str | None = None, description: str | None = None) -> StoredConnection:
        """Store a connection. Raises InvalidInput, AlreadyExists, and InvalidSettings if there is no key for its password."""
        if not _NAME.fullmatch(name):
            raise InvalidInput(
                f"name: expected up to 100 letters, digits and _ . -, beginning with a letter or digit; got {name[:100]!r}"
            )
        _check(url, password)
        secret = self._sealed(name, url, password)
        return await self._store.connections.create(
            StoredConnection(name=name, url=url, secret=secret, description=description)
        )

    async def change(
        self, name: str, url: str | None = None, password: str | None = None, description: str | None = None
    ) -> StoredConnection:
        """Replace the given fields; an empty password removes it. A new URL needs the password again. Raises NotFound."""
        stored = await self._store.connections.get(name)
        new_url = url or stored.url
        _check(new_url, password)
        if new_url != stored.url and stored.secret is not None and password is None:
            raise InvalidInput("password: expected it again, because the URL changed and a password is stored for one URL")
        secret = stored.secret if password is None else self._sealed(name, new_url, password)
        text = stored.description if description is None else description or None
        return await self._store.connections.save(replace(stored, url=new_url, secret=secret, description=text))

    async def reseal(self) -> Sequence[str]:
        """Encrypt every password with the first key. Returns the names of the connections that used another key."""
        resealed = []
        for stored in await self._store.connections.list():
            if stored.secret is not None and not self._vault.is_current(stored.secret):
                opened = self._vault.open(stored.secret, _bound_to(stored.name, stored.url))
                await self._store.connections.save(replace(stored, secret=self._sealed(stored.name, stored.url, opened)))
                resealed.append(stored.name)
        return resealed

    async def test(self, name: str) -> Tested:
        """Connect to the database and list its tables. Raises NotFound; any other error is in the result."""
        stored = await self._store.connections.get(name)
        try:
            async with asyncio.timeout(TEST_TIMEOUT), open_target(self._opened(stored)) as target:
                await tables_of(target)
                return Tested(ok=True, location=target.location)
        except TimeoutError:
            return Tested(ok=False, detail=f"no answer within {TEST_TIMEOUT:g} s")
        except (DrumbeatError, OSError) as exc:
            return Tested(ok=False, detail=str(exc))

    async def tables(self, name: str) -> Sequence[TableName]:
        """The tables of a connection's database. Raises NotFound, InvalidInput."""
        return await self.tables_at({"connection": name})

    async def tables_at(self, target: Mapping[str, Any]) -> Sequence[TableName]:
        """The tables of the database in a template's ``target``. Raises NotFound, InvalidInput, InvalidSettings."""
        async with self.open(target) as opened:
            return await tables_of(opened)

    async def table(self, name: str, table: str) -> TableDescription:
        """A table's columns. Raises NotFound, InvalidInput."""
        async with self.open({"connection": name}) as target:
            return await target.describe(table)

    async def url_of(self, name: str) -> str:
        """The URL of a connection, without its password. Raises NotFound."""
        return (await self._store.connections.get(name)).url

    @asynccontextmanager
    async def open(self, target: Mapping[str, Any]) -> AsyncIterator[Target]:
        """Open the ``target`` of a template or run. Raises InvalidInput if its connection now points to another database."""
        async with open_target(await self._url(target)) as opened:
            yield opened

    async def _url(self, target: Mapping[str, Any]) -> str:
        """The target's URL, including the password if there is one: only for database drivers."""
        url, named = target.get("url") or "", target.get("connection")
        if not named:
            return str(url)
        stored = await self._store.connections.get(str(named))
        if url and url != stored.url:
            raise InvalidInput(f"connection {named!r} points to another database than when this was created; create it again")
        return self._opened(stored)

    def _opened(self, stored: StoredConnection) -> str:
        if stored.secret is None:
            return stored.url
        return with_password(stored.url, self._vault.open(stored.secret, _bound_to(stored.name, stored.url)))

    def _sealed(self, name: str, url: str, password: str | None) -> Sealed | None:
        return self._vault.seal(password, _bound_to(name, url)) if password else None


def _bound_to(name: str, url: str) -> str:
    """What a password is bound to, so that it cannot be decrypted for another connection or URL."""
    return f"{name}\n{url}"


def _check(url: str, password: str | None) -> None:
    """Raise InvalidInput or InvalidSettings if the URL or password is invalid. The message never shows the password."""
    if len(url) > LONGEST_URL:
        raise InvalidInput(f"url: expected at most {LONGEST_URL} characters, got {len(url)}")
    if holds_password(url):
        raise InvalidInput("url: holds a password; give it as the password instead, which is encrypted")
    if not (url.isprintable() and url.isascii()):
        raise InvalidInput("url: expected printable ASCII; write other characters as %XX")
    open_target(url)
    if password and len(password) > LONGEST_PASSWORD:
        raise InvalidInput(f"password: expected at most {LONGEST_PASSWORD} characters, got {len(password)}")
    if password and "@" not in urlsplit(url).netloc:
        raise InvalidInput("password: expected none for a file database or a URL without a user; write the URL with USER@HOST")

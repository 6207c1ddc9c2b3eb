"""Named database connections in the store. Passwords are stored encrypted and decrypted only in memory."""

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
from drumbeat.bench.targets.urls import holds_password, with_password, with_warehouse
from drumbeat.bench.targets.vault import Vault
from drumbeat.core.connection import LONGEST_PASSWORD, LONGEST_URL, EncryptedSecret, StoredConnection
from drumbeat.core.errors import DrumbeatError, InvalidInput
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

TEST_TIMEOUT = 10.0  #: seconds to wait for a database to answer
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionTest:
    """The result of a connection test: whether it succeeded, where it connected to, or why it failed."""

    ok: bool
    location: str | None = None
    detail: str | None = None  #: why the test failed


class ConnectionService:
    """Adds, changes, tests and opens stored connections by name. Results never contain a password."""

    def __init__(self, store: Store, vault: Vault) -> None:
        self._store = store
        self._vault = vault

    async def add(self, name: str, url: str, password: str | None = None, description: str | None = None) -> StoredConnection:
        """Store a connection. Raises InvalidInput, AlreadyExists, or InvalidSettings (such as: no key to encrypt with)."""
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
        """Change a stored connection. An empty password deletes the stored one. With a new URL, a stored password must be given
        again. Raises NotFound, InvalidInput."""
        stored = await self._store.connections.get(name)
        new_url = url or stored.url
        _check(new_url, password)
        if new_url != stored.url and stored.secret is not None and password is None:
            raise InvalidInput("password: expected the password again, because it is stored for one URL and the URL changed")
        secret = stored.secret if password is None else self._sealed(name, new_url, password)
        text = stored.description if description is None else description or None
        return await self._store.connections.save(replace(stored, url=new_url, secret=secret, description=text))

    async def reseal(self) -> Sequence[str]:
        """Encrypt with the current key each password that was encrypted with an older one. Returns the connections' names."""
        resealed = []
        for stored in await self._store.connections.list():
            if stored.secret is not None and not self._vault.is_current(stored.secret):
                opened = self._vault.open(stored.secret, _bound_to(stored.name, stored.url))
                await self._store.connections.save(replace(stored, secret=self._sealed(stored.name, stored.url, opened)))
                resealed.append(stored.name)
        return resealed

    async def test(self, name: str) -> ConnectionTest:
        """Test a connection: connect and list the tables. Raises NotFound; other errors are returned in the result."""
        stored = await self._store.connections.get(name)
        try:
            async with asyncio.timeout(TEST_TIMEOUT), open_target(self._opened(stored)) as target:
                await tables_of(target)
                return ConnectionTest(ok=True, location=target.location)
        except TimeoutError:
            return ConnectionTest(ok=False, detail=f"no answer within {TEST_TIMEOUT:g} s")
        except (DrumbeatError, OSError) as exc:
            return ConnectionTest(ok=False, detail=str(exc))

    async def tables(self, name: str) -> Sequence[TableName]:
        """List the tables of a stored connection's database. Raises NotFound, InvalidInput."""
        return await self.tables_at({"connection": name})

    async def tables_at(self, target: Mapping[str, Any]) -> Sequence[TableName]:
        """List the tables of the database in a template's ``target`` block. Raises NotFound, InvalidInput, InvalidSettings."""
        async with self.open(target) as opened:
            return await tables_of(opened)

    async def table(self, name: str, table: str) -> TableDescription:
        """Describe a table of a stored connection's database. Raises NotFound, InvalidInput."""
        async with self.open({"connection": name}) as target:
            return await target.describe(table)

    async def url_of(self, name: str) -> str:
        """Return a stored connection's URL, which contains no password. Raises NotFound."""
        return (await self._store.connections.get(name)).url

    @asynccontextmanager
    async def open(self, target: Mapping[str, Any]) -> AsyncIterator[Target]:
        """Open the database in the ``target`` block of a template or run. Raises InvalidInput if the block names a stored
        connection whose URL was changed after the template or run was created."""
        async with open_target(await self._url(target)) as opened:
            yield opened

    async def _url(self, target: Mapping[str, Any]) -> str:
        """Return the target's URL including its password. Pass the result only to a database driver, never to a user."""
        url, named = target.get("url") or "", target.get("connection")
        warehouse = (target.get("warehouse") or {}).get("name")
        if not named:
            return with_warehouse(str(url), warehouse)
        stored = await self._store.connections.get(str(named))
        if url and url != stored.url:
            raise InvalidInput(
                f"the URL of connection {named!r} changed after this run or template was created; "
                "create the run or template again"
            )
        return with_warehouse(self._opened(stored), warehouse)

    def _opened(self, stored: StoredConnection) -> str:
        if stored.secret is None:
            return stored.url
        return with_password(stored.url, self._vault.open(stored.secret, _bound_to(stored.name, stored.url)))

    def _sealed(self, name: str, url: str, password: str | None) -> EncryptedSecret | None:
        return self._vault.seal(password, _bound_to(name, url)) if password else None


def _bound_to(name: str, url: str) -> str:
    """Return the name and URL of a connection as one text. Its password is encrypted for this text (see ``Vault.seal``), so
    a password that is copied to another connection or URL cannot be decrypted there."""
    return f"{name}\n{url}"


def _check(url: str, password: str | None) -> None:
    """Raise InvalidInput or InvalidSettings if the URL or password is invalid. The message never shows the password."""
    if len(url) > LONGEST_URL:
        raise InvalidInput(f"url: expected at most {LONGEST_URL} characters, got {len(url)}")
    if holds_password(url):
        raise InvalidInput("url: holds a password; remove it from the URL and give it as password, which is encrypted")
    if not (url.isprintable() and url.isascii()):
        raise InvalidInput("url: expected printable ASCII; write other characters as %XX")
    open_target(url)
    if password and len(password) > LONGEST_PASSWORD:
        raise InvalidInput(f"password: expected at most {LONGEST_PASSWORD} characters, got {len(password)}")
    if password and "@" not in urlsplit(url).netloc:
        raise InvalidInput("password: expected no password, because the URL names no user; write the URL with USER@HOST")

"""Stored connections: kept with their passwords sealed, opened in memory alone, and what they mean in templates and runs."""

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

PATIENCE = 10.0  #: seconds a database is given to answer
LONGEST_URL = 2000
LONGEST_PASSWORD = 1000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """Whether a database answered."""

    ok: bool
    location: str | None = None
    detail: str | None = None  #: why not


class ConnectionService:
    """Connections by name. What it answers with never holds a password."""

    def __init__(self, store: Store, vault: Vault) -> None:
        self._store = store
        self._vault = vault

    async def add(self, name: str, url: str, password: str | None = None, description: str | None = None) -> StoredConnection:
        """Keep a connection. Raises InvalidInput, AlreadyExists, and InvalidSettings without a key to seal a password with."""
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
        """Replace what is given; an empty password takes it away. A password stays only where its URL does. Raises NotFound."""
        kept = await self._store.connections.get(name)
        to = url or kept.url
        _check(to, password)
        if to != kept.url and kept.secret is not None and password is None:
            raise InvalidInput("password: expected it again, for the URL is another, and a password is sealed for one URL")
        secret = kept.secret if password is None else self._sealed(name, to, password)
        said = kept.description if description is None else description or None
        return await self._store.connections.save(replace(kept, url=to, secret=secret, description=said))

    async def reseal(self) -> Sequence[str]:
        """Seal every password with the first key. Answers with the names of those that were sealed with another."""
        done = []
        for kept in await self._store.connections.list():
            if kept.secret is not None and not self._vault.is_current(kept.secret):
                opened = self._vault.open(kept.secret, _bond(kept.name, kept.url))
                await self._store.connections.save(replace(kept, secret=self._sealed(kept.name, kept.url, opened)))
                done.append(kept.name)
        return done

    async def test(self, name: str) -> Tested:
        """Ask the database whether it is there. Raises NotFound; whatever else goes wrong is in the answer."""
        kept = await self._store.connections.get(name)
        try:
            async with asyncio.timeout(PATIENCE), open_target(self._opened(kept)) as target:
                await tables_of(target)
                return Tested(ok=True, location=target.location)
        except TimeoutError:
            return Tested(ok=False, detail=f"it did not answer within {PATIENCE:g} s")
        except (DrumbeatError, OSError) as exc:
            return Tested(ok=False, detail=str(exc))

    async def tables(self, name: str) -> Sequence[TableName]:
        """The tables of a connection's database. Raises NotFound, InvalidInput."""
        return await self.tables_at({"connection": name})

    async def tables_at(self, target: Mapping[str, Any]) -> Sequence[TableName]:
        """The tables of the database that a template's ``target`` means. Raises NotFound, InvalidInput, InvalidSettings."""
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
        """The database a template's or a run's ``target`` means. Raises InvalidInput when its connection leads elsewhere."""
        async with open_target(await self._url(target)) as opened:
            yield opened

    async def _url(self, target: Mapping[str, Any]) -> str:
        """With the password, if there is one: to be given to a driver, and to nobody else."""
        url, named = target.get("url") or "", target.get("connection")
        if not named:
            return str(url)
        kept = await self._store.connections.get(str(named))
        if url and url != kept.url:
            raise InvalidInput(f"connection {named!r} leads to another database than when this was made; make it anew")
        return self._opened(kept)

    def _opened(self, kept: StoredConnection) -> str:
        if kept.secret is None:
            return kept.url
        return with_password(kept.url, self._vault.open(kept.secret, _bond(kept.name, kept.url)))

    def _sealed(self, name: str, url: str, password: str | None) -> Sealed | None:
        return self._vault.seal(password, _bond(name, url)) if password else None


def _bond(name: str, url: str) -> str:
    """What a password is sealed for: moved to another row or another URL in the store, it does not open."""
    return f"{name}\n{url}"


def _check(url: str, password: str | None) -> None:
    """Raise InvalidInput or InvalidSettings for what cannot be a connection; what is wrong with a password is not shown."""
    if len(url) > LONGEST_URL:
        raise InvalidInput(f"url: expected at most {LONGEST_URL} characters, got {len(url)}")
    if holds_password(url):
        raise InvalidInput("url: holds a password; give it as the password, which is sealed")
    if not (url.isprintable() and url.isascii()):
        raise InvalidInput("url: expected printable ASCII; write other characters as %XX")
    open_target(url)
    if password and len(password) > LONGEST_PASSWORD:
        raise InvalidInput(f"password: expected at most {LONGEST_PASSWORD} characters, got {len(password)}")
    if password and "@" not in urlsplit(url).netloc:
        raise InvalidInput("password: expected none for a database that is a file, or without a user in its URL: USER@HOST")

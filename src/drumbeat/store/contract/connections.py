"""Tests of connections: the stored addresses of the databases that benchmarks run against."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from drumbeat.core.connection import EncryptedSecret, StoredConnection
from drumbeat.core.errors import AlreadyExists, NotFound
from drumbeat.store.contract.given import MINUTE, Elapse, Given, unique
from drumbeat.store.interface import Store

SEALED = EncryptedSecret(key_id="k1", text="c2VhbGVk")


def connection(**changed: Any) -> StoredConnection:
    fields: dict[str, Any] = {"name": unique("connection"), "url": "postgresql://bench@db/load", "secret": SEALED} | changed
    return StoredConnection(**fields)


async def created(store: Store, **changed: Any) -> StoredConnection:
    return await store.connections.create(connection(**changed))


class ConnectionsContract(Given):
    @pytest.mark.parametrize("secret", [SEALED, None])
    async def test_a_connection_comes_back_as_it_was_made(self, store: Store, secret: EncryptedSecret | None) -> None:
        given = connection(secret=secret, description="Grüße 🥁")

        made = await store.connections.create(given)

        assert made == await store.connections.get(given.name)
        assert made == replace(given, created_at=made.created_at, updated_at=made.updated_at)
        assert made.created_at is not None

    async def test_a_name_is_taken_once(self, store: Store) -> None:
        first = await created(store)

        with pytest.raises(AlreadyExists, match=first.name):
            await created(store, name=first.name, url="sqlite:///other.db")

        assert await store.connections.get(first.name) == first

    async def test_only_one_of_several_concurrent_creations_of_a_connection_succeeds(self, store: Store) -> None:
        name = unique("connection")

        answers = await asyncio.gather(*(created(store, name=name) for _ in range(8)), return_exceptions=True)

        assert sorted(type(answer).__name__ for answer in answers) == ["AlreadyExists"] * 7 + ["StoredConnection"]

    async def test_connections_are_listed_by_name(self, store: Store) -> None:
        made = [await created(store) for _ in range(3)]

        names = [each.name for each in await store.connections.list()]

        assert names == sorted(names)
        assert {each.name for each in made} <= set(names)

    async def test_what_is_saved_takes_the_place_of_what_was(self, store: Store, elapse: Elapse) -> None:
        made = await created(store, description="old")
        await elapse(MINUTE)

        saved = await store.connections.save(replace(made, url="sqlite:///x.db", secret=None, description=None))

        assert (saved.url, saved.secret, saved.description) == ("sqlite:///x.db", None, None)
        assert await store.connections.get(made.name) == saved
        assert saved.updated_at is not None
        assert saved.created_at is not None
        assert saved.updated_at > saved.created_at

    async def test_one_connection_is_the_default_and_saving_it_keeps_that(self, store: Store) -> None:
        first, second = await created(store, is_default=True), await created(store)
        assert not first.is_default

        await store.connections.set_default(first.name)
        chosen = await store.connections.set_default(second.name)
        await store.connections.save(replace(chosen, is_default=False))

        assert [each.name for each in await store.connections.list() if each.is_default] == [second.name]

    @pytest.mark.parametrize("method", ["get", "set_default"])
    async def test_an_unknown_connection_is_not_found(self, store: Store, method: str) -> None:
        with pytest.raises(NotFound, match=r"nobody-made.*list"):
            await getattr(store.connections, method)("nobody-made")

    async def test_an_unknown_connection_is_not_saved(self, store: Store) -> None:
        with pytest.raises(NotFound, match="nobody-saved"):
            await store.connections.save(connection(name="nobody-saved"))

    async def test_a_deleted_connection_is_gone_and_deleting_it_again_is_harmless(self, store: Store) -> None:
        made = await created(store)

        await store.connections.delete(made.name)
        await store.connections.delete(made.name)

        with pytest.raises(NotFound):
            await store.connections.get(made.name)

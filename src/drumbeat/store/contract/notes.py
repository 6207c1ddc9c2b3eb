"""Tests of notes: small JSON documents that are stored under a name."""

import asyncio

from drumbeat.store.contract.given import MINUTE, Elapse, Given, unique
from drumbeat.store.interface import Store

VALUE = {"worker_hour": 0.25, "currency": "€", "of": {"a": [1, None, True]}}


class NotesContract(Given):
    async def test_a_note_comes_back_as_it_was_with_the_stores_time(self, store: Store) -> None:
        name, before = unique("note"), await store.now()

        put = await store.notes.put(name, VALUE)

        assert (put.name, put.value) == (name, VALUE)
        assert before <= put.updated_at <= await store.now()
        assert await store.notes.find(name) == put

    async def test_a_later_note_takes_the_place_of_an_earlier_one(self, store: Store, elapse: Elapse) -> None:
        name = unique("note")
        await store.notes.put(name, VALUE)
        await elapse(MINUTE)

        put = await store.notes.put(name, {"n": 2})

        found = await store.notes.find(name)
        assert found is not None
        assert found.value == {"n": 2}
        assert await store.now() - put.updated_at < MINUTE

    async def test_concurrent_writes_of_a_note_leave_one_of_them_whole(self, store: Store) -> None:
        name = unique("note")

        await asyncio.gather(*(store.notes.put(name, {"a": n, "b": n}) for n in range(8)))

        found = await store.notes.find(name)
        assert found is not None
        assert found.value["a"] == found.value["b"]

    async def test_an_unknown_note_is_not_found(self, store: Store) -> None:
        assert await store.notes.find(unique("note")) is None

    async def test_notes_are_listed_by_the_beginning_of_their_names(self, store: Store) -> None:
        mine = unique("of%_")
        for name in ("/b", "/a/c", "/a", "", "x"):
            await store.notes.put(mine + name, {})

        listed = [note.name for note in await store.notes.list(f"{mine}/")]

        assert listed == [f"{mine}/a", f"{mine}/a/c", f"{mine}/b"]
        assert set(listed) < {note.name for note in await store.notes.list()}

    async def test_a_note_that_was_deleted_is_gone_and_deleting_it_again_is_harmless(self, store: Store) -> None:
        name = unique("note")
        await store.notes.put(name, VALUE)
        assert await store.notes.find(name) is not None

        await store.notes.delete(name)
        await store.notes.delete(name)

        assert await store.notes.find(name) is None

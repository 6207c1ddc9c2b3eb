"""Tests of templates: reusable configurations of benchmark runs."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from drumbeat.core.errors import AlreadyExists, NotFound, Refused, StaleWrite
from drumbeat.core.run import Template
from drumbeat.store.contract.given import AWKWARD, MINUTE, Elapse, Given, new_run, unique
from drumbeat.store.interface import Store


def template(**changed: Any) -> Template:
    fields: dict[str, Any] = {"template_id": unique("template"), "name": unique("name"), "config": {"load_mode": "QPS"}}
    return Template(**(fields | changed))


async def made(store: Store, **changed: Any) -> Template:
    return await store.templates.create(template(**changed))


class MakeTemplatesContract(Given):
    async def test_a_template_comes_back_as_it_was_made(self, store: Store) -> None:
        given = template(config=AWKWARD, description="Grüße 🥁", tags=("nightly", "ci"))
        before = await store.now()

        stored = await store.templates.create(given)

        assert stored == await store.templates.get(given.template_id)
        assert stored == replace(given, created_at=stored.created_at, updated_at=stored.updated_at)
        after = await store.now()
        assert all(stamp is not None and before <= stamp <= after for stamp in (stored.created_at, stored.updated_at))

    async def test_a_new_template_is_unused_even_if_a_usage_count_is_given(self, store: Store) -> None:
        stored = await made(store, usage_count=7, last_used_at=await store.now())

        assert (stored.usage_count, stored.last_used_at) == (0, None)

    @pytest.mark.parametrize("taken", ["template_id", "name"])
    async def test_an_id_and_a_name_are_taken_once(self, store: Store, taken: str) -> None:
        first = await made(store)
        second = replace(template(config={}), **{taken: getattr(first, taken)})

        with pytest.raises(AlreadyExists, match=getattr(first, taken)):
            await store.templates.create(second)

        assert await store.templates.get(getattr(first, taken)) == first

    async def test_only_one_of_several_concurrent_creations_of_a_template_succeeds(self, store: Store) -> None:
        name = unique("name")

        answers = await asyncio.gather(*(made(store, name=name) for _ in range(8)), return_exceptions=True)

        assert sorted(type(answer).__name__ for answer in answers) == ["AlreadyExists"] * 7 + ["Template"]

    async def test_a_template_is_got_by_its_name_too(self, store: Store) -> None:
        stored = await made(store)

        assert await store.templates.get(stored.name) == stored

    async def test_an_id_counts_more_than_a_name(self, store: Store) -> None:
        stored = await made(store)
        await made(store, name=stored.template_id)

        assert await store.templates.get(stored.template_id) == stored

    async def test_an_unknown_template_is_not_got(self, store: Store) -> None:
        with pytest.raises(NotFound, match=r"nobody-made.*list"):
            await store.templates.get("nobody-made")

    async def test_what_the_caller_changes_later_does_not_reach_the_store(self, store: Store) -> None:
        config: dict[str, Any] = {"scaling": {"mode": "AUTO"}}
        stored = await made(store, config=config)

        config["scaling"]["mode"] = "FIXED"

        assert (await store.templates.get(stored.template_id)).config == {"scaling": {"mode": "AUTO"}}


class ListTemplatesContract(Given):
    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            ({}, ["a", "b", "c"]),
            ({"search": "check"}, ["a", "b"]),
            ({"search": "CHECK OUT"}, ["b"]),
            ({"search": "100%"}, ["c"]),
            ({"search": "1_0"}, []),
            ({"tag": "ci"}, ["a", "c"]),
            ({"tag": "c"}, []),
            ({"search": "check", "tag": "ci"}, ["a"]),
        ],
        ids=str,
    )
    async def test_templates_are_listed_by_name_as_asked(
        self, store: Store, filters: dict[str, str], expected: list[str]
    ) -> None:
        mark = unique("mark")
        rows: dict[str, dict[str, Any]] = {
            "c": {"description": "at 100% and more!", "tags": ("ci", "nightly")},
            "a": {"description": "Checks all", "tags": ("ci",)},
            "b": {"description": "Check out"},
        }
        for name, fields in rows.items():
            await made(store, name=f"{mark} {name}", **fields)

        listed = [one.name for one in await store.templates.list(**filters)]

        assert [name for name in listed if name.startswith(mark)] == [f"{mark} {name}" for name in expected]

    async def test_a_part_of_the_name_finds_a_template(self, store: Store) -> None:
        stored = await made(store)

        assert await store.templates.list(stored.name[2:].upper()) == [stored]
        assert await store.templates.list(unique("nothing")) == []


class ChangeTemplatesContract(Given):
    async def test_saving_replaces_name_config_description_and_tags(self, store: Store, elapse: Elapse) -> None:
        first = await made(store, description="old", tags=("old",))
        await elapse(5 * MINUTE)
        before = await store.templates.get(first.template_id)

        changed = replace(before, name=unique("new"), config={"load_mode": "FIXED"}, description=None, tags=("x", "y"))
        saved = await store.templates.save(replace(changed, usage_count=9, created_at=None))

        assert saved == await store.templates.get(first.template_id)
        assert saved == replace(changed, updated_at=saved.updated_at)
        assert saved.updated_at is not None
        assert before.updated_at is not None
        assert saved.updated_at - before.updated_at >= 5 * MINUTE

    async def test_a_name_another_has_is_not_taken_by_saving(self, store: Store) -> None:
        first, second = await made(store), await made(store)

        with pytest.raises(AlreadyExists, match=first.name):
            await store.templates.save(replace(second, name=first.name))

        assert await store.templates.get(second.template_id) == second

    async def test_only_one_of_several_concurrent_renames_to_one_name_succeeds(self, store: Store) -> None:
        name = unique("name")
        templates = [await made(store) for _ in range(6)]

        renaming = (store.templates.save(replace(one, name=name)) for one in templates)
        answers = await asyncio.gather(*renaming, return_exceptions=True)

        assert sorted(type(answer).__name__ for answer in answers) == ["AlreadyExists"] * 5 + ["Template"]

    async def test_a_template_that_changed_since_it_was_read_is_not_saved(self, store: Store) -> None:
        first = await made(store, config=AWKWARD, description="old", tags=("a", "b"))
        changes: list[dict[str, Any]] = [{"description": "new"}, {"tags": ()}, {"name": unique("name")}, {"config": {}}]

        for changed in changes:
            now = await store.templates.save(replace(first, **changed), seen=first)
            with pytest.raises(StaleWrite, match="changed by someone else"):
                await store.templates.save(replace(first, description="mine"), seen=first)
            assert await store.templates.get(first.template_id) == now
            first = await store.templates.save(first, seen=now)
        used = await store.templates.note_use(first.template_id)
        assert (await store.templates.save(replace(used, tags=("used",)), seen=first)).tags == ("used",)

    async def test_of_several_that_save_the_same_template_at_once_one_succeeds(self, store: Store) -> None:
        first = await made(store)

        saving = (store.templates.save(replace(first, description=f"by {n}"), seen=first) for n in range(8))
        answers = await asyncio.gather(*saving, return_exceptions=True)

        assert sorted(type(answer).__name__ for answer in answers) == ["StaleWrite"] * 7 + ["Template"]

    async def test_an_unknown_template_is_neither_saved_nor_used(self, store: Store) -> None:
        with pytest.raises(NotFound):
            await store.templates.save(template())
        with pytest.raises(NotFound):
            await store.templates.note_use("nobody-made")

    async def test_every_use_is_counted(self, store: Store) -> None:
        stored = await made(store)
        await asyncio.gather(*(store.templates.note_use(stored.template_id) for _ in range(5)))
        before = await store.now()

        used = await store.templates.note_use(stored.template_id)

        assert used == await store.templates.get(stored.template_id)
        assert used == replace(stored, usage_count=6, last_used_at=used.last_used_at)
        assert used.last_used_at is not None
        assert before <= used.last_used_at <= await store.now()

    async def test_the_config_of_a_used_template_stays(self, store: Store) -> None:
        stored = await store.templates.note_use((await made(store, config=AWKWARD)).template_id)

        with pytest.raises(Refused, match="copy the template"):
            await store.templates.save(replace(stored, config={**AWKWARD, "load_mode": "FIXED"}))

        assert await store.templates.get(stored.template_id) == stored

    async def test_all_but_the_config_of_a_used_template_may_change(self, store: Store) -> None:
        stored = await store.templates.note_use((await made(store, config=AWKWARD)).template_id)

        saved = await store.templates.save(replace(stored, name=unique("new"), tags=("x",)))

        assert saved == replace(stored, name=saved.name, tags=("x",), updated_at=saved.updated_at)
        assert saved.name != stored.name

    async def test_a_deleted_template_is_gone_and_its_name_free(self, store: Store) -> None:
        stored = await made(store)

        for _ in range(2):
            await store.templates.delete(stored.template_id)

        with pytest.raises(NotFound):
            await store.templates.get(stored.template_id)
        assert (await made(store, name=stored.name)).name == stored.name

    async def test_runs_outlive_their_template(self, store: Store) -> None:
        stored, other = await made(store), await made(store)
        run = await new_run(store)

        await store.templates.delete(stored.template_id)

        assert await store.runs.get(run.run_id) == run
        assert await store.templates.get(other.template_id) == other


class TemplatesContract(MakeTemplatesContract, ListTemplatesContract, ChangeTemplatesContract):
    """All tests of creating, listing and changing templates."""

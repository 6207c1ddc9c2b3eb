"""Tests of stored HTTP responses: a repeated request with the same idempotency key gets the same response."""

import asyncio

from drumbeat.core.answer import RequestAnswer
from drumbeat.store.contract.given import DAY, MINUTE, SECOND, Elapse, Given, unique
from drumbeat.store.interface import Store

GIVEN = RequestAnswer(status=201, body='{"name":"Grüße 🥁"}', location="/api/v1/runs/r1")


class AnswersContract(Given):
    async def test_only_one_of_several_concurrent_holds_gets_the_key(self, store: Store) -> None:
        key = unique("key")

        answers = await asyncio.gather(*(store.answers.hold(key, f"f{n}", MINUTE) for n in range(8)))

        assert sum(answer is None for answer in answers) == 1
        assert len({answer.fingerprint for answer in answers if answer is not None}) == 1

    async def test_a_key_that_is_held_has_no_answer_yet(self, store: Store) -> None:
        key = unique("key")
        await store.answers.hold(key, "f", MINUTE)

        stored = await store.answers.hold(key, "other", MINUTE)

        assert stored is not None
        assert (stored.key, stored.fingerprint, stored.answer) == (key, "f", None)

    async def test_an_answer_is_given_again_until_it_expires(self, store: Store, elapse: Elapse) -> None:
        key = unique("key")
        await store.answers.hold(key, "f", MINUTE)
        await store.answers.give(key, GIVEN, DAY)
        await elapse(2 * MINUTE)

        stored = await store.answers.hold(key, "f", MINUTE)
        assert stored is not None
        assert stored.answer == GIVEN
        await elapse(DAY)

        assert await store.answers.hold(key, "f", MINUTE) is None

    async def test_an_answer_without_a_location_has_none(self, store: Store) -> None:
        key = unique("key")
        await store.answers.hold(key, "f", MINUTE)
        await store.answers.give(key, RequestAnswer(status=202), DAY)

        stored = await store.answers.hold(key, "f", MINUTE)

        assert stored is not None
        assert stored.answer == RequestAnswer(status=202)

    async def test_a_key_whose_holder_died_is_free_again(self, store: Store, elapse: Elapse) -> None:
        key = unique("key")
        await store.answers.hold(key, "f", MINUTE)
        assert await store.answers.hold(key, "g", MINUTE) is not None
        await elapse(MINUTE + SECOND)

        assert await store.answers.hold(key, "g", MINUTE) is None

    async def test_a_key_that_was_let_go_is_free_and_letting_go_again_is_harmless(self, store: Store) -> None:
        key = unique("key")
        await store.answers.hold(key, "f", MINUTE)
        assert await store.answers.hold(key, "g", MINUTE) is not None

        await store.answers.forget(key)
        await store.answers.forget(key)
        await store.answers.give(key, GIVEN, DAY)

        assert await store.answers.hold(key, "g", MINUTE) is None

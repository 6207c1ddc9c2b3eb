"""Stored answers to idempotent HTTP requests, in Redis."""

from datetime import timedelta

from drumbeat.core.answer import RequestAnswer, StoredAnswer
from drumbeat.store.redis.database import RedisDatabase
from drumbeat.store.redis.rows import instant, to_us


class RedisAnswers:
    def __init__(self, database: RedisDatabase) -> None:
        self._database = database

    async def hold(self, key: str, fingerprint: str, within: timedelta) -> StoredAnswer | None:
        row = await self._database.run("answer_hold", key, fingerprint, to_us(within))
        if row is None:
            return None
        stored, expires_at, status, body, location = row
        answer = None if status is None else RequestAnswer(status=int(status), body=body.decode(), location=_text(location))
        return StoredAnswer(key=key, fingerprint=stored.decode(), expires_at=instant(int(expires_at)), answer=answer)

    async def give(self, key: str, answer: RequestAnswer, kept_for: timedelta) -> None:
        await self._database.run("answer_give", key, answer.status, answer.body, answer.location, to_us(kept_for))

    async def forget(self, key: str) -> None:
        await self._database.run("answer_forget", key)


def _text(word: bytes | None) -> str | None:
    return None if word is None else word.decode()

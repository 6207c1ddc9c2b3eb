"""Pushes jobs on an asyncpg connection of the test, in its transaction."""

from collections.abc import Sequence
from typing import Any, cast

from drumbeat.core.job import JobId, NewJob
from drumbeat.core.pool import PoolId
from drumbeat.store.open import own_transactions


async def push_on(url: str, connection: Any, pool_id: PoolId, jobs: Sequence[NewJob]) -> Sequence[JobId]:
    transactions = own_transactions(url)
    assert transactions is not None
    return cast(Sequence[JobId], await cast(Any, transactions.push(connection, pool_id, jobs)))

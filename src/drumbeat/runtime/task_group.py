"""A task group whose errors reach the caller as they are."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from drumbeat.core.errors import first_error


@asynccontextmanager
async def plain_task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Like asyncio.TaskGroup, but if tasks or the block fail, raises their first error and not an ExceptionGroup around it."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors

"""Tasks that the tests push and run."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

import drumbeat
from drumbeat import JobContext


@dataclass
class Order:
    number: int
    placed: datetime | None = None


@drumbeat.task
def add(first: int, second: int = 2) -> int:
    """Add two numbers."""
    return first + second


@drumbeat.task(pool="orders", max_attempts=2, priority=3)
async def ship(order: Order, *others: Order, express: bool = False, **extra: Order) -> list[Order]:
    return [order, *others, *extra.values()]


@drumbeat.task(pool="mail")
def send(context: JobContext, to: str, /, subject: str = "hello") -> str:
    return f"{to}: {subject}, attempt {context.attempt}"


@drumbeat.task(pool="mail")
async def send_last(to: str, subject: str = "hello", context: JobContext | None = None) -> str:
    return f"{to}: {subject}, attempt {context.attempt if context else 'none'}"


@drumbeat.task
def stamp_of(text: str, context: JobContext | None = None) -> str:
    return f"{text} {context.headers.get('stamp') if context else 'none'}"


@drumbeat.task
def total(numbers: Sequence[int]) -> int:
    return sum(numbers)


@drumbeat.task(max_attempts=1)
def not_json() -> object:
    return object()


@drumbeat.task(unique=True)
def once_per_argument(number: int, note: str = "") -> int:
    return number


@drumbeat.task(unique="order:{number}")
def once_per_number(number: int, note: str = "") -> int:
    return number


@drumbeat.task(unique="{day:%Y-%m} {edition:02d}")
def once_per_month(day: date, edition: int = 0) -> str:
    return f"{day} {edition}"


@drumbeat.task(rate="10/m", group_limit=2, timeout=30, backoff=drumbeat.Backoff(factor=3), capability="gpu")
def limited() -> None: ...


def plain(number: int) -> int:
    return number + 1


renamed = drumbeat.task(plain)

"""Runs the Snowflake suites on a real account, where one is named, and says beforehand what that costs.

``DRUMBEAT_TEST_SNOWFLAKE_URL`` is a snowflake:// URL without a password; ``DRUMBEAT_TARGET_PASSWORD`` is the secret. Each test
gets a schema of its own, which is dropped after it.
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from urllib.parse import urlsplit

from drumbeat.bench.model.warehouse import SIZES
from drumbeat.bench.targets.open import open_target
from drumbeat.bench.targets.snowflake_address import address_of

URL_VARIABLE = "DRUMBEAT_TEST_SNOWFLAKE_URL"
_MINUTES = 60  #: how long the suites keep a warehouse busy, at 100 ms for a statement


@contextmanager
def new_schema(url: str) -> Iterator[str]:
    """The URL of a new schema in the account's database; dropped at the end."""
    address = address_of(url)
    name = f"DRUMBEAT_TEST_{token_hex(4).upper()}"
    asyncio.run(_run(url, f"CREATE SCHEMA {address.database}.{name}"))
    try:
        yield urlsplit(url)._replace(path=f"/{address.database}/{name}").geturl()
    finally:
        asyncio.run(_run(url, f"DROP SCHEMA IF EXISTS {address.database}.{name}"))


async def _run(url: str, sql: str) -> None:
    async with open_target(url) as target:
        await target.fetch(sql)


def main() -> int:
    url = os.environ.get(URL_VARIABLE)
    hours = _MINUTES / 60
    print(
        f"On an account the suites keep one warehouse busy for about {_MINUTES} minutes; their tables have a few thousand rows."
    )
    print(
        "Estimated credits by warehouse size: "
        + ", ".join(f"{size} {rate * hours:.1f}" for size, rate in list(SIZES.items())[:4])
    )
    if not url:
        print(
            f"No account is named, so an emulator is used. To run on an account, set {URL_VARIABLE}="
            "snowflake://USER@ACCOUNT/DATABASE?warehouse=NAME and DRUMBEAT_TARGET_PASSWORD."
        )
        return 0
    print(f"Running on {address_of(url).location}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

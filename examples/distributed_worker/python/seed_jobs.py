"""Add test jobs to the pool: ``python seed_jobs.py --count 10``."""

import argparse
import asyncio

from example import POOL, say, work_backend


async def push(count: int, job: dict[str, object], max_retries: int) -> list[str]:
    async with work_backend() as work:
        return [await work.pool(POOL).push({"n": n, **job}, {"max_retries": max_retries}) for n in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--delay", type=float, default=0.5, help="seconds each job takes")
    parser.add_argument("--fail", help="let each job fail with this text")
    parser.add_argument("--max-retries", type=int, default=3)
    given = parser.parse_args()
    job = {"delay": given.delay} | ({"fail": given.fail} if given.fail else {})
    say({"pushed": asyncio.run(push(given.count, job, given.max_retries))})


if __name__ == "__main__":
    main()

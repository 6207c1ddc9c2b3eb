"""One of several processes that claim from the same SQLite file until it is empty, and say what they got.

``python claimer.py theirs|ours FILE WORKER``: waits for a line on stdin, so that all begin at once.
"""

import asyncio
import json
import sqlite3
import sys
from typing import Any

from flatmachines.work import SQLiteWorkBackend

from drumbeat.adapters.flatmachines import DrumbeatWorkBackend

POOL = "race"


def backend(which: str, file: str) -> Any:
    return SQLiteWorkBackend(db_path=file) if which == "theirs" else DrumbeatWorkBackend(f"sqlite:///{file}")


async def claim_all(which: str, file: str, worker_id: str) -> dict[str, Any]:
    made = backend(which, file)
    pool = made.pool(POOL)
    await pool.size()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    got, errors = [], 0
    while True:
        try:
            item = await pool.claim(worker_id)
        except sqlite3.OperationalError:
            errors += 1
            continue
        if item is None:
            break
        got.append(str(item.id))
    if which == "ours":
        await made.close()
    return {"got": got, "errors": errors}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(claim_all(*sys.argv[1:]))))

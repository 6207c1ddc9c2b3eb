"""Summarise the papers of a table, with workers that start on demand.

python papers.py crawl [FILE ...]    add papers to paper_queue (default: the three of this example)
python papers.py import              create a job for each paper without a summary; safe to repeat
python papers.py check               start workers for the jobs, by cron or by hand
python papers.py work                run one worker
python papers.py reap                mark silent workers as lost and release their jobs
python papers.py list                show the papers and their summaries
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from paper_queue import PaperQueue

from drumbeat.adapters.flatmachines import DrumbeatWorkBackend
from drumbeat.adapters.flatmachines.runner import main as run_machine

HERE = Path(__file__).resolve().parent
CONFIG = HERE.parents[1] / "distributed_worker" / "config"
DATA = Path(os.environ.get("EXAMPLE_DATA", HERE.parent / "data"))
STORE = os.environ.get("DRUMBEAT_STORE", f"sqlite:///{DATA}/jobs.sqlite")
POOL = "paper_analysis"
MACHINES = {"check": "parallelization_checker", "work": "job_worker", "reap": "stale_worker_reaper"}


async def import_papers(queue: PaperQueue) -> list[str]:
    """Push a job for each paper. The job's id comes from the paper's, so importing it again creates no second job."""
    async with DrumbeatWorkBackend(STORE) as work:
        return [
            await work.pool(POOL).push(
                {"paper_id": paper["paper_id"], "text_path": paper["text_path"]},
                {"item_id": f"paper-{paper['paper_id']}", "max_retries": 2},
            )
            for paper in queue.papers()
            if paper["summary_path"] is None
        ]


def run(machine: str, given: dict[str, Any]) -> int:
    """Run a machine of the example distributed_worker, with the analyzer as its actual_job_processor."""
    os.environ |= {"DRUMBEAT_STORE": STORE, "DRUMBEAT_STATE_DIR": str(DATA / "workers")}
    analyzer, hooks = HERE.parent / "config" / "analyzer_machine.yml", HERE / "hooks.py"
    return run_machine(
        [
            f"--config={CONFIG / machine}.yml",
            f"--machines=actual_job_processor={analyzer}",
            f"--hooks=papers={hooks}:PaperHooks",
            f"--hooks=validation={hooks}:JsonValidationHooks",
            f"--input={json.dumps({'pool_id': POOL, **given})}",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["crawl", "import", *MACHINES, "list"])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--max-workers", type=int, default=3)
    given = parser.parse_args()
    if given.command in MACHINES:
        return run(MACHINES[given.command], {"max_workers": given.max_workers} if given.command == "check" else {})
    queue = PaperQueue(DATA / "papers.sqlite")
    if given.command == "crawl":
        queue.add([file.absolute() for file in given.files or sorted((HERE.parent / "papers").glob("*.txt"))])
    if given.command == "import":
        sys.stdout.write(json.dumps({"jobs": asyncio.run(import_papers(queue))}, indent=2) + "\n")
    else:
        sys.stdout.write(json.dumps(queue.papers(), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

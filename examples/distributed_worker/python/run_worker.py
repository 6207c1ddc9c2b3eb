"""Run one worker: it claims one job, runs it, and exits: ``python run_worker.py``."""

import argparse
import sys

from example import POOL, run

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker-id", help="the worker's id; default: a new one")
    sys.exit(run("job_worker", {"pool_id": POOL, "worker_id": parser.parse_args().worker_id}))

"""Start as many workers as the queue needs, by cron or by hand: ``python run_checker.py --max-workers 3``."""

import argparse
import sys

from example import POOL, run

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max-workers", type=int, default=10)
    sys.exit(run("parallelization_checker", {"pool_id": POOL, "max_workers": parser.parse_args().max_workers}))

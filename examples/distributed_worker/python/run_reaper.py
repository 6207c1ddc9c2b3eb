"""Mark silent workers as lost and release their jobs: ``python run_reaper.py``."""

import argparse
import sys

from example import POOL, run

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stale-threshold-seconds", type=int, default=60)
    given = {"pool_id": POOL, "stale_threshold_seconds": parser.parse_args().stale_threshold_seconds}
    sys.exit(run("stale_worker_reaper", given))

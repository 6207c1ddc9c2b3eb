"""Which compiled core the driver's tests run with: the installed one, or the one that sanitize.py built."""

import os
from pathlib import Path

from bench.driver.sanitize import LIBRARY_VARIABLE
from drumbeat.bench.driver import core_c

if named := os.environ.get(LIBRARY_VARIABLE):
    core_c.LIBRARY = Path(named)
    os.environ.pop("LD_PRELOAD", None)  # what tests start is not to be checked: PostgreSQL least of all

"""Tests on real engines that take long to install. ``make test`` leaves them out, ``make test-engines`` runs them."""

import os

collect_ignore_glob = [] if os.environ.get("DRUMBEAT_TEST_ENGINES") else ["*/test_*.py", "test_*.py"]

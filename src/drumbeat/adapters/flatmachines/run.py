"""``python -m drumbeat.adapters.flatmachines.run``: the runner, under the same name as FlatMachines' runner."""

import sys

from drumbeat.adapters.flatmachines.runner import main

if __name__ == "__main__":
    sys.exit(main())

"""``python -m drumbeat.adapters.flatmachines.run`` runs a state machine, in place of FlatMachines' own ``flatmachines.run``."""

import sys

from drumbeat.adapters.flatmachines.runner import main

if __name__ == "__main__":
    sys.exit(main())

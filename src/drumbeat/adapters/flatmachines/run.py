"""``python -m drumbeat.adapters.flatmachines.run`` runs a machine; FlatMachines' own runner has the same module name."""

import sys

from drumbeat.adapters.flatmachines.runner import main

if __name__ == "__main__":
    sys.exit(main())

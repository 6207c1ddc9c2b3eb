"""``python -m drumbeat.adapters.flatmachines`` runs a FlatMachines state machine from its file; see ``runner``."""

import sys

from drumbeat.adapters.flatmachines.runner import main

if __name__ == "__main__":
    sys.exit(main())

"""The composition root: builds stores, spawners, services and workers from settings. Only it imports all other packages."""

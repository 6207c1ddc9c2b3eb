"""The composition root: builds stores, spawners, services and workers from settings. Only this package imports everything."""

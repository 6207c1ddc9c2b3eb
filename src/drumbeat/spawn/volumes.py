"""Checks that the disk which workers report is the volume that would be expanded."""

from drumbeat.core.errors import SpawnCause, SpawnError

_SLACK = 1.1  #: a provider may count a GB as 1024³ bytes, workers count it as 10⁹


def check_seen(volume: str, size: int, seen_gb: float) -> None:
    """Raise SpawnError if workers see a much larger disk than this volume: then another disk is mounted."""
    if seen_gb > size * _SLACK:
        message = f"volume {volume}: expected workers to see its {size} GB, they see {seen_gb:.0f}; check that it is mounted"
        raise SpawnError(message, cause=SpawnCause.BAD_REQUEST)

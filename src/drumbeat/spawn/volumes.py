"""Checks, before a volume is expanded, that the disk whose size workers report is that volume."""

from drumbeat.core.errors import SpawnCause, SpawnError

_SLACK = 1.1  #: a provider may count 1024³ bytes as a GB, while workers count 10⁹


def check_seen(volume: str, size: int, seen_gb: float) -> None:
    """Raise SpawnError if workers report a disk (``seen_gb``) clearly larger than this volume: then they use another disk."""
    if seen_gb > size * _SLACK:
        message = f"volume {volume}: expected workers to see its {size} GB, they see {seen_gb:.0f} GB; check that it is mounted"
        raise SpawnError(message, cause=SpawnCause.BAD_REQUEST)

"""Whether what workers see is the volume that their provider would make larger."""

from drumbeat.core.errors import SpawnCause, SpawnError

_SLACK = 1.1  #: a provider may count a GB as 1024³ bytes, workers count it as 10⁹


def check_seen(volume: str, size: int, seen_gb: float) -> None:
    """Raise SpawnError if workers see far more than a volume of this size has: their mount is another disk."""
    if seen_gb > size * _SLACK:
        told = f"volume {volume}: expected workers to see its {size} GB, they see {seen_gb:.0f}: look whether it is mounted"
        raise SpawnError(told, cause=SpawnCause.BAD_REQUEST)

"""Where a server may live: a port, a folder."""

import os
import random
import shutil
import socket
from pathlib import Path

_ROOM_BYTES = 2 << 30


def free_port() -> int:
    """A loopback port that nobody listens on.

    It lies below the range the kernel draws client ports from. A port out of that range could be given to somebody else's
    connection while our server is stopped; a client that keeps knocking could even be connected to itself.
    """
    for _ in range(100):
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise OSError("expected a free loopback port between 10000 and 32000; a hundred random ones were taken")


def memory_folder() -> Path | None:
    """A folder in memory with room for tests, where there is one: creating a database there costs a fifth."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _ROOM_BYTES:
        return memory
    return None

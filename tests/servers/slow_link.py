"""A network link that is late and loses packets: carries frames between two TAP devices in two namespaces, as a process.

python slow_link.py PID DEVICE PID DEVICE DELAY LOSS; the kernel's own ``netem`` is not everywhere.
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time

_TUNSETIFF = 0x400454CA
_TAP, _NO_INFO = 0x0002, 0x1000
_FRAME_BYTES = 65_536
_WAITING = 20_000  #: frames; a real link's queue is not endless either


def tap(pid: int, device: str) -> int:
    """Make a TAP device in the network namespace of a process."""
    with open(f"/proc/{pid}/ns/net") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    made = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(made, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _TAP | _NO_INFO))
    return made


def carry(one: int, other: int, delay: float, loss: float) -> None:
    """Carry frames both ways, for ever. A lost frame is forgotten; the others keep their order."""
    waiting: list[tuple[float, int, int, bytes]] = []
    chance, number = random.Random(0), 0
    while True:
        patience = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for source in select.select([one, other], [], [], patience)[0]:
            frame = os.read(source, _FRAME_BYTES)
            if chance.random() >= loss and len(waiting) < _WAITING:
                number += 1
                heapq.heappush(waiting, (time.monotonic() + delay, number, other if source == one else one, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, target, frame = heapq.heappop(waiting)
            try:
                os.write(target, frame)
            except OSError:
                continue  # the device is down: the cable was pulled


def main() -> None:
    host, device, switch, port, delay, loss = sys.argv[1:]
    one, other = tap(int(host), device), tap(int(switch), port)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    carry(one, other, float(delay), float(loss))


if __name__ == "__main__":
    main()

"""Which tests go together to one test process, which begin first, and in which order the others follow.

xdist's own groups are not heeded with pytest 9.2 (it marks them in an attribute that is gone), and what they are for would be
done once in each process: a browser, a server, a demo. So tests are told apart by where they are.
"""

import hashlib
import os
from itertools import accumulate

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

_BROWSER, _RUNS = "tests/web/pages/", "tests/web/pages/test_run"
SEED = os.environ.get("DRUMBEAT_ORDER_SEED")  #: the same for every test process, which must all collect in one order
_ALONE = ("tests/e2e/", "tests/simulate/")  #: long tests, each with what it needs


class ByPlace(LoadScopeScheduling):  # type: ignore[misc]  # xdist tells no types
    """A file's tests go to one process, in order, so that what they share is made once; long tests go one by one."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)


def scope(nodeid: str) -> str:
    """What has the same name goes to the same process. Browser tests go to two: those of runs have servers of their own."""
    if nodeid.startswith(_BROWSER):
        return "browser runs" if nodeid.startswith(_RUNS) else "browser"
    return nodeid if nodeid.startswith(_ALONE) else nodeid.partition("::")[0]


def turn(item: pytest.Item) -> int:
    """What takes long begins first, so that no process works on alone at the end: browsers, then real waits."""
    place = item.path.as_posix()
    if "/web/pages/" in place:
        return 0
    return 1 if "/e2e/" in place or item.get_closest_marker("slow") else 2


def shuffled_place(item: pytest.Item) -> list[bytes]:
    """Sorts tests into the order that belongs to the seed: files, the classes in each, and the tests in each, stay together."""
    return [
        hashlib.sha256(f"{SEED} {place}".encode()).digest() for place in accumulate(item.nodeid.split("::"), "{}::{}".format)
    ]

"""Builds the driver's small C core with whatever compiler there is. Without one the wheel is pure Python, and slower."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("src/drumbeat/bench/driver/core.c")
LIBRARY = Path("src/drumbeat/bench/driver/_core.so")
FLAGS = ["-O2", "-shared", "-fPIC", "-fvisibility=default"]


class CoreBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles core.c before the wheel, or the editable install, is put together."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        if build(Path(self.root)):
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{_platform()}"
            build_data["artifacts"].append(f"/{LIBRARY}")
        else:
            self.app.display_warning("no C compiler: the PostgreSQL driver will run in Python, about half as fast")


def build(root: Path) -> bool:
    """Whether the core could be compiled."""
    if sys.platform != "linux":
        return False
    for compiler in _compilers():
        command = [*compiler, *FLAGS, "-o", str(root / LIBRARY), str(root / SOURCE)]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return True
    return False


def _compilers() -> list[list[str]]:
    named = [os.environ.get("CC"), "cc", "gcc", "clang"]
    found = [[path] for name in named if name and (path := shutil.which(name))]
    try:
        import ziglang  # noqa: F401
    except ImportError:
        return found
    return [*found, [sys.executable, "-m", "ziglang", "cc"]]


def _platform() -> str:
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")

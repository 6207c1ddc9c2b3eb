"""The package (zip file) that is sent with each job: the supervisor, and the worker's command and environment, encrypted.

Ray cannot keep secrets: it shows the environment of a job to everybody who can list jobs, and writes it to its logs. So the
worker's environment is in a file of the package, encrypted with a key that is used once and is stored in the job's record. On
the node only Ray's user can read the file, and the supervisor deletes it. Only holders of the cluster's token can read both
package and record, and they can run programs as the same user anyway.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from secrets import token_hex
from typing import Final

from drumbeat.spawn.ray.supervisor import TASK_FILE, encrypted

MODULE: Final = "drumbeat_ray_supervisor"  #: the supervisor's name on the nodes
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RayPackage:
    """A zip file for one start of a worker, and the key that decrypts the secrets in it."""

    content: bytes
    key: str
    run: str  #: a random id of this start of the worker

    @property
    def file_name(self) -> str:
        return f"_ray_pkg_drumbeat_{hashlib.sha256(self.content).hexdigest()[:32]}.zip"

    @property
    def uri(self) -> str:
        """The address of the package, as a job's runtime environment names it."""
        return f"gcs://{self.file_name}"


def make_package(command: Sequence[str], environment: Mapping[str, str]) -> RayPackage:
    """Return a package for one start of a worker."""
    key, run = token_hex(32), token_hex(8)
    task = json.dumps({"command": [*command], "environment": dict(environment), "run": run}).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(f"{MODULE}.py", _EPOCH), _supervisor())
        archive.writestr(zipfile.ZipInfo(TASK_FILE, _EPOCH), encrypted(task, key))
    return RayPackage(content=buffer.getvalue(), key=key, run=run)


def _supervisor() -> str:
    return files("drumbeat.spawn.ray").joinpath("supervisor.py").read_text(encoding="utf-8")

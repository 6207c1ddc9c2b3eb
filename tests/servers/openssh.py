"""A real OpenSSH server for tests: the system's, or else Debian's package without installing it.

with OpenSshServer() as server:
    server.port, server.key_file, server.known_hosts, server.user
"""

import getpass
import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import asyncssh
import psutil

from servers import debian
from servers.debian import Unavailable
from servers.life import Server, greets
from servers.unprivileged import RunAs, start

__all__ = ["OpenSshServer", "Unavailable", "installation"]

_CONFIG = """
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
MaxSessions 100
PrintMotd no
"""
#: Where we are root, sshd wants a user ``sshd`` and a folder /run/sshd: it gets them in a mount namespace, unseen by others.
_AS_ROOT = 'mount --bind "$1/passwd" /etc/passwd && mount --bind "$1/run" /run && shift && exec "$@"'
_PARTS = ("sshd-session", "sshd-auth")  #: programs of their own since OpenSSH 9.8


def _lay_out(tree: Path, flat: Path) -> None:
    shutil.copy(tree / "usr/sbin/sshd", flat / "sshd")
    for part in _PARTS:
        for found in tree.rglob(part):
            shutil.copy(found, flat / part)


_PROGRAM = debian.Program(
    name="sshd", folder="openssh", packages=("openssh-server",), depending="openssh-server", lay_out=_lay_out
)


@cache
def installation() -> Path:
    """A folder with ``sshd`` and the libraries it needs: the system's, else one unpacked into the cache."""
    system = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    return Path(system).parent if system is not None else _PROGRAM.unpacked()


class OpenSshServer(Server):
    """An sshd that lets in one key, as the user that runs the tests."""

    PRODUCT, PREFIX = "OpenSSH", "drumbeat-sshd-"
    settings = ""  #: further lines of its configuration

    def logins(self) -> Sequence[psutil.Process]:
        """The processes that serve a connection each."""
        return psutil.Process(self._running().pid).children()

    def cut(self) -> None:
        """Kill the server and every connection; what was started through them goes on."""
        logins = self.logins()
        self.kill()
        for login in logins:
            with suppress(psutil.NoSuchProcess):
                login.kill()

    @property
    def user(self) -> str:
        return getpass.getuser()

    @property
    def key_file(self) -> Path:
        return self.folder / "client_key"

    @property
    def wrong_key_file(self) -> Path:
        return self.folder / "other_key"

    @property
    def known_hosts(self) -> Path:
        """The file with the server's host key; the port is only known once the server runs."""
        path = self.folder / "known_hosts"
        public = (self.folder / "host_key.pub").read_text()
        path.write_text(f"[{self.address}]:{self.port} {public}")
        return path

    def _furnish(self) -> None:
        installation()
        if os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
            raise Unavailable("as root, sshd needs a mount namespace, and none is allowed here")
        for name in ("host_key", "client_key", "other_key"):
            key = asyncssh.generate_private_key("ssh-ed25519")
            key.write_private_key(self.folder / name)
            key.write_public_key(self.folder / f"{name}.pub")
            (self.folder / name).chmod(0o600)
        shutil.copy(self.folder / "client_key.pub", self.folder / "authorized_keys")
        (self.folder / "run" / "sshd").mkdir(parents=True, mode=0o755)
        passwd = Path("/etc/passwd").read_text()
        (self.folder / "passwd").write_text(f"{passwd}sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n")

    def _launched(self, port: int) -> subprocess.Popen[bytes]:
        program, config = installation(), self.folder / "sshd_config"
        is_ours = program.is_relative_to(debian.CACHE)
        paths = "".join(
            f"{word}Path {program / part}\n" for word, part in zip(("SshdSession", "SshdAuth"), _PARTS, strict=True)
        )
        usual = _CONFIG.format(folder=self.folder, address=self.address)
        config.write_text(f"Port {port}{usual}{paths if is_ours and (program / _PARTS[0]).exists() else ''}{self.settings}")
        command = [str(program / "sshd"), "-D", "-e", "-f", str(config)]
        if os.geteuid() == 0:
            command = ["unshare", "--mount", "sh", "-c", _AS_ROOT, "sh", str(self.folder), *command]
        return start([*self.within, *command], RunAs.ITSELF, self.log, {"LD_LIBRARY_PATH": str(program)} if is_ours else {})

    def _is_ready(self, process: subprocess.Popen[bytes], port: int) -> bool:
        return greets(port, b"", lambda answer: answer.startswith(b"SSH-2.0"), self.address)

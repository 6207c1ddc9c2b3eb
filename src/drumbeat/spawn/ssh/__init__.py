"""A spawner that starts workers on hosts reached over SSH."""

from drumbeat.spawn.ssh.settings import SshHost as SshHost, SshSettings as SshSettings
from drumbeat.spawn.ssh.spawner import SshSpawner as SshSpawner

"""FlatMachines on Drumbeat's stores: work and registration backends, a hooks factory, a translator and a runner."""

from drumbeat.core.errors import MissingExtra

try:
    import flatmachines as flatmachines
except ModuleNotFoundError as exc:
    raise MissingExtra("the FlatMachines adapter", "flatmachines") from exc

from drumbeat.adapters.flatmachines.hooks import PoolHooks, registry_of
from drumbeat.adapters.flatmachines.registration import (
    DrumbeatRegistrationBackend,
    PoolWorkerFilter,
    PoolWorkerRegistration,
)
from drumbeat.adapters.flatmachines.runner import Launch, log_to_stderr, run_machine
from drumbeat.adapters.flatmachines.session import MachineSession, Origin, open_session
from drumbeat.adapters.flatmachines.translate import Setting, translate
from drumbeat.adapters.flatmachines.work import DrumbeatWorkBackend, DrumbeatWorkPool

__all__ = [
    "DrumbeatRegistrationBackend",
    "DrumbeatWorkBackend",
    "DrumbeatWorkPool",
    "Launch",
    "MachineSession",
    "Origin",
    "PoolHooks",
    "PoolWorkerFilter",
    "PoolWorkerRegistration",
    "Setting",
    "log_to_stderr",
    "open_session",
    "registry_of",
    "run_machine",
    "translate",
]

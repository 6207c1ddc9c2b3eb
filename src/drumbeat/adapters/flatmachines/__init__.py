"""Runs FlatMachines state machines on Drumbeat's stores: work and registration backends, hooks, a translator, a runner."""

from drumbeat.core.errors import MissingExtra

try:
    import flatmachines as flatmachines
except ModuleNotFoundError as exc:
    raise MissingExtra("the FlatMachines adapter", "flatmachines") from exc

from drumbeat.adapters.flatmachines.hooks import PoolHooks as PoolHooks, registry_of as registry_of
from drumbeat.adapters.flatmachines.registration import (
    DrumbeatRegistrationBackend as DrumbeatRegistrationBackend,
    PoolWorkerFilter as PoolWorkerFilter,
    PoolWorkerRegistration as PoolWorkerRegistration,
)
from drumbeat.adapters.flatmachines.runner import Launch as Launch, log_to_stderr as log_to_stderr, run_machine as run_machine
from drumbeat.adapters.flatmachines.session import (
    MachineSession as MachineSession,
    Origin as Origin,
    open_session as open_session,
)
from drumbeat.adapters.flatmachines.translate import Setting as Setting, translate as translate
from drumbeat.adapters.flatmachines.work import DrumbeatWorkBackend as DrumbeatWorkBackend, DrumbeatWorkPool as DrumbeatWorkPool

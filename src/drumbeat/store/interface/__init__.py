"""The interface of every store. Each method is one atomic operation: it happens completely or not at all.

All timestamps, ages and expiries are by the database's clock, never the caller's. A method with a ``fence`` (the caller's
lease) raises Fenced once another controller has taken the lease. Every method can raise StoreUnavailable; the caller then
does not know whether the write happened, so every write is safe to repeat.
"""

from drumbeat.store.interface.access import Answers as Answers, Connections as Connections, Notes as Notes
from drumbeat.store.interface.bench import (
    ExecutionOrder as ExecutionOrder,
    ExecutionPosition as ExecutionPosition,
    Executions as Executions,
    Results as Results,
    RunChange as RunChange,
    Runs as Runs,
    Steps as Steps,
    Templates as Templates,
)
from drumbeat.store.interface.control import (
    BATCH as BATCH,
    UNREAPED as UNREAPED,
    Events as Events,
    Heartbeat as Heartbeat,
    HeartbeatReply as HeartbeatReply,
    JoinRequest as JoinRequest,
    Leases as Leases,
    Membership as Membership,
    PoolChange as PoolChange,
    Pools as Pools,
    WorkerChange as WorkerChange,
    Workers as Workers,
)
from drumbeat.store.interface.copying import (
    CopiedTable as CopiedTable,
    CopyObserver as CopyObserver,
    CopyOptions as CopyOptions,
    CopyReport as CopyReport,
    ExportedRun as ExportedRun,
)
from drumbeat.store.interface.job_steps import JobSteps as JobSteps
from drumbeat.store.interface.jobs import (
    ClaimRequest as ClaimRequest,
    Due as Due,
    Jobs as Jobs,
    Queue as Queue,
    RenewResult as RenewResult,
    SettleResult as SettleResult,
)
from drumbeat.store.interface.record import (
    MOST_SEARCHED as MOST_SEARCHED,
    Beats as Beats,
    Logs as Logs,
    Samples as Samples,
)
from drumbeat.store.interface.store import (
    Store as Store,
    StoreReport as StoreReport,
    StoreTraits as StoreTraits,
    Upkeep as Upkeep,
)

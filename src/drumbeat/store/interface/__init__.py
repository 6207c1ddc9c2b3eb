"""The interface of every store. Each method is one atomic operation: it happens completely or not at all.

The database's clock, never the caller's, stamps rows and decides ages and expiries. A method with a ``fence`` raises Fenced
once another controller has taken the lease. Every method may raise StoreUnavailable; the caller then does not know whether
the write happened, so every write is safe to repeat.
"""

from drumbeat.store.interface.access import Answers, Connections, Notes
from drumbeat.store.interface.bench import (
    ExecutionOrder,
    Executions,
    Results,
    RunChange,
    Runs,
    Steps,
    Templates,
)
from drumbeat.store.interface.control import (
    BATCH,
    UNREAPED,
    Events,
    Heartbeat,
    HeartbeatReply,
    Joining,
    Leases,
    Membership,
    PoolChange,
    Pools,
    WorkerChange,
    Workers,
)
from drumbeat.store.interface.jobs import Claiming, Due, Jobs, Queue, Renewed, Settled
from drumbeat.store.interface.record import Beats, Logs, Samples
from drumbeat.store.interface.store import Store, StoreReport, StoreTraits, Upkeep

__all__ = [
    "BATCH",
    "UNREAPED",
    "Answers",
    "Beats",
    "Claiming",
    "Connections",
    "Due",
    "Events",
    "ExecutionOrder",
    "Executions",
    "Heartbeat",
    "HeartbeatReply",
    "Jobs",
    "Joining",
    "Leases",
    "Logs",
    "Membership",
    "Notes",
    "PoolChange",
    "Pools",
    "Queue",
    "Renewed",
    "Results",
    "RunChange",
    "Runs",
    "Samples",
    "Settled",
    "Steps",
    "Store",
    "StoreReport",
    "StoreTraits",
    "Templates",
    "Upkeep",
    "WorkerChange",
    "Workers",
]

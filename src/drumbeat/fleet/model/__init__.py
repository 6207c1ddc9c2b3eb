"""Values of the fleet: what a beat observes (view), the policy, the state between beats, and the actions. All are frozen."""

from drumbeat.core.errors import SpawnCause as SpawnCause
from drumbeat.core.recovery import (
    EndOverdue as EndOverdue,
    EndStray as EndStray,
    ListedInstance as ListedInstance,
    MarkFailed as MarkFailed,
    MarkLost as MarkLost,
    Reap as Reap,
)
from drumbeat.fleet.model.action import (
    Action as Action,
    AskToDrain as AskToDrain,
    ExpandVolume as ExpandVolume,
    ExpireJobs as ExpireJobs,
    Fail as Fail,
    ForgetRefusals as ForgetRefusals,
    Limit as Limit,
    NoteInstance as NoteInstance,
    ReleaseJobs as ReleaseJobs,
    RuleWish as RuleWish,
    ScalingVerdict as ScalingVerdict,
    SetTarget as SetTarget,
    Spawn as Spawn,
    Warn as Warn,
)
from drumbeat.fleet.model.policy import FleetPolicy as FleetPolicy, PolicyName as PolicyName
from drumbeat.fleet.model.schedule import Schedule as Schedule
from drumbeat.fleet.model.view import (
    Arrivals as Arrivals,
    BackoffState as BackoffState,
    BreakerState as BreakerState,
    Finished as Finished,
    FleetState as FleetState,
    FleetView as FleetView,
    HeldJob as HeldJob,
    LastBeat as LastBeat,
    Plan as Plan,
    Provider as Provider,
    QueueView as QueueView,
    ServiceTime as ServiceTime,
    SettledSpending as SettledSpending,
    SpawnResult as SpawnResult,
    Spending as Spending,
    Tariff as Tariff,
    WishedSize as WishedSize,
)

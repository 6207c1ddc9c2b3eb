"""The data classes of benchmarks (loads, plans, snapshots of a run, actions, records), and computations on them. No I/O."""

from drumbeat.bench.model.best import (
    STABLE as STABLE,
    Best as Best,
    best_of as best_of,
    find_max_steps as find_max_steps,
    knee_of as knee_of,
)
from drumbeat.bench.model.drive import (
    DriveOutcome as DriveOutcome,
    DriveProgress as DriveProgress,
    DriveRequest as DriveRequest,
)
from drumbeat.bench.model.explanation import (
    RunExplanation as RunExplanation,
    explanation_document as explanation_document,
    stored_explanation as stored_explanation,
)
from drumbeat.bench.model.figures import Figures as Figures, KindFigures as KindFigures
from drumbeat.bench.model.guarding import (
    GuardAction as GuardAction,
    GuardedWorker as GuardedWorker,
    GuardFailure as GuardFailure,
    GuardrailDecision as GuardrailDecision,
    GuardrailState as GuardrailState,
    GuardState as GuardState,
    GuardView as GuardView,
    WorkerGuard as WorkerGuard,
)
from drumbeat.bench.model.load import (
    LARGEST as LARGEST,
    READS as READS,
    Distribution as Distribution,
    Either as Either,
    ErrorClass as ErrorClass,
    KeyValue as KeyValue,
    Kind as Kind,
    Load as Load,
    NewKey as NewKey,
    NonUniform as NonUniform,
    Now as Now,
    Operation as Operation,
    Pick as Pick,
    PoolValue as PoolValue,
    RandomNumber as RandomNumber,
    RandomText as RandomText,
    RandomUuid as RandomUuid,
    SameAs as SameAs,
    ServerSignals as ServerSignals,
    Statement as Statement,
    Value as Value,
    ValueType as ValueType,
    check_placeholders as check_placeholders,
    check_references as check_references,
    parts as parts,
)
from drumbeat.bench.model.plan import (
    ALL_KINDS as ALL_KINDS,
    Allocation as Allocation,
    FailThreshold as FailThreshold,
    FindMaxPlan as FindMaxPlan,
    GuardrailMode as GuardrailMode,
    Guardrails as Guardrails,
    LoadMode as LoadMode,
    LostPolicy as LostPolicy,
    Objective as Objective,
    OnWorkerLost as OnWorkerLost,
    Prices as Prices,
    QpsPlan as QpsPlan,
    Queueing as Queueing,
    RunPlan as RunPlan,
    Scaling as Scaling,
    ScalingMode as ScalingMode,
)
from drumbeat.bench.model.record import (
    DecisionRecord as DecisionRecord,
    FailureExample as FailureExample,
    Latency as Latency,
    Measured as Measured,
    PhaseRecord as PhaseRecord,
    RunErrors as RunErrors,
    RunRecord as RunRecord,
    Second as Second,
    ServerSecond as ServerSecond,
    WorkerRecord as WorkerRecord,
    WorkerSecond as WorkerSecond,
)
from drumbeat.bench.model.steering import (
    FindMaxState as FindMaxState,
    FindMaxStatus as FindMaxStatus,
    Finish as Finish,
    LoadDecision as LoadDecision,
    ModeView as ModeView,
    QpsState as QpsState,
    StepFigures as StepFigures,
    Window as Window,
)
from drumbeat.bench.model.verdict import (
    ORPHANED as ORPHANED,
    ExitStatus as ExitStatus,
    RunJudgement as RunJudgement,
    RunVerdict as RunVerdict,
    stored_judgement as stored_judgement,
)
from drumbeat.bench.model.view import (
    Action as Action,
    AskWorkersToDrain as AskWorkersToDrain,
    AssignedTarget as AssignedTarget,
    Begin as Begin,
    Conclude as Conclude,
    ControllerState as ControllerState,
    EnterPhase as EnterPhase,
    NoteFact as NoteFact,
    Remember as Remember,
    RunEnding as RunEnding,
    RunView as RunView,
    SaveStep as SaveStep,
    ServerProbe as ServerProbe,
    SetTargets as SetTargets,
    SpawnBenchWorker as SpawnBenchWorker,
    StopLoad as StopLoad,
)
from drumbeat.bench.model.watching import (
    Curves as Curves,
    LiveRun as LiveRun,
    ObjectiveStatus as ObjectiveStatus,
    Point as Point,
    RunSeries as RunSeries,
    ServerSnapshot as ServerSnapshot,
    Stretch as Stretch,
    WorkerSnapshot as WorkerSnapshot,
)
from drumbeat.bench.model.words import (
    and_failed_connects as and_failed_connects,
    ms as ms,
    number as number,
    texts_that_differ as texts_that_differ,
)

"""Explains errors of Slurm's commands, and reasons why jobs are pending, each in one line with advice."""

import re
from typing import Final

from drumbeat.core.errors import SpawnCause

ALL_NODES_DOWN: Final = "NODES_DOWN"  #: Drumbeat's own reason for a pending job, if sinfo shows no node that could run it

#: patterns of what sbatch, squeue and scancel write, in order; the first that matches is reported
_KNOWN: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), cause, advice)
    for pattern, cause, advice in (
        (
            r"munge|authentication|invalid credential|protocol authentication",
            SpawnCause.AUTH,
            "the cluster does not accept this user's credentials; check that munged runs here with the cluster's key",
        ),
        (r"access.*denied|permission denied", SpawnCause.AUTH, "ask the cluster's administrator for access"),
        (r"invalid partition", SpawnCause.BAD_REQUEST, "set partition to one that sinfo shows"),
        (r"invalid account", SpawnCause.BAD_REQUEST, "set account to one of: sacctmgr show associations user=$USER"),
        (r"invalid qos", SpawnCause.BAD_REQUEST, "set qos to one of: sacctmgr show qos"),
        (
            r"submit limit|size and/or time limits|MaxSubmit|MaxJobs|GrpSubmit",
            SpawnCause.NO_CAPACITY,
            "too many or too large jobs for this account or qos; lower slots, time_limit or cpus, or ask for a higher limit",
        ),
        (
            r"time limit|Invalid --time",
            SpawnCause.BAD_REQUEST,
            "set time_limit to less than the limit of the partition (sinfo shows it)",
        ),
        (r"gres|generic resource|gpu", SpawnCause.BAD_REQUEST, "the partition has no such GPUs; check gpus and gpu_type"),
        (r"feature", SpawnCause.BAD_REQUEST, "set constraint to features that nodes have: sinfo --format='%N %f'"),
        (r"node name|nodes? .*not in", SpawnCause.BAD_REQUEST, "set nodelist and exclude to nodes that sinfo shows"),
        (r"memory", SpawnCause.BAD_REQUEST, "no node has that much memory; lower memory"),
        (
            r"node configuration is not available|more processors|cpu count|partition configuration",
            SpawnCause.BAD_REQUEST,
            "no node of the partition has what a job asks for; lower cpus, memory and gpus, or choose another partition",
        ),
        (r"unrecognized option|invalid option|ambiguous", SpawnCause.BAD_REQUEST, "correct options: see sbatch --help"),
        (
            r"temporarily unable to accept|resource temporarily unavailable|job count|slurmctld.* full",
            SpawnCause.NO_CAPACITY,
            "the cluster's queue is full (MaxJobCount); try later",
        ),
        (
            r"unable to contact|connection refused|connect failure|controller not responding|unable to establish|timed out|"
            r"zero bytes|no route|could not establish|unable to resolve|Can't find an address|communication",
            SpawnCause.TRANSIENT,
            "the controller of the cluster does not answer; check that slurmctld runs: scontrol ping",
        ),
        (
            r"slurm\.conf|configuration file|plugin",
            SpawnCause.BAD_REQUEST,
            "Slurm is not configured here; run drumbeat on a login node of the cluster, or set SLURM_CONF",
        ),
    )
)
#: what sbatch writes if it certainly reached no controller, so that nothing was submitted
_NOT_SENT: Final = re.compile(
    r"connect failure|connection refused|unable to resolve|slurm\.conf|Can't find an address", re.IGNORECASE
)
_UNSURE: Final = re.compile(r"timed out|zero bytes|unable to contact|communication|not responding", re.IGNORECASE)
_HARMLESS: Final = re.compile(r"invalid job id|already (completing|completed)|can not be altered now|not active", re.IGNORECASE)
_PREFIX: Final = re.compile(
    r"^(\S*/)?(sbatch|squeue|scancel|sinfo)(-\w+)?: (error: |fatal: )?(Batch job submission failed: )?|^slurm_\w+ error: "
)
_PENDING: Final = (
    (r"PartitionTimeLimit", "its time limit is longer than the partition's; lower time_limit"),
    (r"PartitionNodeLimit|BadConstraints", "no node fulfils its settings; check constraint, nodelist, cpus, memory and gpus"),
    (r"PartitionDown|PartitionInactive", "the partition is down; choose another, or ask the administrator"),
    (ALL_NODES_DOWN, "all nodes of the partition are down or drained; see: sinfo --list-reasons"),
    (r"ReqNodeNotAvail|NodeDown|DOWN", "nodes that it needs are down or drained; see: sinfo --list-reasons"),
    (r"AssocMax|AssocGrp|QOSMax|QOSGrp|MaxCpu|MaxMem|Limit", "a limit of the account or qos is reached"),
    (r"JobHeld|Held", "it is held; release it with: scontrol release"),
    (r"Priority", "jobs with a higher priority run first"),
    (r"Resources", "it waits for free nodes"),
)


def explain(errors: str) -> tuple[str, SpawnCause]:
    """Return one line with a Slurm command's error message and advice, and the error's cause. ``errors``: its stderr."""
    lines = [_PREFIX.sub("", line.strip()) for line in errors.splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if not line.startswith("Try ")), "") or "no reason given"
    for pattern, cause, advice in _KNOWN:
        if pattern.search(errors):
            return f"{said}; {advice}", cause
    return said, SpawnCause.TRANSIENT


def was_not_sent(errors: str) -> bool:
    """Whether sbatch's error means that it did not reach Slurm's controller, so that no job was submitted."""
    return bool(_NOT_SENT.search(errors))


def is_unsure(errors: str) -> bool:
    """Whether sbatch might have submitted the job in spite of its error."""
    return bool(_UNSURE.search(errors)) and not was_not_sent(errors)


def is_harmless(errors: str) -> bool:
    """Whether scancel's errors only say that jobs have already ended, or have not begun and so cannot get a signal."""
    lines = [line for line in errors.splitlines() if line.strip()]
    return all(_HARMLESS.search(line) for line in lines)


def explain_reason(reason: str) -> str:
    """Return Slurm's reason why a job is pending, followed by an explanation if the reason is known."""
    meaning = next((text for pattern, text in _PENDING if re.search(pattern, reason)), None)
    return f"{reason}: {meaning}" if meaning else reason

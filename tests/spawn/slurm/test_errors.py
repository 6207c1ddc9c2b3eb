"""What is wrong with a cluster or the settings is told in one line that says what to do."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.errors import InvalidSettings, SpawnCause
from drumbeat.spawn.slurm import SlurmSettings
from drumbeat.spawn.slurm.errors import explain, explain_reason, is_harmless, is_unsure

FAILED = "sbatch: error: Batch job submission failed: "
BAD, FULL, AUTH, TRANSIENT = SpawnCause.BAD_REQUEST, SpawnCause.NO_CAPACITY, SpawnCause.AUTH, SpawnCause.TRANSIENT


@pytest.mark.parametrize(
    ("errors", "cause", "advice"),
    [
        ("sbatch: error: invalid partition specified: x\n" + FAILED + "Invalid partition name specified", BAD, "sinfo"),
        (FAILED + "Invalid account or account/partition combination specified", BAD, "set account"),
        (FAILED + "Invalid qos specification", BAD, "set qos"),
        (FAILED + "Requested time limit is invalid (missing or exceeds some limit)", BAD, "time_limit"),
        (FAILED + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", FULL, "slots"),
        ("sbatch: error: AssocMaxSubmitJobLimit\n" + FAILED + "Job violates accounting/QOS policy", FULL, "slots"),
        ("sbatch: error: Invalid generic resource (gres) specification", BAD, "gpus"),
        (FAILED + "Invalid feature specification", BAD, "constraint"),
        (FAILED + "Invalid node name specified", BAD, "nodelist"),
        ("sbatch: error: Memory specification can not be satisfied\n" + FAILED + "Requested node", BAD, "lower memory"),
        (FAILED + "Requested node configuration is not available", BAD, "lower cpus"),
        (FAILED + "More processors requested than permitted", BAD, "lower cpus"),
        ("/usr/bin/sbatch: unrecognized option '--bogus'\nTry \"sbatch --help\" for more information", BAD, "options"),
        ("sbatch: Slurm temporarily unable to accept job, sleeping and retrying", FULL, "MaxJobCount"),
        (FAILED + "Unable to contact slurm controller (connect failure)", TRANSIENT, "scontrol ping"),
        (FAILED + "Socket timed out on send/recv operation", TRANSIENT, "scontrol ping"),
        (FAILED + "Access/permission denied", AUTH, "administrator"),
        ("sbatch: error: Munge encode failed: Failed to access socket\n" + FAILED + "Protocol auth", AUTH, "munged"),
        ("sbatch: error: resolve_ctls_from_dns_srv: x\nsbatch: fatal: Could not read slurm.conf", BAD, "SLURM_CONF"),
    ],
)
def test_an_error_of_sbatch_has_a_cause_and_advice(errors: str, cause: SpawnCause, advice: str) -> None:
    line, found = explain(errors + "\n")

    assert (found, advice in line) == (cause, True), line
    assert "\n" not in line
    assert not line.startswith(("sbatch", "error", "/usr"))


def test_an_unknown_error_is_told_as_it_is() -> None:
    assert explain("sbatch: error: The moon is full\n") == ("The moon is full", SpawnCause.TRANSIENT)
    assert explain("") == ("no reason given", SpawnCause.TRANSIENT)


@pytest.mark.parametrize(
    ("errors", "unsure"),
    [
        (FAILED + "Unable to contact slurm controller (connect failure)", False),
        (FAILED + "Connection refused", False),
        (FAILED + "Socket timed out on send/recv operation", True),
        (FAILED + "Zero Bytes were transmitted or received", True),
        (FAILED + "Unexpected message received / communication failure", True),
        (FAILED + "Invalid partition name specified", False),
    ],
)
def test_a_job_may_have_been_submitted_only_if_the_controller_was_reached(errors: str, unsure: bool) -> None:
    assert is_unsure(errors) is unsure


@pytest.mark.parametrize(
    ("errors", "harmless"),
    [
        ("scancel: error: Kill job error on job id 5: Invalid job id specified", True),
        ("scancel: error: Kill job error on job id 5: Job/step already completing or completed", True),
        ("scancel: error: Kill job error on job id 5: Job can not be altered now, try again later", True),
        ("", True),
        ("scancel: error: Kill job error on job id 5: Access/permission denied", False),
        ("scancel: error: Unable to contact slurm controller (connect failure)", False),
    ],
)
def test_to_cancel_a_job_that_has_ended_is_harmless(errors: str, harmless: bool) -> None:
    assert is_harmless(errors) is harmless


@pytest.mark.parametrize(
    ("reason", "meaning"),
    [
        ("Resources", "free nodes"),
        ("Priority", "higher priority"),
        ("QOSMaxCpuPerUserLimit", "account or qos"),
        ("AssocMaxJobsLimit", "account or qos"),
        ("PartitionTimeLimit", "lower time_limit"),
        ("Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved", "down or drained"),
        ("ReqNodeNotAvail", "down or drained"),
        ("NODES_DOWN", "all nodes of the partition are down"),
        ("JobHeldUser", "scontrol release"),
        ("BadConstraints", "no node fulfils"),
    ],
)
def test_why_a_job_is_pending_is_explained(reason: str, meaning: str) -> None:
    assert explain_reason(reason).startswith(f"{reason}: ")
    assert meaning in explain_reason(reason)
    assert explain_reason("Unheard") == "Unheard"


class TestSettings:
    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"cpus": 0}, "cpus of 1 or more"),
            ({"gpus": -1}, "gpus of 0 or more"),
            ({"gpu_type": "a100"}, "gpus of 1 or more with gpu_type"),
            ({"slots": 0}, "slots of 1 or more"),
            ({"price_per_hour": -1.0}, "price_per_hour of 0 or more"),
            ({"folder": Path("here")}, "absolute path"),
            ({"folder": Path("/a\nb")}, "without"),
            ({"time_limit": timedelta(seconds=60)}, "longer than notice"),
            ({"partition": "a b"}, "partition without spaces"),
            ({"options": ["-x"]}, "--name=value"),
            ({"options": ["--reservation x"]}, "--name=value"),
            ({"options": ["--reservation=x\n--wrap=y"]}, "--name=value"),
            ({"options": ["reservation"]}, "--name=value"),
            ({"options": ["--output=/tmp/x"]}, "without --output"),
            ({"options": ["--out=/tmp/x"]}, "without --out,"),
            ({"options": ["--exp=ALL"]}, "without --exp,"),
            ({"options": ["--comment=x"]}, "without --comment"),
            ({"options": ["--array=1-9"]}, "without --array"),
            ({"options": ["--requeue"]}, "without --requeue"),
        ],
    )
    def test_what_cannot_work_is_refused(self, given: dict[str, Any], said: str) -> None:
        with pytest.raises(InvalidSettings, match=said):
            SlurmSettings(**given)

    def test_all_settings_become_options_of_sbatch(self) -> None:
        settings = SlurmSettings(
            partition="gpu",
            account="lab",
            qos="high",
            time_limit=timedelta(days=1, hours=2, minutes=3, seconds=4),
            cpus=4,
            memory="8G",
            gpus=2,
            gpu_type="a100",
            constraint="intel&ssd",
            nodelist="node[1-4]",
            exclude="node2",
            options=["--reservation=night", "--exclusive", "--mem-per-gpu=4G", "--time-min=5"],
        )

        assert settings.sbatch_options == [
            *("--partition=gpu", "--account=lab", "--qos=high", "--time=26:03:04", "--signal=B:USR1@60", "--cpus-per-task=4"),
            *("--mem=8G", "--gres=gpu:a100:2", "--constraint=intel&ssd", "--nodelist=node[1-4]", "--exclude=node2"),
            *("--reservation=night", "--exclusive", "--mem-per-gpu=4G", "--time-min=5"),
        ]
        assert SlurmSettings(notice=timedelta()).sbatch_options == []

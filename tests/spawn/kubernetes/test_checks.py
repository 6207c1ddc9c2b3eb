"""The simulator lets nothing pass that Kubernetes refuses."""

from typing import Any

import pytest

from drumbeat.spawn.kubernetes import KubernetesSettings
from drumbeat.spawn.kubernetes.manifests import job_manifest, secret_manifest
from spawn.kubernetes.checks import check_change, check_rules, check_shape
from spawn.kubernetes.conftest import order

SETTINGS = KubernetesSettings(image="i", memory="1Gi")


def wrong(kind: str, body: Any) -> str:
    return "; ".join([*check_shape(kind, body)] or [*check_rules(kind, body)])


def changed(body: Any, path: str, value: Any) -> Any:
    """A copy with another value at a path such as ``spec.template.spec.containers.0.image``."""
    step, _, rest = path.partition(".")
    if isinstance(body, list):
        return [changed(each, rest, value) if n == int(step) else each for n, each in enumerate(body)]
    return {**body, step: changed(body.get(step, {}), rest, value) if rest else value}


POD = "spec.template.spec"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("spec.backoffLimits", 0, "spec.backoffLimits: Extra inputs are not permitted"),
        ("spec.backoff_limit", 0, "spec.backoff_limit: Extra inputs are not permitted"),
        ("spec.backoffLimit", "0", "spec.backoffLimit: Input should be a valid integer"),
        ("spec.activeDeadlineSeconds", 0, "spec.activeDeadlineSeconds: Invalid value: 0"),
        ("metadata.name", "Upper", "metadata.name: Invalid value: 'Upper'"),
        ("metadata.name", "x" * 64, "must be no more than 63 characters (job-name)"),
        ("metadata.labels", {"a": "b c"}, "metadata.labels: Invalid value: 'b c'"),
        ("metadata.labels", {"a": "x" * 64}, "metadata.labels: Invalid value"),
        ("metadata.labels", {"a/b/c": ""}, "metadata.labels: Invalid value: 'a/b/c'"),
        ("metadata.annotations", {"a": "x" * 300_000}, "Too long"),
        ("metadata.annotations", {"a": 1}, "metadata.annotations.a: Input should be a valid string"),
        (f"{POD}.restartPolicy", "Always", "valid values: OnFailure, Never"),
        (f"{POD}.restart", "Never", "Extra inputs are not permitted"),
        (f"{POD}.containers.0.image", "", "containers.image: Required value"),
        (f"{POD}.containers.0.name", None, "containers.0.name"),
        (f"{POD}.containers.0.resources", {"requests": {"memory": "1GB"}}, "quantities must match"),
        (f"{POD}.containers.0.resources", {"requests": {"nvidia.com/gpu": "1"}}, "Limit must be set"),
        (f"{POD}.containers.0.volumeMounts", [{"name": "x", "mountPath": "/x"}], "volumeMounts: Not found: 'x'"),
        (f"{POD}.tolerations", [{"operator": "Exists", "value": "x"}], "value must be empty"),
        (f"{POD}.tolerations", [{"operator": "Equal", "value": "x"}], "operator must be Exists"),
    ],
)
def test_a_wrong_job_is_refused(path: str, value: Any, said: str) -> None:
    job = job_manifest("s", order(), SETTINGS)
    assert wrong("Job", job) == ""

    assert said in wrong("Job", changed(job, path, value))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("data", {"A B": ""}, "a valid config key must consist of"),
        ("data", {"A": "no base64!"}, "illegal base64 data"),
        ("data", {"A": 1}, "data.A"),
        ("data", {"A": "eHh4" * 400_000}, "Too long: may not be more than 1048576 bytes"),
        ("immutable", "yes", "immutable: Input should be a valid boolean"),
        ("metadata.ownerReferences", [{"kind": "Job", "name": "x", "apiVersion": "v1"}], "uid"),
        ("metadata.ownerReferences", [{"kind": "Job", "name": "x", "apiVersion": "v1", "uid": ""}], "uid: Required value"),
    ],
)
def test_a_wrong_secret_is_refused(path: str, value: Any, said: str) -> None:
    secret = secret_manifest("j", "u", "j-1", order(), SETTINGS, {})
    assert wrong("Secret", secret) == ""

    assert said in wrong("Secret", changed(secret, path, value))


@pytest.mark.parametrize(
    ("kind", "path", "old", "new", "said"),
    [
        ("Job", "spec.template", {"a": 1}, {"a": 2}, "spec.template: Invalid value: field is immutable"),
        ("Job", "spec.activeDeadlineSeconds", 5, 1, ""),
        ("Pod", "spec.activeDeadlineSeconds", None, 1, ""),
        ("Pod", "spec.activeDeadlineSeconds", 1, 1, ""),
        ("Pod", "spec.activeDeadlineSeconds", 1, 2, "must be less than or equal to previous value"),
        ("Pod", "spec.activeDeadlineSeconds", None, 0, "must be less than or equal to previous value"),
        ("Pod", "spec.terminationGracePeriodSeconds", 5, 1, "pod updates may not change fields"),
    ],
)
def test_a_change_is_checked(kind: str, path: str, old: Any, new: Any, said: str) -> None:
    before, after = (changed({"spec": {}}, path, value) for value in (old, new))

    found = "; ".join(check_change(kind, before, after))

    assert said in found if said else found == ""

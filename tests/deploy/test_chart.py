"""The Helm chart: its values, what it renders, and the rights that it grants. Rendered by gotemplate.py, not by Helm."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from kubernetes.aio import client as api
from pydantic import ValidationError
from typer.testing import CliRunner

from deploy.gotemplate import Missing, render
from drumbeat.composition.engine_settings import read_settings
from drumbeat.spawn.kubernetes import PERMISSIONS, KubernetesSettings

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "drumbeat"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
RELEASE = {"Name": "beat", "Namespace": "work"}
MODELS = {
    "ConfigMap": api.V1ConfigMap,
    "ServiceAccount": api.V1ServiceAccount,
    "Role": api.V1Role,
    "RoleBinding": api.V1RoleBinding,
    "Deployment": api.V1Deployment,
    "Service": api.V1Service,
    "NetworkPolicy": api.V1NetworkPolicy,
}
FULL: dict[str, Any] = {
    "image": "registry.example/drumbeat:1",
    "imagePullSecrets": [{"name": "login"}],
    "nodeSelector": {"pool": "small"},
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "dashboard": {**VALUES["dashboard"], "names": ["beat.example"], "conduct": False},
    "controller": {**VALUES["controller"], "fleets": ["render", "index"], "replicas": 2},
    "networkPolicy": {"enabled": True},
}


def rendered(**changed: Any) -> Mapping[tuple[str, str], dict[str, Any]]:
    """All objects of the chart, by kind and name."""
    values = {**VALUES, "image": "i", **changed}
    assert [*jsonschema_rs.validator_for(SCHEMA).iter_errors(values)] == []
    texts = [render(file.read_text(), values, RELEASE) for file in sorted((CHART / "templates").glob("*.yaml"))]
    found = [each for text in texts for each in yaml.safe_load_all(text) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


@pytest.mark.parametrize(
    "changed", [{}, FULL, {"dashboard": {**VALUES["dashboard"], "enabled": False}}], ids=["plain", "full", "none"]
)
def test_every_object_fits_the_schema_of_kubernetes(changed: dict[str, Any]) -> None:
    for (kind, name), each in rendered(**changed).items():
        try:
            MODELS[kind].model_validate(each, by_alias=True, by_name=False)
        except ValidationError as exc:
            pytest.fail(f"{kind} {name}: {exc}")


def test_the_role_grants_exactly_what_the_spawner_needs() -> None:
    role = rendered()["Role", "beat-spawner"]

    granted = {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert granted == PERMISSIONS
    binding = rendered()["RoleBinding", "beat-spawner"]
    assert binding["roleRef"]["name"] == "beat-spawner"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "drumbeat", "namespace": "work"}]


def test_without_rbac_no_rights_are_granted() -> None:
    found = rendered(rbac={"create": False}, serviceAccount={"create": False, "name": "other"})

    assert {kind for kind, _ in found} == {"ConfigMap", "Deployment", "Service"}
    assert found["Deployment", "beat-dashboard"]["spec"]["template"]["spec"]["serviceAccountName"] == "other"


def test_the_dashboard_is_probed_and_reached_by_its_service() -> None:
    found = rendered()
    pod = found["Deployment", "beat-dashboard"]["spec"]["template"]
    [container] = pod["spec"]["containers"]

    probes = [container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")]
    assert probes == ["/health", "/health", "/ready"]
    selector = found["Service", "beat-dashboard"]["spec"]["selector"]
    assert selector.items() <= pod["metadata"]["labels"].items()
    assert container["ports"] == [{"name": "http", "containerPort": 8321}]


def test_the_probes_are_what_the_server_answers() -> None:
    from drumbeat.web.auth import PROBES

    assert {"/health", "/ready"} == PROBES


def test_a_dashboard_that_starts_no_workers_has_no_account_that_could() -> None:
    conducts = rendered()["Deployment", "beat-dashboard"]["spec"]["template"]["spec"]
    shows = rendered(**FULL)["Deployment", "beat-dashboard"]["spec"]["template"]["spec"]

    assert conducts["serviceAccountName"] == "drumbeat"
    assert "serviceAccountName" not in shows
    assert shows["automountServiceAccountToken"] is False


def test_every_long_running_container_has_a_liveness_probe() -> None:
    for (kind, name), each in rendered(**FULL).items():
        if kind == "Deployment":
            assert all("livenessProbe" in one for one in each["spec"]["template"]["spec"]["containers"]), name


def test_the_secret_is_not_written_on_a_command_line() -> None:
    docs = Path(__file__).parents[2] / "docs"

    for file in (CHART / "values.yaml", CHART / "templates" / "NOTES.txt", *docs.glob("*.md")):
        assert "--from-literal" not in file.read_text(), file


def test_there_is_one_controller_for_each_fleet() -> None:
    found = rendered(**FULL)

    for fleet in ("render", "index"):
        spec = found["Deployment", f"beat-fleet-{fleet}"]["spec"]
        assert spec["template"]["spec"]["containers"][0]["command"] == ["drumbeat", "fleet", "run", fleet]
        assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
        assert spec["replicas"] == 2
    assert [kind for kind, _ in rendered()].count("Deployment") == 1


@pytest.mark.parametrize("name", ["beat-dashboard", "beat-fleet-render"])
def test_pods_have_few_rights_and_get_secrets_by_reference(name: str) -> None:
    spec = rendered(**FULL)["Deployment", name]["spec"]["template"]["spec"]
    [container] = spec["containers"]

    assert (spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["runAsUser"]) == (True, 10001)
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    secret = re.compile("DRUMBEAT_(STORE|.*(TOKEN|KEY|PASSWORD))")
    secrets = {each["name"]: each["valueFrom"]["secretKeyRef"] for each in container["env"] if secret.fullmatch(each["name"])}
    assert secrets["DRUMBEAT_STORE"] == {"name": "drumbeat", "key": "DRUMBEAT_STORE"}
    assert secrets["DRUMBEAT_STORE_PASSWORD"]["optional"] is True
    assert "limits" in container["resources"]
    assert spec["nodeSelector"] == {"pool": "small"}
    assert spec["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert spec["imagePullSecrets"] == [{"name": "login"}]


def test_the_commands_exist() -> None:
    from drumbeat.cli.main import app

    for (kind, _), each in rendered(**FULL).items():
        if kind == "Deployment":
            program, *words = each["spec"]["template"]["spec"]["containers"][0]["command"]
            plain = [word for word in words if not word.startswith("-")][: 2 if words[0] == "fleet" else 1]
            shown = CliRunner().invoke(app, [*plain, "--help"], env={"COLUMNS": "300"})
            assert program == "drumbeat"
            assert shown.exit_code == 0
            assert [word for word in words if word.startswith("--") and word not in shown.output] == []


def test_the_usual_engine_can_be_read() -> None:
    content = rendered(image="registry.example/drumbeat:1")["ConfigMap", "beat-engines"]["data"]["engines.toml"]
    table = tomllib.loads(content)["engines"]["k8s"]

    assert table.pop("kind") == "kubernetes"
    settings = read_settings(KubernetesSettings, table, "engine k8s")
    assert (settings.image, settings.namespace) == ("registry.example/drumbeat:1", "work")
    assert settings.run_as_user == VALUES["runAsUser"]


def test_own_engines_replace_the_usual_one() -> None:
    own = '[engines.gpu]\nkind = "kubernetes"\nimage = "i"\n'

    content = rendered(engines=own)["ConfigMap", "beat-engines"]["data"]["engines.toml"]

    assert tomllib.loads(content) == tomllib.loads(own)


def test_a_large_user_id_arrives() -> None:
    found = rendered(**{**FULL, "runAsUser": 1000660000})

    for name in ("beat-dashboard", "beat-fleet-render"):
        assert found["Deployment", name]["spec"]["template"]["spec"]["securityContext"]["runAsUser"] == 1000660000


def test_the_notes_name_the_dashboard() -> None:
    notes = render((CHART / "templates" / "NOTES.txt").read_text(), VALUES, RELEASE)

    assert "kubectl -n work port-forward service/beat-dashboard 8321:80" in notes


def test_an_image_must_be_given() -> None:
    with pytest.raises(Missing, match="set image"):
        rendered(image="")


def test_a_network_policy_closes_all_but_the_dashboard() -> None:
    found = rendered(**FULL)

    assert "ingress" not in found["NetworkPolicy", "beat"]["spec"]
    assert found["NetworkPolicy", "beat-dashboard"]["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": 8321}]}]


@pytest.mark.parametrize(
    "changed",
    [
        {"image": 1},
        {"bogus": 1},
        {"imagePullPolicy": "Sometimes"},
        {"dashboard": {"service": {"type": "ExternalName"}}},
        {"dashboard": {"port": 80}},
        {"controller": {"fleets": ["Upper"]}},
        {"controller": {"fleets": ["a", "a"]}},
        {"runAsUser": 0},
    ],
    ids=str,
)
def test_wrong_values_are_refused(changed: dict[str, Any]) -> None:
    assert not jsonschema_rs.is_valid(SCHEMA, {**VALUES, **changed})


def test_every_value_is_in_the_schema_and_has_a_default() -> None:
    assert set(SCHEMA["properties"]) - {"global"} == set(VALUES)

"""Checks what is sent to Kubernetes: against the schema in the official client, and the rules that the API server adds.

The client's models are made from the OpenAPI file of the release that the client is for, and refuse unknown fields.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kubernetes.aio import client as api
from pydantic import ValidationError

Body = Mapping[str, Any]

MODELS: Mapping[str, Any] = {"Job": api.V1Job, "Secret": api.V1Secret, "DeleteOptions": api.V1DeleteOptions, "Pod": api.V1Pod}
QUERIES: Mapping[str, frozenset[str]] = {
    "create": frozenset({"fieldValidation", "dryRun", "fieldManager"}),
    "get": frozenset(),
    "get log": frozenset({"container", "tailLines", "limitBytes", "previous", "sinceSeconds", "timestamps"}),
    "list": frozenset({"labelSelector", "fieldSelector", "limit", "continue"}),
    "patch": frozenset({"fieldValidation", "dryRun", "fieldManager"}),
    "delete": frozenset({"gracePeriodSeconds", "propagationPolicy"}),
}
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
_MOST_SECRET, _MOST_ANNOTATIONS = 1_048_576, 262_144


def check_shape(kind: str, body: Body) -> Iterator[str]:
    """What the schema forbids: unknown fields, wrong types, missing fields."""
    try:
        MODELS[kind].model_validate(body, by_alias=True, by_name=False)
    except ValidationError as exc:
        for error in exc.errors():
            yield f"{'.'.join(map(str, error['loc']))}: {error['msg']}"


def check_rules(kind: str, body: Body) -> Iterator[str]:
    """What the API server forbids although the schema allows it."""
    meta = body.get("metadata", {})
    name = meta.get("name", "")
    if len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        yield f"metadata.name: Invalid value: {name!r}"
    yield from _check_labels("metadata.labels", meta.get("labels", {}))
    yield from _check_annotations("metadata.annotations", meta.get("annotations", {}))
    for owner in meta.get("ownerReferences", ()):
        yield from (f"metadata.ownerReferences.{field}: Required value" for field in ("uid", "name") if not owner.get(field))
    yield from _RULES[kind](body)


def _check_job(body: Body) -> Iterator[str]:
    spec = body["spec"]
    template, pod = spec["template"], spec["template"]["spec"]
    if len(body["metadata"]["name"]) > 63:
        yield "spec.template.labels: Invalid value: must be no more than 63 characters (job-name)"
    if pod.get("restartPolicy") not in {"Never", "OnFailure"}:
        yield "spec.template.spec.restartPolicy: Required value: valid values: OnFailure, Never"
    for field, least in (("activeDeadlineSeconds", 1), ("ttlSecondsAfterFinished", 0), ("backoffLimit", 0), ("parallelism", 0)):
        if spec.get(field, least) < least:
            yield f"spec.{field}: Invalid value: {spec[field]}"
    yield from _check_labels("spec.template.metadata.labels", template.get("metadata", {}).get("labels", {}))
    yield from _check_annotations("spec.template.metadata", template.get("metadata", {}).get("annotations", {}))
    yield from _check_pod(pod)


def _check_pod(pod: Body) -> Iterator[str]:
    volumes = [each["name"] for each in pod.get("volumes", ())]
    yield from (f"volumes: Duplicate value: {name!r}" for name in volumes if volumes.count(name) > 1)
    if pod.get("terminationGracePeriodSeconds", 0) < 0:
        yield "terminationGracePeriodSeconds: must be greater than or equal to 0"
    for each in pod.get("tolerations", ()):
        if each.get("operator") == "Exists" and each.get("value"):
            yield "tolerations: value must be empty when `operator` is 'Exists'"
        if not each.get("key") and each.get("operator") != "Exists":
            yield "tolerations: operator must be Exists when `key` is empty"
    yield from _check_labels("nodeSelector", pod.get("nodeSelector", {}))
    for container in pod["containers"]:
        yield from _check_container(container, volumes)


def _check_container(container: Body, volumes: list[str]) -> Iterator[str]:
    if not container.get("image", "").strip():
        yield "containers.image: Required value"
    if not all(isinstance(word, str) for word in container.get("command", ())):
        yield "containers.command: expected texts"
    for mount in container.get("volumeMounts", ()):
        if mount["name"] not in volumes:
            yield f"volumeMounts: Not found: {mount['name']!r}"
        if ":" in mount["mountPath"]:
            yield "volumeMounts.mountPath: must not contain ':'"
    for source in container.get("envFrom", ()):
        if not _SUBDOMAIN.fullmatch(source.get("secretRef", {}).get("name", "")):
            yield "envFrom.secretRef.name: Required value"
    resources = container.get("resources", {})
    for sort in ("requests", "limits"):
        for resource, amount in resources.get(sort, {}).items():
            if not _QUANTITY.fullmatch(amount):
                yield f"resources.{sort}.{resource}: quantities must match the regular expression"
            if "/" in resource and sort == "requests" and resources.get("limits", {}).get(resource) != amount:
                yield f"resources.limits: Required value: Limit must be set for non overcommitable resources: {resource}"


def _check_secret(body: Body) -> Iterator[str]:
    size = 0
    for key, value in body.get("data", {}).items():
        if not _SECRET_KEY.fullmatch(key) or len(key) > 253:
            yield f"data[{key}]: Invalid value: a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        try:
            size += len(base64.b64decode(value, validate=True))
        except (binascii.Error, ValueError):
            yield f"data[{key}]: illegal base64 data"
    if size > _MOST_SECRET:
        yield f"data: Too long: may not be more than {_MOST_SECRET} bytes"


def _check_labels(at: str, labels: Mapping[str, str]) -> Iterator[str]:
    for key, value in labels.items():
        yield from _check_key(at, key)
        if len(value) > 63 or not _LABEL.fullmatch(value):
            yield f"{at}: Invalid value: {value!r}: a valid label must be an empty string or consist of 63 characters at most"


def _check_annotations(at: str, annotations: Mapping[str, str]) -> Iterator[str]:
    for key in annotations:
        yield from _check_key(at, key)
    if sum(len(key) + len(value.encode()) for key, value in annotations.items()) > _MOST_ANNOTATIONS:
        yield f"{at}: Too long: may not be more than {_MOST_ANNOTATIONS} bytes"


def _check_key(at: str, key: str) -> Iterator[str]:
    prefix, slash, name = key.rpartition("/")
    wrong_prefix = bool(slash) and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix))
    if wrong_prefix or not name or len(name) > 63 or not _LABEL.fullmatch(name):
        yield f"{at}: Invalid value: {key!r}: name part must consist of alphanumeric characters"


def check_change(kind: str, old: Body, new: Body) -> Iterator[str]:
    """What may not be changed of an object that exists."""
    if kind == "Job":
        for field in ("completions", "selector", "template", "completionMode"):
            if old["spec"].get(field) != new["spec"].get(field):
                yield f"spec.{field}: Invalid value: field is immutable"
        return
    before, after = (each["spec"].get("activeDeadlineSeconds") for each in (old, new))
    if {**old["spec"], "activeDeadlineSeconds": None} != {**new["spec"], "activeDeadlineSeconds": None}:
        yield "spec: Forbidden: pod updates may not change fields other than `spec.activeDeadlineSeconds` and a few others"
    if after is None and before is not None:
        yield "spec.activeDeadlineSeconds: Invalid value: must not update from a positive integer to nil value"
    if after is not None and (after < 1 or (before is not None and after > before)):
        yield "spec.activeDeadlineSeconds: Invalid value: must be less than or equal to previous value"


_RULES: Mapping[str, Any] = {"Job": _check_job, "Secret": _check_secret}

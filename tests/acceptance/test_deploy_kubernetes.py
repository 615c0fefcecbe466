"""`deploy/kubernetes`: no cluster runs in these tests; the manifests are those that the schemas of Kubernetes allow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.support.deployments import MANIFESTS, Containerfile, drain_seconds

VERSIONS = ("1.33", "1.37")
"""The first that has all that is used, and the newest whose schemas are known."""


def manifests() -> list[tuple[Path, dict[str, Any]]]:
    return [
        (path, document)
        for path in sorted(MANIFESTS.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
    ]


def find(kind: str) -> dict[str, Any]:
    [found] = [document for _, document in manifests() if document["kind"] == kind]
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("path", "document"), manifests(), ids=lambda one: one["kind"] if isinstance(one, dict) else one.stem
)
def test_each_manifest_is_one_that_kubernetes_accepts(path: Path, document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_a_pod_has_longer_to_end_than_its_worker_drains() -> None:
    pod = find("Deployment")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > drain_seconds(Containerfile.read().entrypoint)


def test_all_that_speaks_of_the_workers_means_the_same_ones() -> None:
    deployment = find("Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert find("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    assert find("NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == labels
    target = find("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", deployment["metadata"]["name"])
    assert "replicas" not in deployment["spec"], "applying the file again would undo what the autoscaler did"


def test_a_pod_is_ready_by_the_probe_of_the_image() -> None:
    [container] = find("Deployment")["spec"]["template"]["spec"]["containers"]
    [health] = Containerfile.read().all("HEALTHCHECK")
    assert container["readinessProbe"]["exec"]["command"] == json.loads(health.partition("CMD ")[2])
    assert "livenessProbe" not in container, "a worker that waits for the database must not be restarted for it"


def test_no_secret_stands_in_a_manifest() -> None:
    [container] = find("Deployment")["spec"]["template"]["spec"]["containers"]
    assert {source["secretRef"]["name"] for source in container["envFrom"]} == {"bullpen-store", "bullpen-keys"}
    assert [one["name"] for one in container["env"]] == ["HOME"]

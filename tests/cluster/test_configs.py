"""The cluster files are what Ray and KubeRay take, and keep the guarantees that they make."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from raysim.config.nodes import parse_nodes

ROOT = Path(__file__).parents[2]
LAUNCHED = ["cluster.yaml", "deploy/aws.yaml"]


def load(name: str) -> dict[str, Any]:
    tree: dict[str, Any] = yaml.safe_load((ROOT / name).read_text())
    return tree


@pytest.mark.parametrize("name", LAUNCHED)
def test_ray_accepts_it(name):
    prepared = prepare_config(load(name))
    validate_config(prepared)
    for commands in ("head_setup_commands", "worker_setup_commands"):
        assert any("--constraint ~/raysim/constraints.txt" in line for line in prepared[commands]), commands
    assert prepared["file_mounts"]["~/raysim"] == "."


@pytest.mark.parametrize("name", LAUNCHED)
def test_each_start_command_asks_for_the_token(name):
    config = load(name)
    assert "~/.ray/auth_token" in config["file_mounts"]
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        for line in config[key]:
            assert line.startswith("export RAY_AUTH_MODE=token"), line


@pytest.mark.parametrize("name", [*LAUNCHED, "deploy/kuberay.yaml"])
def test_nothing_listens_for_strangers_and_nothing_secret_is_written_down(name):
    text = (ROOT / name).read_text()
    assert "0.0.0.0" not in text
    assert re.search(r"dashboard-host[=:] ?127\.0\.0\.1", text)
    assert not re.search(r"^\s*(value|auth_token): ['\"]?[0-9a-f]{16,}", text, re.MULTILINE)


def test_local_workers_are_counted():
    config = load("cluster.yaml")
    workers = config["provider"]["worker_ips"]
    assert config["min_workers"] == config["max_workers"] == len(workers)
    assert config["provider"]["head_ip"] not in workers


def test_gpu_workers_on_aws_begin_at_none():
    config = load("deploy/aws.yaml")
    kinds = config["available_node_types"]
    worker = kinds["gpu_worker"]
    assert worker["min_workers"] == 0
    assert worker["resources"]["GPU"] == 1
    assert kinds["head"]["resources"] == {"CPU": 0}
    _agrees_with_its_comment("deploy/aws.yaml", worker["max_workers"], worker["resources"])


def test_kuberay_cluster_is_whole():
    cluster = load("deploy/kuberay.yaml")
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    spec = cluster["spec"]
    pins = (ROOT / "constraints.txt").read_text()
    assert f"ray=={spec['rayVersion']}\n" in pins
    assert spec["enableInTreeAutoscaling"]
    head, (worker,) = spec["headGroupSpec"], spec["workerGroupSpecs"]
    assert worker["minReplicas"] == worker["replicas"] == 0
    assert worker["maxReplicas"] > 0
    images = set()
    for group in (head, worker):
        (container,) = group["template"]["spec"]["containers"]
        environment = {entry["name"]: entry for entry in container["env"]}
        assert environment["RAY_AUTH_MODE"]["value"] == "token"
        assert environment["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"] == {
            "name": "raysim-token",
            "key": "auth_token",
        }
        images.add(container["image"])
        assert {mount["name"] for mount in container["volumeMounts"]} == {
            volume["name"] for volume in group["template"]["spec"]["volumes"]
        }
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    assert len(images) == 1
    assert spec["autoscalerOptions"]["env"][0] == {"name": "RAY_AUTH_MODE", "value": "token"}
    limits = worker["template"]["spec"]["containers"][0]["resources"]["limits"]
    has = {"CPU": float(limits["cpu"]), "GPU": int(limits["nvidia.com/gpu"])}
    _agrees_with_its_comment("deploy/kuberay.yaml", worker["maxReplicas"], has)


def test_pods_run_as_nobody_and_only_their_own_cluster_reaches_them():
    cluster, policy = load("deploy/kuberay.yaml"), load("deploy/networkpolicy.yaml")
    for group in (cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert f"--uid {pod['securityContext']['runAsUser']} " in (ROOT / "deploy" / "Dockerfile").read_text()
        (container,) = pod["containers"]
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert re.fullmatch(r"[^:@]+@sha256:\w+", container["image"]), "an image is named by its digest"
    assert policy["kind"] == "NetworkPolicy"
    selector = {"matchLabels": {"ray.io/cluster": cluster["metadata"]["name"]}}
    assert policy["spec"]["podSelector"] == selector
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert policy["spec"]["ingress"] == [{"from": [{"podSelector": selector}]}]


def test_secrets_and_results_stay_out_of_the_image():
    ignored = set((ROOT / ".dockerignore").read_text().splitlines())
    assert {".git", ".venv", "runs", "mlflow.db", "data", ".env"} <= ignored


def test_the_image_has_the_pins():
    assert "--constraint constraints.txt" in (ROOT / "deploy" / "Dockerfile").read_text()


def _agrees_with_its_comment(name: str, count: int, has: dict[str, Any]) -> None:
    """What the comment tells users to put into ``resources.autoscale`` is what the file would start."""
    (text,) = re.findall(r"resources\.autoscale=(\S+)", (ROOT / name).read_text())
    nodes = parse_nodes(text)
    assert len(nodes) == count
    assert {(node.cpus, node.gpus) for node in nodes} == {(has["CPU"], has["GPU"])}

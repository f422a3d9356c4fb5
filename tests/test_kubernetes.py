"""The manifests of infra/kubernetes/ fit Kubernetes' own schemas, keep their pods confined and name what exists."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from tests.paths import ROOT

FOLDER = ROOT / "infra" / "kubernetes"
VERSIONS = ("1.31", "1.34", "1.37")
"""Versions of Kubernetes, the oldest one the first in which a Job's failure policy is stable."""

OBJECTS = [
    document
    for path in sorted(FOLDER.glob("*/*.yaml"))
    if path.name not in ("kustomization.yaml", "indexmill.yaml")
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]
WRITABLE = {"/tmp", "/cache"}  # noqa: S108 - of a container


def name_of(value: dict[str, Any]) -> str:
    return f"{value['kind']}-{value['metadata']['name']}"


def pod_of(found: dict[str, Any]) -> dict[str, Any] | None:
    """The template of an object's pods."""
    spec = found.get("spec", {})
    template: dict[str, Any] | None = spec.get("jobTemplate", {}).get("spec", spec).get("template")
    return template


PODS = [found for found in OBJECTS if pod_of(found)]


def container_of(found: dict[str, Any]) -> dict[str, Any]:
    """The one container of an object's pods."""
    template = pod_of(found)
    assert template is not None
    (container,) = template["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def by_name(name: str) -> dict[str, Any]:
    (found,) = [one for one in PODS if one["metadata"]["name"] == name]
    return found


def dask_environment() -> dict[str, str]:
    lines = (FOLDER / "base" / "dask.env").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_fits_the_schemas_of_kubernetes(version: str) -> None:
    broken = {}
    for found in OBJECTS:
        try:
            kubernetes_validate.validate(found, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            broken[name_of(found)] = str(error)
    assert broken == {}


def test_the_schemas_notice_a_field_that_does_not_exist() -> None:
    broken = {**by_name("indexmill-worker"), "spec": {**by_name("indexmill-worker")["spec"], "replica": 1}}
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("found", PODS, ids=name_of)
def test_every_pod_is_confined(found: dict[str, Any]) -> None:
    template, container = pod_of(found), container_of(found)
    assert template is not None
    pod = template["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        **dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), 10001),
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & pod.keys()
    assert "USER 10001:10001" in (ROOT / "infra" / "Dockerfile").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("found", PODS, ids=name_of)
def test_a_pod_writes_to_its_own_volumes_alone(found: dict[str, Any]) -> None:
    template, container = pod_of(found), container_of(found)
    assert template is not None
    volumes = {volume.pop("name"): volume for volume in [dict(one) for one in template["spec"]["volumes"]]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
    for mount in container["volumeMounts"]:
        (kind,) = volumes[mount["name"]]
        assert (kind == "emptyDir") == (mount["mountPath"] in WRITABLE)
        if kind == "emptyDir":
            assert "sizeLimit" in volumes[mount["name"]][kind]
        else:
            assert mount["readOnly"] is True
    secret, other = ("certificates", "tokens") if "certificates" in volumes else ("tokens", "certificates")
    assert volumes[secret] == {"secret": {"secretName": f"indexmill-{secret}", "defaultMode": 0o440}}
    assert other not in volumes


@pytest.mark.parametrize("found", PODS, ids=name_of)
def test_every_pod_says_what_it_needs_and_whether_it_lives(found: dict[str, Any]) -> None:
    container = container_of(found)
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    assert "memory" in container["resources"]["limits"]
    if found["kind"] == "CronJob":  # its command ends by itself
        return
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for probe in ("startupProbe", "livenessProbe"):
        (check,) = [value for name, value in container[probe].items() if name in ("httpGet", "tcpSocket")]
        assert check["port"] in ports
    served = found["metadata"]["name"] == "indexmill-serve"
    assert found["spec"]["strategy"]["type"] == ("RollingUpdate" if served else "Recreate")
    template = pod_of(found)
    assert template is not None
    assert found["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]


def test_a_night_is_one_job_that_is_tried_again_where_that_helps() -> None:
    night = by_name("indexmill-night")["spec"]
    assert (night["concurrencyPolicy"], night["startingDeadlineSeconds"] > 0) == ("Forbid", True)
    job = night["jobTemplate"]["spec"]
    assert job["activeDeadlineSeconds"] < 24 * 3600
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert job["template"]["spec"]["terminationGracePeriodSeconds"] >= 60
    pauses = sum(10 * 2**attempt for attempt in range(job["backoffLimit"]))
    from schemas.config.run_settings import RunSettings

    assert pauses > 2 * RunSettings().lease_seconds
    disrupted, hopeless = job["podFailurePolicy"]["rules"]
    assert (disrupted["action"], disrupted["onPodConditions"]) == (
        "Ignore",
        [{"type": "DisruptionTarget", "status": "True"}],
    )
    assert (hopeless["action"], hopeless["onExitCodes"]["containerName"]) == ("FailJob", "build")
    from indexmill import errors

    codes = {errors.BadInput("").exit_code, errors.GateRefused("").exit_code, errors.BudgetReached("").exit_code}
    assert set(hopeless["onExitCodes"]["values"]) == codes


def options_of(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.slow
@pytest.mark.parametrize("found", PODS, ids=name_of)
def test_commands_and_options_exist(found: dict[str, Any]) -> None:
    args = container_of(found)["args"]
    assert (Path(sys.executable).parent / args[0]).is_file()
    used = {word.partition("=")[0] for word in args if word.startswith("--")}
    assert used
    if args[0] == "prefect":
        command = [Path(sys.executable).with_name("prefect"), *args[1:3], "--help"]
        known = set(
            re.findall(r"--[a-z-]+", subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        )
        cut = {option for option in used if any(option.startswith(one) for one in known)}  # help cuts long names
        assert cut == used
        return
    if args[0] == "indexmill":
        from indexmill.command import cli

        root: click.Group = cli
    else:
        from distributed.cli import dask_scheduler, dask_worker

        assert options_of({"scheduler": dask_scheduler.main, "worker": dask_worker.main}[args[1]]) >= used
        return
    chosen = root.get_command(click.Context(root), args[1])
    assert chosen is not None
    assert options_of(chosen) >= used


def environment_names() -> Iterator[str]:
    for found in PODS:
        yield from (variable["name"] for variable in container_of(found).get("env", []))


def test_variables_are_those_that_are_read() -> None:
    import dask.config
    import distributed  # noqa: F401 - registers its settings
    from dask.config import collect_env
    from prefect import settings

    for name in {*environment_names(), *dask_environment()}:
        if name.startswith("DASK_DISTRIBUTED"):
            (key,) = _leaves(collect_env({name: "1"}))
            assert dask.config.get(key, "absent") != "absent", name
        elif name.startswith("PREFECT_"):
            assert hasattr(settings, name), name
        elif name.startswith("INDEXMILL_"):
            read = [*(ROOT / "indexmill").rglob("*.py"), *(ROOT / "flows").rglob("*.py"), ROOT / "infra/prefect.yaml"]
            assert any(name in path.read_text(encoding="utf-8") for path in read), name
        else:
            assert name in ("MEMORY_LIMIT", "DASK_LOGGING"), name


def _leaves(value: Any, path: str = "") -> Iterator[str]:
    if not isinstance(value, dict):
        yield path
        return
    for name, inner in value.items():
        yield from _leaves(inner, f"{path}.{name}" if path else name)


def test_the_cluster_speaks_mutual_tls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import dask.config
    from distributed.security import Security

    for name, value in dask_environment().items():
        monkeypatch.setenv(name, value)
    with dask.config.set(dask.config.merge(dask.config.config, dask.config.collect_env())):
        security = Security()
        assert security.require_encryption
        for role in ("client", "scheduler", "worker"):
            chosen = security.get_tls_config_for_role(role)
            assert {chosen["ca_file"], chosen["cert"]} == {"/certificates/certificate.pem"}
            assert chosen["key"] == "/certificates/key.pem"
        assert dask.config.get("distributed.scheduler.http.routes") == ["distributed.http.health"]
        assert dask.config.get("distributed.worker.http.routes") == []
        assert dask.config.get("distributed.worker.memory.pause") is False
    for name in ("indexmill-scheduler", "indexmill-worker"):
        assert "tls" in " ".join(container_of(by_name(name))["args"])
    configuration = yaml.safe_load((FOLDER / "base" / "indexmill.yaml").read_text(encoding="utf-8"))
    assert configuration["run"]["dask"] in container_of(by_name("indexmill-worker"))["args"]


def test_the_configuration_is_valid() -> None:
    from schemas.config import load_configuration

    found = load_configuration(FOLDER / "base" / "indexmill.yaml")
    assert found.run.dask.address == "tls://indexmill-scheduler:8786"
    assert str(found.store).startswith("s3://")


def test_workers_and_builds_alone_reach_the_scheduler() -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in OBJECTS if one["kind"] == "NetworkPolicy"}
    assert all(policy["policyTypes"] == ["Ingress"] for policy in policies.values())
    assert "ingress" not in policies["indexmill"]
    assert policies["indexmill"]["podSelector"] == {"matchLabels": {"app.kubernetes.io/part-of": "indexmill"}}
    assert policies.pop("indexmill-serve")["ingress"] == [{"ports": [{"protocol": "TCP", "port": 8080}]}]
    allowed = {}
    for name, policy in policies.items():
        for rule in policy.get("ingress", []):
            ((selector,),) = [[one["podSelector"] for one in rule["from"]]]
            chosen = {each["key"].rpartition("/")[2]: each["values"] for each in selector["matchExpressions"]}
            assert chosen["part-of"] == ["indexmill"]
            allowed[name] = (chosen["component"], [port["port"] for port in rule["ports"]])
    assert allowed == {
        "indexmill-scheduler": (["worker", "build"], [8786]),
        "indexmill-worker": (["scheduler", "worker"], [8788, 8789]),
    }
    components = {pod_of(found)["metadata"]["labels"]["app.kubernetes.io/component"] for found in PODS}  # type: ignore[index]
    assert components == {"scheduler", "worker", "build", "serve"}


def test_no_manifest_holds_a_credential() -> None:
    assert not [found for found in OBJECTS if found["kind"] == "Secret"]
    for found in PODS:
        for variable in container_of(found).get("env", []):
            secret = re.search(r"KEY|SECRET|TOKEN|PASSWORD|AUTH", variable["name"])
            assert not secret or "secretKeyRef" in variable["valueFrom"], variable


def test_servers_end_after_their_last_answer_and_are_reached_at_their_port() -> None:
    from indexmill.serve.limits import ServerLimits

    found, template = by_name("indexmill-serve"), pod_of(by_name("indexmill-serve"))
    assert template is not None
    options = dict(word.split("=", 1) for word in container_of(found)["args"][2:])
    assert template["spec"]["terminationGracePeriodSeconds"] > int(options["--linger"]) + ServerLimits().answer_seconds
    assert container_of(found)["readinessProbe"]["httpGet"]["path"] == "/ready"
    labels = template["metadata"]["labels"]
    (service,) = [one for one in OBJECTS if one["kind"] == "Service" and one["metadata"]["name"] == "indexmill-serve"]
    (budget,) = [one for one in OBJECTS if one["kind"] == "PodDisruptionBudget"]
    assert service["spec"]["selector"] == budget["spec"]["selector"]["matchLabels"] == labels
    assert [port["targetPort"] for port in service["spec"]["ports"]] == ["http"]
    assert yaml.safe_load((FOLDER / "serve" / "indexmill.yaml").read_text(encoding="utf-8"))["store"].startswith(
        "s3://"
    )


@pytest.mark.slow
@pytest.mark.parametrize("where", [".", "night", "prefect"])
def test_kustomize_puts_them_together(where: str) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("not installed: kubectl")
    command = ["kubectl", "kustomize", str(FOLDER / where)]
    built = list(yaml.safe_load_all(subprocess.run(command, capture_output=True, check=True).stdout))
    for found in built:
        kubernetes_validate.validate(found, VERSIONS[-1], strict=True)
    names = {f"{found['kind']}/{found['metadata']['name']}" for found in built}
    assert {"Deployment/indexmill-scheduler", "Deployment/indexmill-worker", "Service/indexmill-scheduler"} <= names
    assert ("CronJob/indexmill-night" in names) != ("Deployment/indexmill-runner" in names)
    assert all("namespace" not in found["metadata"] for found in built)
    maps = {found["metadata"]["name"] for found in built if found["kind"] == "ConfigMap"}
    used = set(re.findall(r"'configMapRef': {'name': '([^']+)'", str(built)))
    used |= set(re.findall(r"'configMap': {'name': '([^']+)'", str(built)))
    assert used == maps
    assert all(re.fullmatch(r"[a-z-]+-[a-z0-9]{10}", name) for name in maps)

"""kubernetes/, checked without a cluster: against Kubernetes' schema, and against this checkout.

kubernetes-1.34.json has the strict schemas of what is used, without descriptions, from Kubernetes' own description of
its API (github.com/kubernetes/kubernetes, Apache License 2.0).
"""

import copy
import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator, ValidationError
from typer.main import get_command

from demo import jars
from demo.lock import LOCK, pins
from kafka_migration.cli.app import app
from kafka_migration.plans.load import load_plan

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "kubernetes"
SCHEMAS = json.loads(Path(__file__).with_name("kubernetes-1.34.json").read_text(encoding="utf-8"))["$defs"]
OF_KUSTOMIZE = yaml.safe_load((FOLDER / "kustomization.yaml").read_text(encoding="utf-8"))
Object = dict[str, Any]


def objects() -> list[Object]:
    texts = [(FOLDER / name).read_text(encoding="utf-8") for name in OF_KUSTOMIZE["resources"]]
    # A deep copy through JSON: anchors share objects, and tests below change one place.
    return [json.loads(json.dumps(it)) for text in texts for it in yaml.safe_load_all(text)]


def name_of(it: Object) -> str:
    return f"{it['kind']} {it['metadata']['name']}"


def check(it: Object) -> None:
    [schema] = [name for name in SCHEMAS if name.startswith("io.k8s.api.") and name.endswith(f".{it['kind']}")]
    Draft202012Validator({"$ref": f"#/$defs/{schema}", "$defs": SCHEMAS}).validate(it)


def pods() -> dict[str, Object]:
    """What each workload makes, by its name."""
    return {it["metadata"]["name"]: it["spec"]["template"] for it in objects() if "template" in it["spec"]}


def containers() -> Iterator[tuple[str, Object]]:
    for name, pod in pods().items():
        for it in pod["spec"].get("initContainers", []) + pod["spec"]["containers"]:
            yield name, it


def settings() -> dict[str, str]:
    lines = (FOLDER / "airflow.env").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_every_file_is_part_of_it_and_every_object_has_its_own_name():
    named = {*OF_KUSTOMIZE["resources"], "kustomization.yaml", "airflow.env"}
    assert named == {path.name for path in FOLDER.iterdir() if path.suffix in (".yaml", ".env")}
    names = [name_of(it) for it in objects()]
    assert len(names) == len(set(names)) == 8


@pytest.mark.parametrize("it", objects(), ids=name_of)
def test_object_fits_the_schema(it: Object):
    check(it)


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("StatefulSet airflow", ("spec", "template", "spec", "enableServiceLink"), False),
        ("StatefulSet airflow", ("spec", "template", "spec", "containers", 0, "image"), 3.3),
        ("StatefulSet airflow", ("spec", "template", "spec", "volumes", 1, "secret", "defaultMode"), "0440"),
        ("Deployment spark-worker", ("spec", "replicas"), "2"),
        ("Service metrics", ("spec", "ports", 0, "port"), "metrics"),
        ("NetworkPolicy among-themselves", ("spec", "policyType"), ["Ingress"]),
    ],
)
def test_object_is_wrong_in_one_place_refused(name: str, path: tuple[str | int, ...], value: object):
    [it] = [copy.deepcopy(it) for it in objects() if name_of(it) == name]
    at: Any = it
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(ValidationError):
        check(it)


def test_pods_are_what_the_standard_for_restricted_pods_asks_for_and_know_no_credentials_of_the_cluster():
    for name, pod in pods().items():
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        # With links, Spark's master would take SPARK_MASTER_PORT=tcp://... for its port.
        assert spec["enableServiceLinks"] is False, name
        security = spec["securityContext"]
        assert (security["runAsNonRoot"], security["seccompProfile"]) == (True, {"type": "RuntimeDefault"}), name
    for name, container in containers():
        security = container["securityContext"]
        assert security == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}, name


def test_all_run_one_image_which_has_the_version_of_the_wheel():
    [image] = OF_KUSTOMIZE["images"]
    assert {it["image"] for _, it in containers()} == {image["name"]}
    stated = f"{image['newName']}:{image['newTag']}"
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{image["newTag"]}"' in project
    assert f"--tag {stated} " in (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    assert stated in (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")


def test_mounts_configs_secrets_and_ports_are_there():
    made = {it["name"] for it in OF_KUSTOMIZE["configMapGenerator"]}
    text = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    described = set(re.findall(r"create secret generic (\S+)", text))
    assert described == set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    [claims] = [it["spec"]["volumeClaimTemplates"] for it in objects() if "volumeClaimTemplates" in it["spec"]]
    used_configs, used_secrets = set[str](), set[str]()
    for name, pod in pods().items():
        volumes = {it["name"] for it in pod["spec"].get("volumes", [])}
        volumes |= {it["metadata"]["name"] for it in claims if name == "airflow"}
        used_configs |= {it["configMap"]["name"] for it in pod["spec"].get("volumes", []) if "configMap" in it}
        used_secrets |= {it["secret"]["secretName"] for it in pod["spec"].get("volumes", []) if "secret" in it}
        for _, container in (found for found in containers() if found[0] == name):
            assert {it["name"] for it in container.get("volumeMounts", [])} <= volumes, name
            for source in container.get("envFrom", []):
                used_configs |= {source["configMapRef"]["name"]} if "configMapRef" in source else set()
                used_secrets |= {source["secretRef"]["name"]} if "secretRef" in source else set()
            ports = {it["name"] for it in container.get("ports", [])}
            probes = [container[kind] for kind in container if kind.endswith("Probe")]
            asked = {probe.get("httpGet", probe.get("tcpSocket", {})).get("port", 0) for probe in probes}
            assert {port for port in asked if isinstance(port, str)} <= ports, name
    assert (used_configs, used_secrets) == (made, described)


def test_services_lead_to_pods():
    labels = {name: pod["metadata"]["labels"] for name, pod in pods().items()}
    ports = {name: {it["name"] for it in container.get("ports", [])} for name, container in containers()}
    for it in objects():
        if it["kind"] == "Service":
            name = it["metadata"]["name"]
            assert it["spec"]["selector"] == labels[name]
            assert {port["targetPort"] for port in it["spec"]["ports"]} <= ports[name]
        elif "template" in it["spec"]:
            assert it["spec"]["selector"]["matchLabels"] == labels[it["metadata"]["name"]]


def test_approval_key_is_given_to_who_runs_tasks_alone():
    given = {
        container["name"]
        for _, container in containers()
        if {"secretRef": {"name": "approvals"}} in container.get("envFrom", [])
    }
    assert given == {"scheduler"}
    assert settings()["AIRFLOW__CORE__EXECUTOR"] == "LocalExecutor"


def test_commands_are_those_of_airflow_spark_and_the_library():
    from airflow.cli.cli_parser import get_parser

    parser, ours = get_parser(), get_command(app)
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    for name, container in containers():
        line = [*container["command"], *container.get("args", [])]
        match line[0]:
            case "airflow":
                parser.parse_args(line[1:])
            case "kafka-migration":
                command = ours.commands[line[1]]  # type: ignore[attr-defined]
                assert line[2:] == ["/opt/migration/migration_plans/shop.yaml", "--listen", "0.0.0.0:9404"]
                assert "--listen" in [option for it in command.params for option in it.opts]
            case _:
                assert line[:2] == compose[name]["command"][:2]
        for probe in (container[kind] for kind in container if kind.endswith("Probe")):
            if "exec" in probe:
                parser.parse_args(probe["exec"]["command"][1:])


def test_settings_are_those_of_airflow_and_of_the_library():
    from airflow.configuration import conf

    document = (ROOT / "docs" / "airflow.md").read_text(encoding="utf-8")
    secrets = re.findall(r"--from-literal (\w+)=", (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8"))
    for variable in [*settings(), *secrets]:
        if variable.startswith("AIRFLOW__"):
            _, section, key = variable.lower().split("__")
            assert conf.configuration_description[section]["options"].get(key), variable
        elif variable.startswith("KAFKA_MIGRATION_"):
            assert f"`{variable}`" in document
    spark = json.loads(settings()["AIRFLOW_CONN_SPARK_DEFAULT"])
    [master] = [it for it in objects() if name_of(it) == "Service spark-master"]
    assert spark["host"] == f"spark://{master['metadata']['name']}"
    assert [spark["port"]] == [port["port"] for port in master["spec"]["ports"]]
    worker = next(it for name, it in containers() if name == "spark-worker")
    assert worker["args"][-1] == f"{spark['host']}:{spark['port']}"


def test_mounted_folders_are_those_that_the_settings_name():
    mounts = {it["name"]: it["mountPath"] for _, container in containers() for it in container.get("volumeMounts", [])}
    told = settings()
    assert mounts["plans"] == told["KAFKA_MIGRATION_PLANS"]
    assert mounts["spark"] == told["SPARK_CONF_DIR"]
    assert Path(told["KAFKA_MIGRATION_REPORTS_DIR"]).is_relative_to(mounts["home"])
    assert f"AIRFLOW_HOME={mounts['home']}" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_plans_are_valid_and_a_change_of_one_restarts_nothing():
    [plans] = [it["files"] for it in OF_KUSTOMIZE["configMapGenerator"] if it["name"] == "plans"]
    assert plans == [str(path.relative_to(FOLDER)) for path in (FOLDER / "plans").iterdir()]
    for path in plans:
        load_plan(FOLDER / path)
    assert OF_KUSTOMIZE["generatorOptions"]["disableNameSuffixHash"] is True


def test_image_is_the_other_one_with_the_wheel_and_what_its_database_needs():
    dockerfile = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    assert f"\nFROM {compose['airflow']['image']}\n" in dockerfile
    admitted = re.findall(r"^!(.+)$", (FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    copied = [
        source for line in re.findall(r"^COPY (?!--)(.+) \S+$", dockerfile, re.MULTILINE) for source in line.split()
    ]
    assert sorted(copied) == sorted(admitted)
    assert [name for name in copied if not (ROOT / name).exists()] == []
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    included = re.findall(r'^"?([\w/.]+)"? = "kafka_migration[\w/.]*"$', project, re.MULTILINE)
    assert len(included) == 3
    for name in included:
        assert any(Path(name).is_relative_to(source) for source in copied), f"the wheel is built with {name}"


def test_image_names_the_jars_that_are_locked_where_the_other_image_has_them():
    dockerfile = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    [listed] = re.findall(r"KAFKA_MIGRATION_SPARK_JARS=(\S+)", dockerfile)
    there = Path("/opt/migration") / jars.CACHE_DIRECTORY.relative_to(ROOT) / "spark"
    assert listed.split(",") == [str(there / jar.file_name) for jar in jars.locked("spark")]


def test_further_packages_have_checksums_and_contradict_no_pin_of_the_lock():
    path = FOLDER / "requirements.txt"
    further = pins(path)
    assert {name for name, _ in further} == {"asyncpg", "psycopg2-binary"}
    assert not {name for name, _ in further} & {name for name, _ in pins(LOCK)}
    blocks = re.split(r"\n(?=\w)", path.read_text(encoding="utf-8"))
    assert all("--hash=sha256:" in block for block in blocks if "==" in block)


def test_document_names_commands_that_are_there():
    text = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    lines = [shlex.split(line) for line in text.replace("\\\n", " ").splitlines() if line.startswith("    ")]
    assert {line[0] for line in lines} == {"docker", "kubectl"}
    inside = [line[line.index("--") + 1 :] for line in lines if "--" in line]
    ours = get_command(app)
    assert [command[1] in ours.commands for command in inside if command[0] == "kafka-migration"] == [True]  # type: ignore[attr-defined]
    assert [os.path.dirname(command[1]) for command in inside if command[0] == "cat"] == ["/opt/airflow"]

"""kubernetes/, checked without a cluster: against Kubernetes' schema, and against this checkout.

kubernetes-1.34.json has the strict schemas of what is used, without descriptions, from Kubernetes' own description of
its API (github.com/kubernetes/kubernetes, Apache License 2.0).
"""

import json
import re
import shlex
import signal
import subprocess
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
from tests.demo.test_compose import changed

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
    [sound] = [each for each in objects() if name_of(each) == name]
    with pytest.raises(ValidationError):
        check(changed(sound, path, value))


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
    sets = {it["metadata"]["name"]: it for it in objects() if it["kind"] == "StatefulSet"}
    used_configs, used_secrets = set[str](), set[str]()
    for name, pod in pods().items():
        volumes = {it["name"] for it in pod["spec"].get("volumes", [])}
        volumes |= (
            {it["metadata"]["name"] for it in sets[name]["spec"]["volumeClaimTemplates"]} if name in sets else set()
        )
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


def test_approval_key_is_given_to_who_runs_tasks_alone_and_nobody_else_writes_what_tasks_run():
    for it in objects():
        assert "approvals" not in json.dumps(it) or name_of(it) == "StatefulSet airflow"
    airflow = pods()["airflow"]["spec"]
    assert "approvals" not in json.dumps(airflow["volumes"])
    assert [it["name"] for it in airflow["containers"] if "approvals" in json.dumps(it)] == ["scheduler"]
    assert "approvals" not in json.dumps(airflow["initContainers"])
    assert settings()["AIRFLOW__CORE__EXECUTOR"] == "LocalExecutor"
    # Airflow's home is each container's own: of the volume they share logs and reports, which nothing runs from.
    shared = {
        mount["mountPath"]
        for it in airflow["containers"]
        if it["name"] != "scheduler"
        for mount in it["volumeMounts"]
        if mount["name"] == "home" and not mount.get("readOnly")
    }
    assert shared == {f"/opt/airflow/{name}" for name in ("logs", "reports", "passwords")}
    assert settings()["AIRFLOW__CORE__PLUGINS_FOLDER"] == "/opt/migration/plugins"


def test_mirrors_outlive_the_scheduler_and_are_asked_to_end_with_the_pod():
    (scheduler,) = (it for it in pods()["airflow"]["spec"]["containers"] if it["name"] == "scheduler")
    assert [kind for kind in scheduler if kind.endswith("Probe")] == []
    (script,) = scheduler["args"]
    # As in the container, with short programs in place of Airflow, and of a process that it has left running.
    for there, played in (
        ("kill -TERM -1", 'kill -TERM "$mirror"'),
        ('[ "$(ps --no-headers -e | wc -l)" -gt 4 ]', 'kill -0 "$mirror"'),
        ("airflow scheduler &", "echo started; sleep 0.1 &"),
        ("sleep 5 &", "sleep 0.1 &"),
    ):
        assert script.count(there) == 1
        script = script.replace(there, played)
    mirror = "sh -c 'trap \"echo asked; exit\" TERM; while true; do sleep 0.1; done' &\nmirror=$!\n"
    process = subprocess.Popen(["bash", "-c", mirror + script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["started\n"] * 2
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out.splitlines()[-1]) == (0, "asked")


def test_commands_are_those_of_airflow_spark_and_the_library():
    from airflow.cli.cli_parser import get_parser

    parser, ours = get_parser(), get_command(app)
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    for name, container in containers():
        line = [*container["command"], *container.get("args", [])]
        match line[0]:
            case "airflow":
                parser.parse_args(line[1:])
            case "bash":
                (started,) = re.findall(r"^\s*airflow (\w+) &$", line[-1], re.MULTILINE)
                parser.parse_args([started])
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
    secrets = re.findall(
        r"^    ([A-Z_]+)=", (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(secrets) == 6
    for variable in [*settings(), *secrets]:
        if variable.startswith("AIRFLOW__"):
            _, section, key = variable.lower().split("__")
            assert conf.configuration_description[section]["options"].get(key), variable
        elif variable.startswith("KAFKA_MIGRATION_"):
            assert f"`{variable}`" in document
    spark = json.loads(settings()["AIRFLOW_CONN_SPARK_DEFAULT"])
    [master] = [it for it in objects() if name_of(it) == "StatefulSet spark-master"]
    # The name of its first pod, which stays.
    address = f"{master['metadata']['name']}-0.{master['spec']['serviceName']}"
    assert spark["host"] == f"spark://{address}"
    (container,) = master["spec"]["template"]["spec"]["containers"]
    assert container["args"][:4] == ["--host", address, "--port", str(spark["port"])]
    worker = next(it for name, it in containers() if name == "spark-worker")
    assert worker["args"][-1] == f"{spark['host']}:{spark['port']}"


def test_mounted_folders_are_those_that_the_settings_name():
    mounts = {it["mountPath"] for _, container in containers() for it in container.get("volumeMounts", [])}
    told, dockerfile = settings(), (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert {told["KAFKA_MIGRATION_PLANS"], told["SPARK_CONF_DIR"], told["KAFKA_MIGRATION_REPORTS_DIR"]} <= mounts
    assert str(Path(told["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]).parent) in mounts
    assert "AIRFLOW_HOME=/opt/airflow\n" in dockerfile
    assert f"WORKDIR {Path(told['AIRFLOW__CORE__DAGS_FOLDER']).parent}\n" in dockerfile


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
    copied = [source for line in re.findall(r"^COPY (.+) \S+$", dockerfile, re.MULTILINE) for source in line.split()]
    assert sorted(copied) == sorted(admitted)
    # What the document has somebody build first.
    (wheels,) = re.findall(r"pip wheel .* --wheel-dir (\S+) \.", dockerfile)
    assert [name for name in copied if not (ROOT / name).exists()] in ([], [wheels])


def test_every_file_is_in_the_repository():
    listed = subprocess.run(["git", "ls-files", "kubernetes"], cwd=ROOT, capture_output=True, text=True, check=True)
    there = {str(path.relative_to(ROOT)) for path in FOLDER.rglob("*") if path.is_file() and "dist" not in path.parts}
    assert there == set(listed.stdout.split())


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
    shown = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    lines = [shlex.split(line) for line in shown if not re.match("[A-Z_]+=", line)]
    assert {line[0] for line in lines} == {".venv/bin/pip", "docker", "kubectl"}
    inside = [line[line.index("--") + 1 :] for line in lines if "--" in line]
    ours = get_command(app)
    assert [command[1] in ours.commands for command in inside if command[0] == "kafka-migration"] == [True]  # type: ignore[attr-defined]
    assert [command[1] for command in inside if command[0] == "cat"] == [
        settings()["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]
    ]

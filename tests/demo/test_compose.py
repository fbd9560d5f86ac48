"""docker-compose.yml, checked without Docker: against the schema of Compose, a strict model of what it uses, and this
checkout.

compose-spec.json is the specification's own, from github.com/compose-spec/compose-spec (Apache License 2.0) at 170098b.
"""

import copy
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from jsonschema import Draft7Validator
from jsonschema import ValidationError as SchemaError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from demo import jars
from kafka_migration.kafka.lookup import find_connection

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yml"
PROJECT = {"dags", "plugins", "spark_jobs", "migration_plans"}
Duration = Annotated[str, Field(pattern=r"^\d+s$")]
Port = Annotated[str, Field(pattern=r"^127\.0\.0\.1:\d+:\d+$")]
Volume = Annotated[str, Field(pattern=r"^(\./)?[a-z_]+:/[a-z_/]+(:ro)?$")]
MONITORING = ROOT / "monitoring"


class Strict(BaseModel):
    """Unknown keys are mistakes: Compose itself refuses them."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Healthcheck(Strict):
    """How Compose finds out that a service serves."""

    test: list[str] = Field(min_length=2)
    interval: Duration
    timeout: Duration
    retries: int = Field(gt=0)

    @model_validator(mode="after")
    def is_a_command(self) -> "Healthcheck":
        if self.test[0] != "CMD":
            raise ValueError("a health check is an argument list")
        return self


class Dependency(Strict):
    """Waiting for another service."""

    condition: Literal["service_healthy"]


def _is_plain_text(environment: dict[str, str]) -> dict[str, str]:
    for name in environment:
        if not re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
            raise ValueError(f"{name} is not the name of an environment variable")
    return environment


class Service(Strict):
    """One container."""

    image: str
    healthcheck: Healthcheck
    restart: Literal["unless-stopped"]
    build: Literal["."] | None = None
    init: bool = False
    command: list[str] | None = None
    ports: list[Port] = []
    volumes: list[Volume] = []
    environment: Annotated[dict[str, str], AfterValidator(_is_plain_text)] = {}
    depends_on: dict[str, Dependency] = {}


class Compose(Strict):
    """The file without its extensions."""

    name: str
    services: dict[str, Service]
    volumes: dict[str, None]

    @model_validator(mode="after")
    def is_consistent(self) -> "Compose":
        published = [port.rsplit(":", 1)[0] for service in self.services.values() for port in service.ports]
        if len(set(published)) != len(published):
            raise ValueError("two services publish one port")
        for name, service in self.services.items():
            if not service.depends_on.keys() <= self.services.keys() - {name}:
                raise ValueError(f"{name} depends on services that are not there")
            for volume in service.volumes:
                host = volume.split(":")[0]
                if not host.startswith("./") and host not in self.volumes:
                    raise ValueError(f"{name} mounts the volume {host}, which is not declared")
        return self


def changed(document: dict[str, Any], path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    """The file with another value in one place."""
    wrong = copy.deepcopy(document)
    at: Any = wrong
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return wrong


def load(document: Any) -> Compose:
    # Extensions only hold what is merged elsewhere.
    return Compose.model_validate({key: value for key, value in document.items() if not key.startswith("x-")})


@pytest.fixture
def document() -> dict[str, Any]:
    # A deep copy through JSON: anchors share objects, and the tests below change one place.
    found: dict[str, Any] = json.loads(json.dumps(yaml.safe_load(FILE.read_text(encoding="utf-8"))))
    return found


@pytest.fixture
def compose(document: dict[str, Any]) -> Compose:
    return load(document)


def test_file_holds_two_kafkas_airflow_spark_and_monitoring(compose: Compose) -> None:
    kafka, spark = {"source", "target"}, {"spark-master", "spark-worker"}
    assert compose.services.keys() == kafka | spark | {"airflow", "metrics", "prometheus", "grafana"}


def test_metrics_are_served_where_the_file_publishes_them_with_the_connections_of_airflow(compose: Compose) -> None:
    service = compose.services["metrics"]
    *python, command, plan, option, place = service.command or []
    assert (python, command, option) == (["python", "-m", "kafka_migration"], "metrics", "--listen")
    assert (ROOT / plan).is_file()
    assert service.ports == [f"127.0.0.1:9404:{place.rpartition(':')[2]}"]
    assert service.environment.items() <= compose.services["airflow"].environment.items()


def mounted(service: Service) -> Path:
    """Where the container finds the folder monitoring."""
    [place] = [volume.split(":")[1] for volume in service.volumes if volume.startswith("./monitoring:")]
    return Path(place)


def test_prometheus_asks_the_service_that_serves_the_metrics_and_loads_the_rules(compose: Compose) -> None:
    service = compose.services["prometheus"]
    config, _ = service.command or []
    option, _, place = config.partition("=")
    read = yaml.safe_load((MONITORING / Path(place).relative_to(mounted(service))).read_text())
    assert option == "--config.file"
    [job] = read["scrape_configs"]
    [target] = job["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    assert [one.rpartition(":")[2] for one in compose.services[host].ports] == [port]
    assert [(MONITORING / name).is_file() for name in read["rule_files"]] == [True]


def test_grafana_finds_prometheus_and_the_dashboard_and_lets_nobody_log_in(compose: Compose) -> None:
    service, prometheus = compose.services["grafana"], compose.services["prometheus"]
    provisioning = MONITORING / Path(service.environment["GF_PATHS_PROVISIONING"]).relative_to(mounted(service))
    [source] = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    [port] = [one.rpartition(":")[2] for one in prometheus.ports]
    assert (source["type"], source["url"], source["isDefault"]) == ("prometheus", f"http://prometheus:{port}", True)
    [provider] = yaml.safe_load((provisioning / "dashboards" / "migrations.yaml").read_text())["providers"]
    assert Path(provider["options"]["path"]) == mounted(service)
    assert [path.name for path in MONITORING.glob("*.json")] == ["dashboard.json"]
    home = Path(service.environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (MONITORING / home.relative_to(mounted(service))).is_file()
    assert service.environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert service.environment["GF_AUTH_BASIC_ENABLED"] == "false"


@pytest.fixture(scope="module")
def schema() -> Draft7Validator:
    read = json.loads(Path(__file__).with_name("compose-spec.json").read_text(encoding="utf-8"))
    Draft7Validator.check_schema(read)
    return Draft7Validator(read)


def test_file_fits_the_schema_of_compose(document: dict[str, Any], schema: Draft7Validator) -> None:
    schema.validate(document)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("services", "airflow", "enviroment"), {}),
        (("services", "airflow", "depends_on", "source", "condition"), "service_helthy"),
        (("services", "source", "healthcheck", "interval"), 5),
        (("services", "source", "image"), 4.3),
        (("volumes", "airflow"), "local"),
    ],
)
def test_file_breaks_the_schema_in_one_place_refused(
    document: dict[str, Any], schema: Draft7Validator, path: tuple[str, ...], value: object
) -> None:
    with pytest.raises(SchemaError):
        schema.validate(changed(document, path, value))


def test_kafkas_run_the_locked_version_as_two_clusters(compose: Compose) -> None:
    locked = {jar.artifact: jar.version for jar in jars.locked("kafka")}
    source, target = compose.services["source"], compose.services["target"]
    assert source.image == target.image == f"apache/kafka:{locked['kafka_2.13']}"
    ids = {source.environment["CLUSTER_ID"], target.environment["CLUSTER_ID"]}
    assert len(ids) == 2
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{22}", cluster_id) for cluster_id in ids)


@pytest.mark.parametrize(("name", "port"), [("source", 19092), ("target", 29092)])
def test_kafka_is_reached_from_host_and_containers_at_what_it_advertises(
    compose: Compose, name: str, port: int
) -> None:
    service = compose.services[name]
    assert service.ports == [f"127.0.0.1:{port}:{port}"]
    assert service.environment["KAFKA_ADVERTISED_LISTENERS"] == f"INTERNAL://{name}:9092,HOST://localhost:{port}"
    listeners = service.environment["KAFKA_LISTENERS"].split(",")
    mapped = service.environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")
    assert {listener.split(":")[0] for listener in listeners} == {entry.split(":")[0] for entry in mapped}
    assert f"HOST://:{port}" in listeners
    variable = f"AIRFLOW_CONN_KAFKA_{name.upper()}"
    connection = find_connection(f"kafka_{name}", {variable: compose.services["airflow"].environment[variable]})
    assert connection.properties["bootstrap.servers"] == f"{name}:9092"


def test_spark_connection_names_the_master_that_is_started(compose: Compose) -> None:
    stated = json.loads(compose.services["airflow"].environment["AIRFLOW_CONN_SPARK_DEFAULT"])
    assert stated == {"conn_type": "spark", "host": "spark://spark-master", "port": 7077}
    master, worker = compose.services["spark-master"].command, compose.services["spark-worker"].command
    assert master is not None
    assert worker is not None
    assert master[master.index("--host") + 1] == "spark-master"
    assert master[master.index("--port") + 1] == "7077"
    assert worker[-1] == "spark://spark-master:7077"


def test_all_of_this_project_run_on_one_image_and_the_same_mounts(compose: Compose) -> None:
    ours = [compose.services[name] for name in ("airflow", "spark-master", "spark-worker", "metrics")]
    assert {(service.image, service.build) for service in ours} == {("kafka-migration:local", ".")}
    for service in ours:
        mounted = {v.split(":")[0]: v.split(":")[1:] for v in service.volumes if v.startswith("./")}
        assert mounted == {f"./{name}": [f"/opt/migration/{name}", "ro"] for name in PROJECT}
    environment = compose.services["airflow"].environment
    assert environment["AIRFLOW__CORE__DAGS_FOLDER"] == "/opt/migration/dags"
    assert environment["AIRFLOW__CORE__PLUGINS_FOLDER"] == "/opt/migration/plugins"


def test_airflow_waits_until_what_it_needs_is_healthy(compose: Compose) -> None:
    assert compose.services["airflow"].depends_on.keys() == {"source", "target", "spark-worker"}
    assert compose.services["spark-worker"].depends_on.keys() == {"spark-master"}


def test_image_is_built_from_the_pinned_requirements_and_what_it_copies_exists() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    copied = [source for line in re.findall(r"^COPY (.+) \S+$", dockerfile, re.MULTILINE) for source in line.split()]
    assert {"requirements.txt", "requirements.lock", "jars.lock"} <= set(copied)
    admitted = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert sorted(copied) == sorted(admitted)
    assert [name for name in copied if not (ROOT / name).is_file()] == []
    assert "pip install --no-cache-dir -r requirements.txt" in dockerfile


def test_image_holds_no_tools_of_development() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    _, _, development = (ROOT / "requirements.txt").read_text().partition("# --- Development")
    tools = set(re.findall(r"^([a-z][\w-]*)==", development, re.MULTILINE))
    removed = re.search(r"pip uninstall --yes (.+?)&&", dockerfile, re.DOTALL)
    assert removed is not None
    # Airflow itself reads tokens with it.
    assert set(removed[1].replace("\\", "").split()) == tools - {"pyjwt"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("services", "airflow", "enviroment"), {}),
        (("services", "airflow", "depends_on", "zookeeper"), {"condition": "service_healthy"}),
        (("services", "airflow", "depends_on", "source", "condition"), "service_helthy"),
        (("services", "airflow", "ports"), ["127.0.0.1:19092:8080"]),
        (("services", "airflow", "ports"), ["8080:8080"]),
        (("services", "airflow", "volumes"), ["database:/opt/airflow"]),
        (("services", "airflow", "environment", "AIRFLOW__CORE__LOAD_EXAMPLES"), False),
        (("services", "source", "healthcheck", "test"), "kafka-broker-api-versions.sh"),
        (("services", "source", "healthcheck", "interval"), 5),
        (("services", "source", "image"), None),
        (("volumes", "airflow"), "local"),
    ],
)
def test_file_is_wrong_in_one_place_refused(document: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    with pytest.raises(ValidationError):
        load(changed(document, path, value))

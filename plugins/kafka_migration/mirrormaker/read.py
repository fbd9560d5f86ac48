"""MirrorMaker's configurations, read as MirrorMaker reads them: which flows there are, and what each option is about.

Three kinds: the properties of a dedicated MirrorMaker 2, the JSON of its connectors in a Connect cluster, and the two
properties files and the command line of MirrorMaker 1. Every option that was written is accounted for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import javaproperties

from kafka_migration.domain.direction import SOURCE, TARGET, Side
from kafka_migration.domain.errors import BadInput
from kafka_migration.mirrormaker import options
from kafka_migration.mirrormaker.connections import is_connection_property
from kafka_migration.mirrormaker.options import Counterpart, ignored, no_counterpart, not_needed
from kafka_migration.plans.problems import is_secret_name

SIDES: tuple[Side, ...] = (SOURCE, TARGET)
_ROLES = ("consumer", "producer", "admin")
#: Of several clients of one cluster, whose option counts where no option is of all of them.
_FIRST: Mapping[Side, tuple[str, ...]] = {
    SOURCE: ("", "consumer", "admin", "producer"),
    TARGET: ("", "producer", "admin", "consumer"),
}
_SECRET = re.compile(r"passphrase|keystore\.key|private|config\.providers\..*\.param")
_UNKNOWN = ignored("MirrorMaker knows no option of this name")
_CONNECTORS = "org.apache.kafka.connect.mirror.Mirror"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One option as it was written: in which ``file`` (or on the command line), under which ``name``."""

    file: str
    name: str
    value: str = field(repr=False)

    @property
    def shown(self) -> str:
        """The value, unless it may be a secret."""
        return "<hidden>" if _SECRET.search(self.name) or is_secret_name(self.name) else self.value


@dataclass(frozen=True, slots=True)
class Client:
    """An option of a cluster's clients: of which ``role`` ("" for all of them), and how far its place is from the
    flow's own: 0 of the flow, 1 of the cluster, 2 of all clusters."""

    name: str
    role: str
    distance: int
    setting: Setting


@dataclass(slots=True)
class Flow:
    """What is copied from one cluster to another. ``options`` by MirrorMaker's own names; ``is_first`` of MirrorMaker
    1, which knows no groups; ``has_groups`` where checkpoints were asked for."""

    source: str
    target: str
    options: dict[str, Setting] = field(default_factory=dict)
    clients: dict[Side, list[Client]] = field(default_factory=lambda: {SOURCE: [], TARGET: []})
    has_groups: bool = True
    is_first: bool = False

    @property
    def title(self) -> str:
        return f"{self.source}->{self.target}"

    def value(self, name: str, default: str = "") -> str:
        return self.options[name].value.strip() if name in self.options else default

    def is_on(self, name: str, *, default: bool) -> bool:
        """As Java reads it: everything but "true" is false."""
        return self.value(name, str(default)).lower() == "true"

    def chosen(self, side: Side) -> dict[str, Setting]:
        """For each option of a cluster's clients, the one that counts for all of them."""
        order = _FIRST[side]
        found: dict[str, Setting] = {}
        for one in sorted(self.clients[side], key=lambda client: (order.index(client.role), client.distance)):
            found.setdefault(one.name, one.setting)
        return found

    def start(self) -> Setting | None:
        """Where consumers of the source begin, if it was written."""
        of_consumers = [one for one in self.clients[SOURCE] if one.name == "auto.offset.reset" and one.role]
        of_consumers.sort(key=lambda client: client.distance)
        return next((one.setting for one in of_consumers if one.role == "consumer"), None)


@dataclass(slots=True)
class Configuration:
    """What was read: the flows, and what is known of each option already, by the option."""

    flows: list[Flow] = field(default_factory=list)
    known: dict[Setting, Counterpart] = field(default_factory=dict)


def read(paths: Iterable[Path]) -> Configuration:
    """Properties of dedicated MirrorMakers, and JSON of connectors. Raises BadInput for what is neither."""
    found = Configuration()
    for path in paths:
        text = _text(path)
        if text.lstrip()[:1] in ("{", "["):
            for name, config in _connectors(path, text):
                _read_connector(found, _settings(f"{path.name}, {name}" if name else path.name, config))
        else:
            _read_dedicated(found, _settings(path.name, _properties(path, text)), path)
    return found


def read_first(consumer: Path, producer: Path, command: Mapping[str, str]) -> Configuration:
    """A MirrorMaker 1: its two properties files and the other options of its ``command`` line, without dashes."""
    found = Configuration()
    flow = Flow(source="source", target="target", has_groups=False, is_first=True)
    files: tuple[tuple[Side, str, Path], ...] = ((SOURCE, "consumer", consumer), (TARGET, "producer", producer))
    for side, role, path in files:
        for setting in _settings(path.name, _properties(path, _text(path))).values():
            _note_client(found, flow, side, Client(setting.name, role, 0, setting))
    for name, value in command.items():
        setting = Setting(file="command line", name=name, value=value)
        found.known[setting] = options.FIRST[name]
        flow.options[{"include": "topics", "whitelist": "topics", "num.streams": "tasks.max"}.get(name, name)] = setting
    found.flows.append(flow)
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadInput(f"cannot be read ({reason})", file=str(path), remedy="name a configuration file") from None


def _properties(path: Path, text: str) -> dict[str, str]:
    try:
        return dict(javaproperties.loads(text))
    except javaproperties.InvalidUEscapeError as error:
        raise BadInput(f"no Java properties: {error}", file=str(path), remedy="correct the escape") from None


def _settings(file: str, properties: Mapping[str, Any]) -> dict[str, Setting]:
    return {name: Setting(file=file, name=name, value=_as_text(value)) for name, value in properties.items()}


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _connectors(path: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and config of each connector: as it is sent to Connect, and as Connect lists it."""
    remedy = 'give a connector as Connect takes it: {"name": ..., "config": {...}}, or the config alone'
    try:
        document = json.loads(text)
    except ValueError as error:
        raise BadInput(f"neither Java properties nor JSON: {error}", file=str(path), remedy=remedy) from None
    for one in document if isinstance(document, list) else [document]:
        if isinstance(one, dict) and "connector.class" in one:
            yield str(one.get("name", "")), one
        elif isinstance(one, dict) and isinstance(one.get("config"), dict):
            yield str(one.get("name", "")), one["config"]
        elif isinstance(one, dict) and one and all(isinstance(v, dict) and "info" in v for v in one.values()):
            for name, value in one.items():
                yield name, value["info"]["config"]
        else:
            raise BadInput("no connector", file=str(path), remedy=remedy)


def _read_dedicated(found: Configuration, settings: Mapping[str, Setting], path: Path) -> None:
    aliases = listed_in(settings["clusters"].value) if "clusters" in settings else []
    if len(aliases) < 2:
        raise BadInput(
            "names no two clusters, so nothing is mirrored",
            file=str(path),
            field="clusters",
            value=settings["clusters"].value if "clusters" in settings else None,
            remedy="give MirrorMaker 2's properties (clusters = A, B); MirrorMaker 1's two files go to"
            " --consumer.config and --producer.config",
        )
    pairs = [(source, target) for source in aliases for target in aliases if source != target]
    flows = {
        f"{source}->{target}.": Flow(source=source, target=target)
        for source, target in pairs
        if f"{source}->{target}.enabled" in settings
        and settings[f"{source}->{target}.enabled"].value.strip().lower() == "true"
    }
    if not flows:
        raise BadInput(
            "no flow is enabled, so nothing is mirrored",
            file=str(path),
            field=f"{aliases[0]}->{aliases[1]}.enabled",
            remedy="set it to true for each flow that is to be a migration",
        )
    for flow in flows.values():
        for alias in (flow.source, flow.target):
            if f"{alias}.bootstrap.servers" not in settings and "bootstrap.servers" not in settings:
                raise BadInput("missing", file=str(path), field=f"{alias}.bootstrap.servers", remedy="add it")
    prefixes = [f"{source}->{target}." for source, target in pairs]
    for setting in settings.values():
        if prefix := _longest(prefixes, setting.name):
            if prefix in flows:
                _read_of_flow(found, flows[prefix], setting, setting.name.removeprefix(prefix))
            else:
                found.known[setting] = ignored("this flow is not enabled")
        elif prefix := _longest([f"{alias}." for alias in aliases], setting.name):
            _read_of_cluster(found, flows.values(), prefix.removesuffix("."), setting)
        else:
            _read_of_all(found, flows.values(), setting)
    found.flows += flows.values()


def _longest(prefixes: Iterable[str], name: str) -> str:
    """The prefix that ``name`` has, or "": an alias may begin as another one does."""
    return max((prefix for prefix in prefixes if name.startswith(prefix)), key=len, default="")


def _read_of_flow(found: Configuration, flow: Flow, setting: Setting, name: str) -> None:
    """An option of one flow, or of one of its connectors."""
    sides, role, client = _client_of_flow(name)
    if sides:
        for side in sides:
            _note_client(found, flow, side, Client(client, role, 0, setting))
        return
    counterpart = options.of_flow(name, setting.value)
    if counterpart is not None:
        flow.options[name] = setting
    found.known[setting] = counterpart or _of_worker(name) or _UNKNOWN


def _read_of_cluster(found: Configuration, flows: Iterable[Flow], alias: str, setting: Setting) -> None:
    rest = setting.name.removeprefix(f"{alias}.")
    role, _, name = rest.partition(".")
    if role not in _ROLES:
        role, name = "", rest
    sides = [(flow, side) for flow in flows for side in SIDES if (flow.source, flow.target)[SIDES.index(side)] == alias]
    if not sides:
        found.known[setting] = ignored("no enabled flow has this cluster")
    elif not role and not is_client_option(name):
        misplaced = ignored("MirrorMaker 2 reads it of a flow (A->B.), or of all of them, and not of a cluster")
        is_of_flow = options.of_flow(name, setting.value) is not None
        found.known[setting] = misplaced if is_of_flow else _of_worker(name) or _UNKNOWN
    for flow, side in sides:
        if setting not in found.known or is_client_option(name):
            _note_client(found, flow, side, Client(name, role, 1, setting))


def _read_of_all(found: Configuration, flows: Iterable[Flow], setting: Setting) -> None:
    name = setting.name
    counterpart = options.of_flow(name, setting.value)
    if counterpart is not None:
        found.known[setting] = counterpart
        for flow in flows:
            # What the flow says itself goes first, wherever in the file it stands.
            flow.options.setdefault(name, setting)
    elif is_connection_property(name) or name.startswith(("ssl.", "sasl.", "security.")):
        for flow in flows:
            for side in SIDES:
                _note_client(found, flow, side, Client(name, "", 2, setting))
    elif name.partition(".")[0] in _ROLES:
        found.known[setting] = ignored(f"MirrorMaker 2 reads it behind a cluster or a flow alone, such as A.{name}")
    else:
        found.known[setting] = _of_worker(name) or _UNKNOWN


def _read_connector(found: Configuration, settings: Mapping[str, Setting]) -> None:
    kind = settings["connector.class"].value if "connector.class" in settings else ""
    if not kind.startswith(_CONNECTORS):
        file = next(iter(settings.values())).file if settings else ""
        raise BadInput(
            "is none of MirrorMaker 2's connectors",
            file=file,
            field="connector.class",
            value=kind,
            remedy="give MirrorSourceConnector's config, and MirrorCheckpointConnector's if groups are to move, too",
        )
    aliases = [
        settings[f"{side}.cluster.alias"].value.strip() if f"{side}.cluster.alias" in settings else side
        for side in SIDES
    ]
    flow = next((one for one in found.flows if [one.source, one.target] == aliases), None)
    if flow is None:
        flow = Flow(source=aliases[0], target=aliases[1], has_groups=False)
        found.flows.append(flow)
    flow.has_groups = flow.has_groups or kind.startswith(f"{_CONNECTORS}Checkpoint")
    for setting in settings.values():
        # Topics that checkpoints are written for are not those that are copied.
        if setting.name in ("topics", "topics.exclude") and not kind.startswith(f"{_CONNECTORS}Source"):
            found.known[setting] = not_needed("the source connector's topics count")
        elif setting.name == "tasks.max" and not kind.startswith(f"{_CONNECTORS}Source"):
            found.known[setting] = not_needed("the source connector's tasks count")
        else:
            _read_of_flow(found, flow, setting, setting.name)


def _client_of_flow(name: str) -> tuple[tuple[Side, ...], str, str]:
    """Of which clusters' clients, of which role ("" for all), and which option, within a flow's or connector's own
    options; no cluster for what is no client's."""
    for side in SIDES:
        if name.startswith(f"{side}.cluster.") and name != f"{side}.cluster.alias":
            return (side,), "", name.removeprefix(f"{side}.cluster.")
        for role in _ROLES:
            if name.startswith(f"{side}.{role}."):
                return (side,), role, name.removeprefix(f"{side}.{role}.")
    for role, sides in (("consumer", (SOURCE,)), ("producer", (TARGET,)), ("admin", SIDES)):
        if name.startswith(f"{role}.") and name not in options.FLOW:
            return sides, role, name.removeprefix(f"{role}.").removeprefix("override.")
    return (), "", ""


def _note_client(found: Configuration, flow: Flow, side: Side, client: Client) -> None:
    """What connections take is accounted for when they are made."""
    if is_client_option(client.name):
        flow.clients[side].append(client)
    if not is_connection_property(client.name):
        # A consumer of the target is not where the copy begins.
        elsewhere = client.name == "auto.offset.reset" and (side, client.role) != (SOURCE, "consumer")
        unread = ignored("the mirror reads the source alone") if elsewhere else None
        found.known[client.setting] = unread or options.CLIENT.get(client.name) or _UNKNOWN


def is_client_option(name: str) -> bool:
    """Whether Kafka's clients know an option of this name."""
    return name in options.CLIENT or is_connection_property(name)


def _of_worker(name: str) -> Counterpart | None:
    if name.startswith("config.providers"):
        return options.WORKER["config.providers"]
    if re.match(r"(task|worker|offset\.storage|config\.storage|status\.storage|listeners?)\.", name):
        return options.WORKER.get(name, options.WORKER["plugin.path"])
    return options.WORKER.get(name) or options.CLIENT.get(name)


def listed_in(text: str) -> list[str]:
    """A list as Kafka's configurations hold it."""
    return [part for part in re.split(r"\s*,\s*", text.strip()) if part]


def overridden(flow: Flow, side: Side, client: Client) -> Counterpart | None:
    """What to say of a client's option that another one goes before, or None if it is the one that counts."""
    counts = flow.chosen(side)[client.name]
    if counts is client.setting:
        return None
    if counts.value == client.setting.value:
        return not_needed(f"the same as {counts.name}")
    return no_counterpart(f"a connection is the same for all clients of a cluster, and {counts.name} counts")

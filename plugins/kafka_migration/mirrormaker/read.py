"""MirrorMaker's configurations, read as MirrorMaker reads them: which flows there are, and what each option is about.

Three kinds: the properties of a dedicated MirrorMaker 2, the JSON of its connectors in a Connect cluster, and the two
properties files and the command line of MirrorMaker 1. Every option that was written is accounted for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import javaproperties

from kafka_migration.domain.direction import SOURCE, TARGET, Side
from kafka_migration.domain.errors import BadInput
from kafka_migration.mirrormaker import options
from kafka_migration.mirrormaker.connections import PROVIDED, is_connection_property
from kafka_migration.mirrormaker.options import Counterpart, Outcome, ignored, no_counterpart, not_needed

SIDES: tuple[Side, ...] = (SOURCE, TARGET)
_ROLES = ("consumer", "producer", "admin")
#: Of several clients of one cluster, whose option counts where no option is of all of them.
_FIRST: Mapping[Side, tuple[str, ...]] = {
    SOURCE: ("", "consumer", "admin", "producer"),
    TARGET: ("", "producer", "admin", "consumer"),
}
_CONNECTOR = re.compile(r"(?:org\.apache\.kafka\.connect\.mirror\.)?Mirror(Source|Checkpoint|Heartbeat)(?:Connector)?")
_UNKNOWN = ignored("MirrorMaker knows no option of this name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One option as it was written: in which ``file`` (or on the command line), under which ``name``."""

    file: str
    name: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Client:
    """An option of a cluster's clients: of which ``role`` ("" for all of them); of those of a role, the lowest ``rank``
    counts."""

    name: str
    role: str
    rank: int
    setting: Setting


@dataclass(slots=True)
class Flow:
    """What is copied from one cluster to another. ``options`` by MirrorMaker's own names, and ``lost`` those that
    another one goes before, with its name; ``aliases`` of all clusters that were configured together; ``is_first`` of
    MirrorMaker 1; ``has_checkpoints``: whether it looks at groups at all."""

    source: str
    target: str
    aliases: tuple[str, ...] = ()
    options: dict[str, Setting] = field(default_factory=dict)
    lost: dict[Setting, str] = field(default_factory=dict)
    clients: dict[Side, list[Client]] = field(default_factory=lambda: {SOURCE: [], TARGET: []})
    has_source: bool = True
    has_checkpoints: bool = True
    is_first: bool = False

    @property
    def title(self) -> str:
        return f"{self.source}->{self.target}"

    @property
    def has_groups(self) -> bool:
        """Whether groups go on on the target."""
        return self.has_checkpoints and self.is_on("emit.checkpoints.enabled", default=True)

    def value(self, name: str, default: str = "") -> str:
        """Raises BadInput for what a config provider would have to say."""
        if name not in self.options:
            return default
        return literal(self.options[name])

    def is_on(self, name: str, *, default: bool) -> bool:
        """As Java reads it: everything but "true" is false."""
        return self.value(name, str(default)).lower() == "true"

    def chosen(self, side: Side) -> dict[str, Setting]:
        """For each option of a cluster's clients, the one that counts for all of them."""
        order = _FIRST[side]
        found: dict[str, Setting] = {}
        for one in sorted(self.clients[side], key=lambda client: (order.index(client.role), client.rank)):
            found.setdefault(one.name, one.setting)
        return found

    def start(self) -> Setting | None:
        """Where consumers of the source begin, if it was written."""
        of_consumers = [
            one for one in self.clients[SOURCE] if (one.name, one.role) == ("auto.offset.reset", "consumer")
        ]
        return min(of_consumers, key=lambda client: client.rank).setting if of_consumers else None

    def take(self, name: str, setting: Setting) -> None:
        """An option of the flow's own, which goes before one of all flows, wherever in the file they stand."""
        if name in self.options and self.options[name] != setting:
            self.lost[self.options[name]] = setting.name
        self.options[name] = setting

    def take_of_all(self, setting: Setting) -> None:
        """An option of all flows."""
        if setting.name in self.options:
            self.lost[setting] = self.options[setting.name].name
        else:
            self.options[setting.name] = setting


@dataclass(slots=True)
class Configuration:
    """What was read: the flows, and what is known of each option already, by the option; ``others`` are connectors that
    are none of MirrorMaker's."""

    flows: list[Flow] = field(default_factory=list)
    known: dict[Setting, Counterpart] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)

    def note(self, setting: Setting, counterpart: Counterpart) -> None:
        """What became of an option, in one of the flows and clusters that it is about."""
        order = list(Outcome)
        before = self.known.get(setting, counterpart)
        self.known[setting] = min(before, counterpart, key=lambda one: order.index(one.outcome))


def literal(setting: Setting) -> str:
    """The value. Raises BadInput for one that a config provider would have to give."""
    if PROVIDED.search(setting.value):
        raise BadInput(
            "the value comes from a config provider, which is not asked",
            file=setting.file,
            field=setting.name,
            remedy="write the value itself into a copy of the file",
        )
    return setting.value.strip()


def read(paths: Iterable[Path]) -> Configuration:
    """Properties of dedicated MirrorMakers, and connectors: JSON, or properties of a standalone Connect. Raises
    BadInput for what is neither."""
    found = Configuration()
    for path in paths:
        data = content(path)
        if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
            for name, config in _connectors(path, data):
                file = f"{path}, {name}" if name else str(path)
                _read_connector(found, {one.name: one for one in _of_json(file, config)}, name)
        elif "connector.class" in (settings := _properties(found, path, data)):
            _require_no_comments(settings.values())
            _read_connector(found, settings, settings["name"].value if "name" in settings else "")
        else:
            _read_dedicated(found, settings, path)
    for flow in found.flows:
        if not flow.has_source:
            raise BadInput(
                f"{flow.title} has no source connector that is enabled, so nothing is mirrored",
                field="connector.class",
                remedy="give the config of its MirrorSourceConnector, too",
            )
    if not found.flows:
        raise BadInput("no connector of MirrorMaker 2", field="connector.class", remedy="give its source connector")
    return found


def read_first(consumer: Path, producer: Path, command: Mapping[str, str]) -> Configuration:
    """A MirrorMaker 1: its two properties files and the other options of its ``command`` line, without dashes."""
    found = Configuration()
    flow = Flow(source="source", target="target", has_checkpoints=False, is_first=True)
    files: tuple[tuple[Side, str, Path], ...] = ((SOURCE, "consumer", consumer), (TARGET, "producer", producer))
    for side, role, path in files:
        for setting in _properties(found, path, content(path)).values():
            _note_client(found, flow, side, Client(setting.name, role, 0, setting))
    for name, value in command.items():
        setting = Setting(file="command line", name=name, value=value)
        found.note(setting, options.FIRST[name])
        flow.options[{"include": "topics", "num.streams": "tasks.max"}.get(name, name)] = setting
    found.flows.append(flow)
    return found


def content(path: Path, option: str = "") -> bytes:
    """What stands in a file that ``option`` names. Raises BadInput."""
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        remedy = "name a configuration file"
        raise BadInput(f"cannot be read ({reason})", file=str(path), field=option, remedy=remedy) from None


def pairs(path: Path, data: bytes, option: str = "") -> list[tuple[str, str]]:
    """Names and values of a file of Java properties, line by line. Raises BadInput, which quotes none of them."""
    try:
        return [(one.key, one.value) for one in javaproperties.parse(data) if isinstance(one, javaproperties.KeyValue)]
    except javaproperties.InvalidUEscapeError:
        # Not its message: what it quotes may be a piece of a password.
        message = "no Java properties: a \\u that no four hexadecimal digits follow"
        raise BadInput(message, file=str(path), field=option, remedy="correct the escape") from None


def _properties(found: Configuration, path: Path, data: bytes) -> dict[str, Setting]:
    """As Java reads them from a file: of a name that is written twice, the last line counts."""
    settings: dict[str, Setting] = {}
    for name, value in pairs(path, data):
        setting = _setting(str(path), name, value)
        if name in settings and settings[name] != setting:
            found.note(settings[name], ignored("a later line with the same name counts"))
        settings[name] = setting
    return settings


def _of_json(file: str, config: Mapping[str, Any]) -> Iterator[Setting]:
    for name, value in config.items():
        if isinstance(value, list | dict):
            raise BadInput("is no text", file=file, field=name, remedy="write it as text, as Connect wants it")
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            yield _setting(file, name, text)


def _setting(file: str, name: str, value: str) -> Setting:
    try:
        (name + value).encode()
    except UnicodeEncodeError:
        raise BadInput("holds half a character", file=file, field=ascii(name), remedy="correct the escape") from None
    return Setting(file=file, name=name, value=value)


def _connectors(path: Path, data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and config of each connector: as it is sent to Connect, and as Connect lists it."""
    remedy = 'give a connector as Connect takes it: {"name": ..., "config": {...}}, or the config alone'
    try:
        document = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"neither Java properties nor JSON: {error}", file=str(path), remedy=remedy) from None
    for one in document if isinstance(document, list) else [document]:
        every = list(_configs(one)) if isinstance(one, dict) else []
        if not every:
            raise BadInput("no connector", file=str(path), remedy=remedy)
        yield from every


def _configs(one: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if "connector.class" in one:
        yield str(one.get("name", "")), one
    elif isinstance(one.get("config"), dict):
        yield str(one.get("name", "")), one["config"]
    else:
        for name, value in one.items():
            info = value.get("info") if isinstance(value, dict) else None
            if isinstance(info, dict) and isinstance(info.get("config"), dict):
                yield name, info["config"]


def _read_dedicated(found: Configuration, settings: Mapping[str, Setting], path: Path) -> None:
    aliases = listed_in(literal(settings["clusters"])) if "clusters" in settings else []
    if len(aliases) < 2:
        raise BadInput(
            "names no two clusters, so nothing is mirrored",
            file=str(path),
            field="clusters",
            value=settings["clusters"].value if "clusters" in settings else None,
            remedy="give MirrorMaker 2's properties (clusters = A, B); MirrorMaker 1's two files go to"
            " --consumer.config and --producer.config",
        )
    pairs = {f"{source}->{target}.": (source, target) for source in aliases for target in aliases if source != target}
    _require_no_comments(settings.values(), pairs)
    flows = {
        prefix: Flow(source=source, target=target, aliases=tuple(aliases))
        for prefix, (source, target) in pairs.items()
        if _is_enabled(settings, prefix)
    }
    if not flows:
        raise BadInput(
            "no flow is enabled, so nothing is mirrored",
            file=str(path),
            field=f"{aliases[0]}->{aliases[1]}.enabled",
            remedy="set it to true for each flow that is to be a migration",
        )
    for flow in flows.values():
        if again := next((one for one in found.flows if one.title == flow.title), None):
            raise _twice(again, str(path))
        for alias in (flow.source, flow.target):
            if f"{alias}.bootstrap.servers" not in settings and "bootstrap.servers" not in settings:
                raise BadInput("missing", file=str(path), field=f"{alias}.bootstrap.servers", remedy="add it")
    for setting in settings.values():
        if prefix := _longest(pairs, setting.name):
            if prefix in flows:
                _read_of_flow(found, flows[prefix], setting, setting.name.removeprefix(prefix))
            else:
                found.note(setting, ignored("this flow is not enabled"))
        elif prefix := _longest([f"{alias}." for alias in aliases], setting.name):
            _read_of_cluster(found, flows.values(), prefix.removesuffix("."), setting)
        else:
            _read_of_all(found, flows.values(), setting)
    found.flows += flows.values()


def _require_no_comments(settings: Iterable[Setting], flows: Collection[str] = ()) -> None:
    """Raises BadInput for an option of MirrorMaker's, behind the prefix of one of the ``flows`` or none, that ends in a
    comment."""
    for setting in settings:
        name = setting.name.removeprefix(_longest(flows, setting.name))
        if options.of_flow(name, setting.value) is not None and re.search(r"\s#", setting.value):
            raise BadInput(
                "holds a comment, which Java takes for a part of the value",
                file=setting.file,
                field=setting.name,
                value=setting.value,
                remedy="write the comment on a line of its own (MirrorMaker goes by the whole value)",
            )


def _is_enabled(settings: Mapping[str, Setting], prefix: str) -> bool:
    setting = settings.get(f"{prefix}enabled") or settings.get("enabled")
    return setting is not None and literal(setting).lower() == "true"


def _twice(flow: Flow, file: str) -> BadInput:
    return BadInput(
        f"{flow.title} is copied by two MirrorMakers",
        file=file,
        remedy="import each by itself, with a --name of its own",
    )


def _longest(prefixes: Iterable[str], name: str) -> str:
    """The prefix that ``name`` has, or "": an alias may begin as another one does."""
    return max((prefix for prefix in prefixes if name.startswith(prefix)), key=len, default="")


def _read_of_flow(found: Configuration, flow: Flow, setting: Setting, name: str) -> None:
    """An option of one flow, or of one of its connectors."""
    if re.match(r"(consumer|admin)\.override\.", name):
        found.note(setting, ignored("MirrorMaker's own clients are none that Connect would make"))
        return
    sides, role, client, rank = _client_of_flow(name)
    if sides:
        for side in sides:
            _note_client(found, flow, side, Client(client, role, rank, setting))
        return
    counterpart = options.of_flow(name, setting.value)
    if counterpart is not None:
        flow.take(name, setting)
    found.note(setting, counterpart or _of_worker(name) or _UNKNOWN)


def _read_of_cluster(found: Configuration, flows: Iterable[Flow], alias: str, setting: Setting) -> None:
    rest = setting.name.removeprefix(f"{alias}.")
    role, _, name = rest.partition(".")
    if role not in _ROLES:
        role, name = "", rest
    places = [(flow, side) for flow in flows for side in SIDES if getattr(flow, side) == alias]
    if not places:
        found.note(setting, ignored("no enabled flow has this cluster"))
    elif not role and not is_client_option(name):
        of_flow = options.of_flow(name, setting.value)
        if of_flow is not None and not name.endswith("converter"):
            of_flow = ignored("MirrorMaker 2 reads it of a flow (A->B.), or of all of them, and not of a cluster")
        found.note(setting, of_flow or _of_worker(name) or _UNKNOWN)
    else:
        for flow, side in places:
            _note_client(found, flow, side, Client(name, role, 1 if role else 0, setting))


def _read_of_all(found: Configuration, flows: Iterable[Flow], setting: Setting) -> None:
    name = setting.name
    counterpart = options.of_flow(name, setting.value)
    if counterpart is not None:
        found.note(setting, counterpart)
        for flow in flows:
            flow.take_of_all(setting)
    elif is_connection_property(name) or (name in options.CLIENT and name.startswith(("ssl.", "sasl.", "security."))):
        for flow in flows:
            for side in SIDES:
                _note_client(found, flow, side, Client(name, "", 2, setting))
    elif name.partition(".")[0] in _ROLES:
        found.note(setting, ignored(f"MirrorMaker 2 reads it behind a cluster or a flow alone, such as A.{name}"))
    else:
        found.note(setting, _of_worker(name) or _UNKNOWN)


def _read_connector(found: Configuration, settings: Mapping[str, Setting], name: str) -> None:
    kind = _CONNECTOR.fullmatch(settings["connector.class"].value.strip()) if "connector.class" in settings else None
    if kind is None:
        found.others.append(name or "without a name")
        return
    source, target = (
        literal(settings[f"{side}.cluster.alias"]) if f"{side}.cluster.alias" in settings else side for side in SIDES
    )
    flow = next((one for one in found.flows if (one.source, one.target) == (source, target)), None)
    if flow is None:
        flow = Flow(source=source, target=target, aliases=(source, target), has_source=False, has_checkpoints=False)
        found.flows.append(flow)
    is_enabled = "enabled" not in settings or literal(settings["enabled"]).lower() == "true"
    if not is_enabled:
        for setting in settings.values():
            found.note(setting, ignored("this connector is not enabled"))
        return
    if kind[1] == "Source":
        if flow.has_source:
            raise _twice(flow, next(iter(settings.values())).file)
        flow.has_source = True
    elif kind[1] == "Checkpoint":
        flow.has_checkpoints = True
    for setting in settings.values():
        if kind[1] != "Source" and (setting.name in _OF_SOURCE or setting.name.endswith("auto.offset.reset")):
            found.note(setting, not_needed("the source connector's counts"))
        elif kind[1] != "Checkpoint" and setting.name in _OF_CHECKPOINTS:
            found.note(setting, ignored("groups are the checkpoint connector's"))
        else:
            _read_of_flow(found, flow, setting, setting.name)


#: Options that several connectors may have, and that one of them decides.
_OF_SOURCE = frozenset({"topics", "topics.exclude", "topics.blacklist", "tasks.max", "replication.factor"})
_OF_CHECKPOINTS = frozenset({"groups", "groups.exclude", "groups.blacklist"})


def _client_of_flow(name: str) -> tuple[tuple[Side, ...], str, str, int]:
    """Of which clusters' clients, of which role ("" for all), which option, and its rank, within a flow's or
    connector's own options; no cluster for what is no client's."""
    for side in SIDES:
        if name.startswith(f"{side}.cluster.") and name != f"{side}.cluster.alias":
            # A cluster's own (A.security.protocol) goes before: MirrorMaker makes it each role's own.
            return (side,), "", name.removeprefix(f"{side}.cluster."), 1
        for role in _ROLES:
            if name.startswith(f"{side}.{role}."):
                return (side,), role, name.removeprefix(f"{side}.{role}."), 0
    for role, sides in (("consumer", (SOURCE,)), ("producer", (TARGET,)), ("admin", SIDES)):
        if name.startswith(f"{role}.") and name not in options.FLOW:
            return sides, role, name.removeprefix(f"{role}.").removeprefix("override."), 2
    return (), "", "", 0


def _note_client(found: Configuration, flow: Flow, side: Side, client: Client) -> None:
    """What connections take is accounted for when they are made."""
    if is_client_option(client.name):
        flow.clients[side].append(client)
    if not is_connection_property(client.name):
        # A consumer of the target is not where the copy begins.
        elsewhere = client.name == "auto.offset.reset" and (side, client.role) != (SOURCE, "consumer")
        unread = ignored("the mirror reads the source alone") if elsewhere else None
        found.note(client.setting, unread or options.of_client(client.name, client.setting.value) or _UNKNOWN)


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

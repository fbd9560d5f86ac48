"""A plan and two connections for each flow of a MirrorMaker, and what became of every option.

A copy starts from the beginning: nothing here knows how far MirrorMaker has copied.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from kafka_migration.domain.direction import Side
from kafka_migration.domain.errors import BadInput
from kafka_migration.domain.printable import in_one_line
from kafka_migration.kafka.lookup import stated, variable_of
from kafka_migration.mirrormaker import options
from kafka_migration.mirrormaker.connections import Connection, connection
from kafka_migration.mirrormaker.options import Counterpart, Outcome
from kafka_migration.mirrormaker.read import SIDES, Configuration, Flow, Setting, listed_in, literal, overridden
from kafka_migration.plans.load import parse_plan
from kafka_migration.plans.patterns import pattern_of
from kafka_migration.plans.problems import InvalidPlan, is_secret_name, without_user

#: What MirrorMaker 2 never copies, or only if it is asked to, besides what topics.exclude names.
_INTERNAL = ("__.*", r"\..*", r".*[.-]internal")
_EXCLUDED_TOPICS = (r".*[\-\.]internal", r".*\.replica", "__.*")
_EXCLUDED_GROUPS = ("console-consumer-.*", "connect-.*", "__.*")
#: Java's unions and intersections of character classes, which RE2 reads as characters.
_CLASS_OF_CLASSES = re.compile(r"\[[^\]]*(?:&&|\[(?!:))")
_FLAGS = re.compile(r"\(\?[a-zA-Z-]+\)")
_SECRET = re.compile(
    r"passphrase|keystore\.key|private|user\.info|config\.providers\..*\.param|\.args$|(?:converter|transforms|predicates)\.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One option that was written, and what became of it."""

    setting: Setting
    counterpart: Counterpart

    @property
    def shown(self) -> str:
        """The value, unless it may be a secret: of an option that nobody knows, too, which may be misspelled."""
        name = self.setting.name
        if self.counterpart.outcome is Outcome.IGNORED or is_secret_name(name) or _SECRET.search(name):
            return "<hidden>"
        return without_user(self.setting.value)

    def as_dict(self) -> dict[str, str]:
        """JSON types, without secrets."""
        return {
            "file": self.setting.file,
            "option": self.setting.name,
            "value": self.shown,
            "outcome": str(self.counterpart.outcome),
            "note": self.counterpart.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """``plans`` by the titles of their flows, as JSON types; ``connections`` hold secrets; ``differences`` are what the
    migration does otherwise though no option says so."""

    plans: Mapping[str, Mapping[str, Any]]
    connections: Mapping[str, Connection]
    rows: Sequence[Row]
    differences: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """JSON types, without secrets."""
        return {
            "plans": {title: dict(fields) for title, fields in self.plans.items()},
            "connections": {name: one.shown() for name, one in self.connections.items()},
            "options": [row.as_dict() for row in self.rows],
            "differences": list(self.differences),
        }

    def texts(self) -> dict[str, str]:
        """The plan files, by their names: with what stands in no plan as comments."""
        return {f"{fields['name']}.yaml": self._text(title, fields) for title, fields in self.plans.items()}

    def _text(self, title: str, fields: Mapping[str, Any]) -> str:
        others = tuple(f"{other}." for other in self.plans if other != title)
        left = [row for row in self.rows if row.counterpart.is_open and not row.setting.name.startswith(others)]
        lines = ["From MirrorMaker's configuration. See migration_plans/reference.yaml for all that a plan can say."]
        lines += [f"- {one}" for one in self.differences]
        lines += ["What stands in no plan:"] if left else []
        lines += [f"- {row.setting.name}: {row.counterpart.outcome}: {row.counterpart.note}" for row in left]
        written = yaml.safe_dump(dict(fields), sort_keys=False)
        text = "".join(f"# {in_one_line(line)}\n" for line in lines) + written
        if parse_plan(text) != parse_plan(written):
            raise AssertionError(f"the comments of {fields['name']} change the plan")
        return text

    def variables(self) -> str:
        """The connections as variables of a shell, which commands and Airflow look for. Holds secrets."""
        lines = []
        for name, one in self.connections.items():
            lines.append(f"export {variable_of(name)}={shlex.quote(stated(one.properties))}\n")
        return "".join(lines)


def imported(found: Configuration, *, only: str = "", name: str = "") -> Imported:
    """Of all flows, or of ``only`` one, such as "A->B", whose plan may have a ``name``.

    Raises BadInput, naming the option, for what no plan or connection takes.
    """
    titles = [flow.title for flow in found.flows]
    flows = [flow for flow in found.flows if only in ("", flow.title)]
    if not flows:
        raise BadInput("no enabled flow", field="--flow", value=only, remedy=f"choose from {', '.join(titles)}")
    if name and len(flows) > 1:
        raise BadInput("there are several plans", field="--name", value=name, remedy="choose one flow: --flow")
    rows = Configuration(known=dict(found.known))
    connections: dict[str, Connection] = {}
    aliases: dict[str, str] = {}
    plans: dict[str, Mapping[str, Any]] = {}
    for flow in flows:
        ids: dict[Side, str] = {}
        for side in SIDES:
            made = _connection(connections, aliases, flow, side)
            connections[made.conn_id] = made
            ids[side] = made.conn_id
            _account(rows, flow, side, made)
        plans[flow.title] = _plan(flow, ids, name or _plan_name(flow))
    names = [fields["name"] for fields in plans.values()]
    if again := next((one for one in names if names.count(one) > 1), None):
        raise BadInput(
            f"two plans would be called {again}", field="--name", remedy="import one flow at a time: --flow and --name"
        )
    _lost(rows, flows)
    for flow in found.flows:
        for client in (one for clients in flow.clients.values() for one in clients if flow not in flows):
            rows.known.setdefault(client.setting, options.ignored("this flow was not chosen"))
        own = f"{flow.title}."
        for setting in (one for one in rows.known if flow not in flows and one.name.startswith(own)):
            rows.known[setting] = options.ignored("this flow was not chosen")
    return Imported(
        plans=plans,
        connections=connections,
        rows=[Row(setting=setting, counterpart=one) for setting, one in rows.known.items()],
        differences=list(_differences(found, flows, plans)),
    )


def _connection(known: Mapping[str, Connection], aliases: dict[str, str], flow: Flow, side: Side) -> Connection:
    """That of one side: one of ``known``, by their ids, if it is of the same alias and the same, else a new one."""
    given = {name: one.value for name, one in flow.chosen(side).items()}
    alias: str = getattr(flow, side)
    first = conn_id = f"kafka_{re.sub(r'[^a-z0-9_]', '_', alias.lower())}"
    for number in itertools.count(2):
        made = connection(conn_id, given)
        if aliases.setdefault(conn_id, alias) == alias and known.get(conn_id, made).properties == made.properties:
            break
        conn_id = f"{first}_{number}"
    return made


def _account(rows: Configuration, flow: Flow, side: Side, made: Connection) -> None:
    for client in flow.clients[side]:
        if client.name in made.counterparts:
            rows.note(client.setting, overridden(flow, side, client) or made.counterparts[client.name])


def _lost(rows: Configuration, flows: Sequence[Flow]) -> None:
    """Options of all flows that no flow goes by, and former names of others."""
    for flow in flows:
        for former in ("topics", "groups"):
            if f"{former}.exclude" in flow.options and f"{former}.blacklist" in flow.options:
                flow.lost[flow.options.pop(f"{former}.blacklist")] = f"{former}.exclude"
    counts = {setting for flow in flows for setting in flow.options.values()}
    for flow in flows:
        for setting, winner in flow.lost.items():
            if setting not in counts:
                rows.known[setting] = options.ignored(f"{winner} counts")


def _differences(found: Configuration, flows: Sequence[Flow], plans: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield ("What MirrorMaker 2 has copied is taken over by `adopt`, if its topics are named in topics.adopt.")
    for title, fields in plans.items():
        if fields["mirror"]["start"] == "latest":
            yield f"{title}: only what is written from now on is copied (mirror.start), and nothing that is there."
    for flow in flows:
        if flow.is_first and flow.start() is None:
            yield "Everything that is there is copied; MirrorMaker 1 began with what was new (auto.offset.reset)."
        if _has_prefixes(flow):
            name = f"{flow.source}{_separator(flow)}orders"
            yield (
                f"{flow.title}: orders is called {name} on the target, as MirrorMaker has it: consumers that are moved"
                f" subscribe to {name} there. `naming: identity` in the plan keeps names."
            )
        if not flow.is_first and "sync.topic.acls.enabled" not in flow.options:
            yield f"{flow.title}: ACLs are not copied by and by, as MirrorMaker 2 does: `access --apply` makes them."
        if not flow.is_first and flow.is_on("heartbeats.replication.enabled", default=True):
            yield f"{flow.title}: MirrorMaker's heartbeats are not copied."
    for one, other in itertools.combinations(flows, 2):
        if _has_prefixes(one) and _has_prefixes(other):
            continue
        if (one.source, one.target) == (other.target, other.source):
            yield (
                f"{one.title} and {other.title}: run one of the two. A migration has a way back of its own, and what"
                " one plan makes, the other one refuses."
            )
        elif one.target == other.target:
            yield f"{one.title} and {other.title}: a topic of one name can be copied by one of the two alone."
    if any("groups" in fields for fields in plans.values()):
        yield "`cutover` moves groups: write into consumers.stop and consumers.start how their members stop and start."
    if found.others:
        yield f"Connectors that are none of MirrorMaker's were left out: {', '.join(found.others)}."


def _has_prefixes(flow: Flow) -> bool:
    if flow.is_first or flow.value("replication.policy.class", options.PREFIXED) != options.PREFIXED:
        return False
    return _separator(flow) != ""


def _separator(flow: Flow) -> str:
    return flow.value("replication.policy.separator", ".")


def _plan_name(flow: Flow) -> str:
    return re.sub(r"[^a-z0-9._-]", "-", f"{flow.source}-to-{flow.target}".lower()).lstrip("._-")[:63]


def _plan(flow: Flow, ids: Mapping[Side, str], name: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "version": 1,
        "name": name,
        "source": ids["source"],
        "target": ids["target"],
        "topics": _topics(flow),
    }
    if _has_prefixes(flow):
        fields["naming"] = {"prefix": flow.source, "separator": _separator(flow)}
    if flow.has_groups and (groups := _groups(flow)):
        fields["groups"] = groups
    if (factor := _number(flow, "replication.factor")) is not None and factor > 0:
        fields["topic_defaults"] = {"replication_factor": factor}
    streams = _number(flow, "tasks.max")
    fields["mirror"] = {
        **({} if streams is None else {"num_streams": streams}),
        "start": _start(flow),
        # MirrorMaker 1 subscribes by a pattern.
        "follow_new_topics": flow.is_first or flow.is_on("refresh.topics.enabled", default=True),
    }
    try:
        parse_plan(yaml.safe_dump(fields), file=flow.title)
    except InvalidPlan as error:
        raise _at_its_option(flow, error) from error
    return fields


def _topics(flow: Flow) -> dict[str, Any]:
    if flow.is_first:
        if "topics" not in flow.options:
            raise BadInput("missing: nothing would be mirrored", field="--include", remedy="give MirrorMaker 1's own")
        # As MirrorMaker 1 reads them: a comma means "or", and neither blanks nor quotes around them mean anything.
        patterns = flow.value("topics").replace(" ", "").strip("\"'")
        return {"include": _patterns(flow, "topics", patterns), "internal": []}
    include = _patterns(flow, "topics", flow.value("topics", ".*"))
    exclude = _excluded(flow, "topics", _EXCLUDED_TOPICS)
    internal, heartbeats = list(_INTERNAL), ["heartbeats"]
    if _has_prefixes(flow):
        separator = pattern_of(_separator(flow))
        # What came from there does not go back, by however many clusters.
        exclude.append(f"(.*{separator})?{pattern_of(flow.target)}{separator}.+")
        heartbeats += [f"{pattern_of(alias)}{separator}heartbeats" for alias in sorted(flow.aliases)]
        if flow.is_on("replication.policy.internal.topic.separator.enabled", default=True) and separator != r"\.":
            internal.append(f".*{separator}internal")
    return {"include": include, "exclude": [*exclude, *heartbeats], "internal": internal}


def _groups(flow: Flow) -> dict[str, Any]:
    include = _patterns(flow, "groups", flow.value("groups", ".*"))
    return {"include": include, "exclude": _excluded(flow, "groups", _EXCLUDED_GROUPS)} if include else {}


def _excluded(flow: Flow, kind: str, default: Sequence[str]) -> list[str]:
    # The second is what it was called before Kafka 3.
    for name in (f"{kind}.exclude", f"{kind}.blacklist"):
        if name in flow.options:
            return _patterns(flow, name, flow.value(name))
    return list(default)


def _patterns(flow: Flow, name: str, text: str) -> list[str]:
    """The patterns of an option. Raises BadInput for those that mean something else to Java."""
    found = listed_in(text)
    for at, pattern in enumerate(found):
        remedy = ""
        if _CLASS_OF_CLASSES.search(pattern):
            remedy = "write it without a class inside of a class, and without &&"
        elif _FLAGS.search(pattern) and at < len(found) - 1:
            # MirrorMaker joins them by |, and the flag holds for all that follow.
            remedy = "write such flags into every pattern, in parentheses of its own: (?i:orders)"
        if remedy:
            setting = flow.options[name]
            raise BadInput(
                "means something else to a plan than to Java",
                file=setting.file,
                field=setting.name,
                value=pattern,
                remedy=remedy,
            )
    return found


def _start(flow: Flow) -> str:
    setting = flow.start()
    # MirrorMaker 2 has its consumers begin with the first record; MirrorMaker 1 leaves it to them, which mattered when
    # it was started first, and no more.
    value = literal(setting) if setting is not None else "earliest"
    if setting is not None and value not in ("earliest", "latest"):
        raise BadInput(
            "is no place where a copy can begin",
            file=setting.file,
            field=setting.name,
            value=value,
            remedy="write earliest or latest, or a time into mirror.start of the plan that is made",
        )
    return value


def _number(flow: Flow, name: str) -> int | None:
    if name not in flow.options:
        return None
    setting = flow.options[name]
    try:
        return int(literal(setting))
    except ValueError:
        raise BadInput(
            "is no number", file=setting.file, field=setting.name, value=setting.value, remedy="write it in digits"
        ) from None


#: Fields of a plan, and the options that they come from.
_COMES_FROM = {
    "topics.include": "topics",
    "topics.exclude": "topics.exclude",
    "groups.include": "groups",
    "groups.exclude": "groups.exclude",
    "topic_defaults.replication_factor": "replication.factor",
    "mirror.num_streams": "tasks.max",
}


def _at_its_option(flow: Flow, error: InvalidPlan) -> BadInput:
    """The first problem of a plan, as one of the option that its field comes from."""
    problem = error.problems[0]
    field = re.sub(r"\[\d+\]$", "", problem.field)
    setting = flow.options.get(_COMES_FROM.get(field, ""))
    if setting is None:
        return error
    return BadInput(problem.message, file=setting.file, field=setting.name, value=setting.value, remedy=problem.remedy)

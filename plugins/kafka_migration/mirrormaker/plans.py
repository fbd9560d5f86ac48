"""A plan and two connections for each flow of a MirrorMaker, and what became of every option.

A copy starts from the beginning: nothing here knows how far MirrorMaker has copied.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from kafka_migration.domain.direction import Side
from kafka_migration.domain.errors import BadInput
from kafka_migration.kafka.lookup import variable_of
from kafka_migration.mirrormaker import options
from kafka_migration.mirrormaker.connections import Connection, connection
from kafka_migration.mirrormaker.options import Counterpart, Outcome
from kafka_migration.mirrormaker.read import SIDES, Configuration, Flow, Setting, listed_in, overridden
from kafka_migration.plans.load import parse_plan
from kafka_migration.plans.patterns import pattern_of
from kafka_migration.plans.problems import InvalidPlan

#: What MirrorMaker 2 never copies, or only if it is asked to, besides what topics.exclude names.
_INTERNAL = ("__.*", r"\..*", r".*[.-]internal")
_HEARTBEATS = (r"(.*\.)?heartbeats",)
_EXCLUDED_TOPICS = (r".*[\-\.]internal", r".*\.replica", "__.*")
_EXCLUDED_GROUPS = ("console-consumer-.*", "connect-.*", "__.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One option that was written, and what became of it."""

    setting: Setting
    counterpart: Counterpart

    def as_dict(self) -> dict[str, str]:
        return {
            "file": self.setting.file,
            "option": self.setting.name,
            "value": self.setting.shown,
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
        left = [row for row in self.rows if row.counterpart.outcome in (Outcome.TO_DO, Outcome.NO_COUNTERPART)]
        notes = [f"# - {row.setting.name}: {row.counterpart.outcome}: {row.counterpart.note}" for row in left]
        head = ["# From MirrorMaker's configuration. See migration_plans/reference.yaml for all that a plan can say."]
        head += [f"# - {one}" for one in self.differences]
        head += ["# What stands in no plan:", *notes] if notes else []
        return {
            f"{fields['name']}.yaml": "\n".join([*head, yaml.safe_dump(dict(fields), sort_keys=False)])
            for fields in self.plans.values()
        }

    def variables(self) -> str:
        """The connections as variables of a shell, which commands and Airflow look for. Holds secrets."""
        lines = []
        for name, one in self.connections.items():
            value = json.dumps({"conn_type": "kafka", "extra": dict(one.properties)})
            lines.append(f"export {variable_of(name)}={shlex.quote(value)}\n")
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
    counterparts, connections = dict(found.known), dict[str, Connection]()
    for flow in flows:
        for side in SIDES:
            made = connection(_conn_id(flow, side), {n: one.value for n, one in flow.chosen(side).items()})
            if connections.setdefault(made.conn_id, made).properties != made.properties:
                raise BadInput(
                    f"two flows reach this cluster in different ways, and both connections would be {made.conn_id}",
                    field=getattr(flow, side),
                    remedy=f"import one flow at a time: --flow '{flow.title}'",
                )
            _account(counterparts, flow, side, made)
    for flow in found.flows:
        if flow not in flows:
            for clients in flow.clients.values():
                for client in clients:
                    counterparts.setdefault(client.setting, options.ignored("this flow was not chosen"))
    return Imported(
        plans={flow.title: _plan(flow, name or _plan_name(flow)) for flow in flows},
        connections=connections,
        rows=[Row(setting=setting, counterpart=one) for setting, one in counterparts.items()],
        differences=list(_differences(flows)),
    )


def _differences(flows: Sequence[Flow]) -> Iterator[str]:
    yield (
        "The copy starts from the beginning: topics that MirrorMaker has made on the target are refused by `create`"
        " unless they are empty and named in topics.adopt."
    )
    for flow in flows:
        if _has_prefixes(flow):
            separator = flow.value("replication.policy.separator", ".")
            yield (
                f"{flow.title}: topics keep their names. MirrorMaker calls orders {flow.source}{separator}orders on the"
                " target."
            )
    titles = {flow.title for flow in flows}
    for flow in flows:
        back = f"{flow.target}->{flow.source}"
        if flow.title < back and back in titles:
            yield (
                f"{flow.title} and {back}: run one of the two. A migration has a way back of its own, and what one plan"
                " makes, the other one refuses."
            )
    if any(flow.has_groups for flow in flows):
        yield "`cutover` moves groups: write into consumers.stop and consumers.start how their members stop and start."


def _has_prefixes(flow: Flow) -> bool:
    return not flow.is_first and flow.value("replication.policy.class", options.PREFIXED) == options.PREFIXED


def _account(counterparts: dict[Setting, Counterpart], flow: Flow, side: Side, made: Connection) -> None:
    for client in flow.clients[side]:
        if client.name in made.counterparts:
            said = overridden(flow, side, client) or made.counterparts[client.name]
            # Of an option of several clusters, what counts for one of them is said, or else what does not.
            order = (Outcome.TAKEN, Outcome.TO_DO, Outcome.NO_COUNTERPART, Outcome.NOT_NEEDED)
            before = counterparts.get(client.setting, said)
            counterparts[client.setting] = min(before, said, key=lambda one: order.index(one.outcome))


def _conn_id(flow: Flow, side: Side) -> str:
    alias = flow.source if side == "source" else flow.target
    return f"kafka_{re.sub(r'[^a-z0-9_]', '_', alias.lower())}"


def _plan_name(flow: Flow) -> str:
    return re.sub(r"[^a-z0-9._-]", "-", f"{flow.source}-to-{flow.target}".lower()).lstrip("._-")[:63]


def _plan(flow: Flow, name: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "version": 1,
        "name": name,
        "source": _conn_id(flow, "source"),
        "target": _conn_id(flow, "target"),
        "topics": _topics(flow),
    }
    if flow.has_groups and (groups := _groups(flow)):
        fields["groups"] = groups
    if (factor := _number(flow, "replication.factor")) is not None and factor > 0:
        fields["topic_defaults"] = {"replication_factor": factor}
    streams = _number(flow, "tasks.max")
    fields["mirror"] = {
        **({} if streams is None else {"num_streams": streams}),
        "start": _start(flow),
        "follow_new_topics": not flow.is_first and flow.is_on("refresh.topics.enabled", default=True),
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
        return {"include": listed_in(patterns), "internal": []}
    include = listed_in(flow.value("topics", ".*"))
    exclude = listed_in(_either(flow, "topics.exclude", "topics.blacklist", ",".join(_EXCLUDED_TOPICS)))
    if _has_prefixes(flow):
        # What came from there does not go back.
        separator = flow.value("replication.policy.separator", ".")
        exclude.append(pattern_of(f"{flow.target}{separator}") + ".*")
    return {"include": include, "exclude": [*exclude, *_HEARTBEATS], "internal": list(_INTERNAL)}


def _groups(flow: Flow) -> dict[str, Any]:
    include = listed_in(flow.value("groups", ".*"))
    exclude = listed_in(_either(flow, "groups.exclude", "groups.blacklist", ",".join(_EXCLUDED_GROUPS)))
    return {"include": include, "exclude": exclude} if include else {}


def _either(flow: Flow, name: str, former: str, default: str) -> str:
    return flow.value(name, flow.value(former, default))


def _start(flow: Flow) -> str:
    setting = flow.start()
    # MirrorMaker 2 has its consumers begin with the first record; MirrorMaker 1 leaves it to them.
    value = setting.value.strip() if setting is not None else "latest" if flow.is_first else "earliest"
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
        return int(setting.value)
    except ValueError:
        raise BadInput(
            "is no number", file=setting.file, field=setting.name, value=setting.shown, remedy="write it in digits"
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
    return BadInput(problem.message, file=setting.file, field=setting.name, value=setting.shown, remedy=problem.remedy)

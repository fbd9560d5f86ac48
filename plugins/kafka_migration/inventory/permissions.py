"""What the migration's principals need, and nothing more: one table, from which everything else derives.

``acls`` prints it as ACLs, preflight compares it with what is granted, docs/security.md shows it (a test compares), and
another test migrates with exactly these ACLs and shows for each that something is refused without it.

Write and Read imply Describe, so Describe is never a row beside them (StandardAuthorizer, as in Kafka's documentation
of authorization). Idempotent producers need no ACL on the cluster since Kafka 2.8 (KIP-679): Write on a topic is
enough. Brokers 2.5 to 2.7 want IdempotentWrite on the target cluster besides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from kafka_migration.domain import ledger
from kafka_migration.domain.errors import BadInput
from kafka_migration.kafka.types import Acl

if TYPE_CHECKING:
    from kafka_migration.plans.model import Plan
    from kafka_migration.plans.patterns import Selection

Side = Literal["source", "target"]
SIDES: tuple[Side, ...] = ("source", "target")
CLUSTER = "kafka-cluster"
"""What Kafka calls the one resource of type cluster."""


class On(StrEnum):
    """What a row is about."""

    TOPICS = "the plan's topics"
    STATE = "the internal topics"
    GROUPS = "the plan's groups"
    TRANSACTIONAL_ID = "the transactional id"
    CLUSTER = "the cluster"
    STRAGGLERS_STATE = "the internal topic of `stragglers --forward`"


#: As Kafka names the types of resources, in words.
RESOURCE: Mapping[On, str] = {
    On.TOPICS: "topic",
    On.STATE: "topic",
    On.GROUPS: "group",
    On.TRANSACTIONAL_ID: "transactional id",
    On.CLUSTER: "cluster",
    On.STRAGGLERS_STATE: "topic",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One row: ``operation`` (as Kafka writes it) on ``on``, and what the migration does with it."""

    side: Side
    on: On
    operation: str
    why: str

    @property
    def code(self) -> str:
        """The operation as clients name it: DESCRIBE_CONFIGS."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.operation).upper()


RIGHTS: tuple[Right, ...] = (
    Right(side="source", on=On.TOPICS, operation="Read", why="the mirror and the validation fetch records"),
    Right(side="source", on=On.TOPICS, operation="DescribeConfigs", why="topics are created as they are there"),
    Right(side="source", on=On.GROUPS, operation="Describe", why="committed offsets and members are read"),
    Right(side="source", on=On.CLUSTER, operation="Describe", why="sizes on disk: does it fit, how long will it take"),
    Right(side="target", on=On.TOPICS, operation="Create", why="`create`"),
    Right(side="target", on=On.TOPICS, operation="Read", why="fences look for markers; the validation fetches records"),
    Right(side="target", on=On.TOPICS, operation="Write", why="the mirror appends batches and fences"),
    Right(
        side="target",
        on=On.TOPICS,
        operation="AlterConfigs",
        why="`restore` gives them their sources' retention; it lets configs be read back, too",
    ),
    Right(side="target", on=On.STATE, operation="Create", why="the first command that writes makes them"),
    Right(side="target", on=On.STATE, operation="Read", why="every command reads where the migration stands"),
    Right(
        side="target",
        on=On.STATE,
        operation="Write",
        why="journal, link, offset map, progress, and segments that were found equal",
    ),
    Right(
        side="target", on=On.STATE, operation="DescribeConfigs", why="one that would lose what stands in it is refused"
    ),
    Right(side="target", on=On.TRANSACTIONAL_ID, operation="Write", why="the mirror's producer id and its fences"),
    Right(side="target", on=On.GROUPS, operation="Read", why="`cutover` commits the translated offsets"),
    Right(side="target", on=On.CLUSTER, operation="Describe", why="free disk space"),
    Right(side="target", on=On.CLUSTER, operation="DescribeConfigs", why="the brokers' limits, defaults and memory"),
)

#: Besides, of plans that have producers fenced by ACLs, where they are.
FENCE_RIGHTS: tuple[Right, ...] = (
    Right(side="source", on=On.CLUSTER, operation="Alter", why="`fence` makes ACLs that deny, and removes them"),
    Right(side="source", on=On.CLUSTER, operation="DescribeConfigs", why="`fence` looks for super users"),
    Right(side="target", on=On.CLUSTER, operation="Alter", why="`create`, `switch` and `switch --back` do so here"),
)

#: Of plans that rename topics.
NAMING_RIGHTS: tuple[Right, ...] = (
    Right(side="source", on=On.STATE, operation="Read", why="`create` refuses what a link has copied from the target"),
)

_WAY_BACK = "the way back"
#: Of no use to a migration that goes through: asked for by name where it is wanted.
OPTIONAL_RIGHTS: tuple[Right, ...] = (
    Right(side="source", on=On.CLUSTER, operation="DescribeConfigs", why="`access` compares client quotas"),
    Right(side="target", on=On.CLUSTER, operation="Alter", why="`access --apply` makes ACLs, and SCRAM users"),
    Right(side="target", on=On.CLUSTER, operation="AlterConfigs", why="`access --apply` sets client quotas"),
    Right(side="target", on=On.TOPICS, operation="Delete", why="`cancel` and `mirror --again` delete what was created"),
    Right(side="source", on=On.TOPICS, operation="Write", why=_WAY_BACK),
    Right(side="source", on=On.TOPICS, operation="AlterConfigs", why=_WAY_BACK),
    Right(side="source", on=On.STATE, operation="Create", why=_WAY_BACK),
    Right(side="source", on=On.STATE, operation="Read", why=_WAY_BACK),
    Right(side="source", on=On.STATE, operation="Write", why=_WAY_BACK),
    Right(side="source", on=On.TRANSACTIONAL_ID, operation="Write", why=_WAY_BACK),
    Right(side="source", on=On.GROUPS, operation="Read", why=_WAY_BACK),
    *(
        Right(side="target", on=On.STRAGGLERS_STATE, operation=operation, why="`stragglers --forward` copies")
        for operation in ("Create", "Read", "Write", "DescribeConfigs")
    ),
    Right(
        side="target",
        on=On.TRANSACTIONAL_ID,
        operation="Write",
        why="forward again after a way back, and `stragglers --forward`",
    ),
)


def operations(side: Side, on: On) -> tuple[Right, ...]:
    """The rows for one side and one kind of thing."""
    return tuple(right for right in RIGHTS if (right.side, right.on) == (side, on))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An ACL to be granted: ALLOW ``right.operation`` on the named resource, from any host."""

    right: Right
    name: str
    prefixed: bool = False

    def __str__(self) -> str:
        return describe(self.right, self.name + ("*" if self.prefixed else ""))

    def acl(self, principal: str) -> Acl:
        """The ACL for ``principal``."""
        return Acl(
            resource_type=RESOURCE[self.right.on].replace(" ", "_").upper(),
            resource=self.name,
            pattern="PREFIXED" if self.prefixed else "LITERAL",
            principal=principal,
            host="*",
            operation=self.right.code,
            permission="ALLOW",
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON; types of resources and patterns as Kafka's protocol names them."""
        acl = {name: value for name, value in asdict(self.acl("")).items() if name not in ("principal", "host")}
        return {"side": self.right.side, **acl, "why": self.right.why}


def describe(right: Right, name: str) -> str:
    """An ACL in words: ``Read on topic orders``."""
    return f"{right.operation} on {RESOURCE[right.on]} {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What a plan selects by name: each name, and whether it stands for all that begin so."""

    topics: Mapping[str, bool]
    groups: Mapping[str, bool]


def names_of(plan: Plan) -> Names:
    """Names and prefixes, from the plan's patterns alone.

    Raises BadInput for a pattern that is neither a name nor a prefix followed by ``.*``, and where something is
    excluded from a prefix: no ACL can express that, so the clusters must be asked for names.
    """
    return Names(topics=_names("topics", plan.topics), groups=_names("groups", plan.groups))


def named(topics: Iterable[str], groups: Iterable[str]) -> Names:
    """Names as they are."""
    return Names(topics=dict.fromkeys(sorted(topics), False), groups=dict.fromkeys(sorted(groups), False))


def rules(plan: Plan, side: Side, names: Names, *, optional: bool = False) -> tuple[Rule, ...]:
    """Every ACL that the principal on ``side`` needs, in the order of the table; or, ``optional``, those beside."""
    own = transactional_id(plan)
    topics = names.topics if side == "source" else _on_target(plan, names.topics)
    resources: Mapping[On, Mapping[str, bool]] = {
        On.TOPICS: topics,
        On.GROUPS: names.groups,
        # On the source stands which links write to its topics, and nothing else.
        On.STATE: dict.fromkeys(sorted(ledger.PARTITIONS) if side == "target" else [ledger.LINKS_TOPIC], False),
        # Links behind the first one have its name, a colon and more, as the producer of `stragglers --forward`.
        On.TRANSACTIONAL_ID: {f"{own}:": True} if optional else {own: False},
        On.CLUSTER: {CLUSTER: False},
        On.STRAGGLERS_STATE: {ledger.STRAGGLERS_TOPIC: False},
    }
    fences = {} if plan.producers is None else {"source": plan.producers.fence, "target": plan.producers.target_fence}
    fenced = {on for on, fence in fences.items() if fence is not None and fence.kind == "acl_deny"}
    needed = (*RIGHTS, *(right for right in FENCE_RIGHTS if right.side in fenced))
    rights = OPTIONAL_RIGHTS if optional else needed if plan.topic_names.are_same else (*needed, *NAMING_RIGHTS)
    return tuple(
        Rule(right=right, name=name, prefixed=prefixed)
        for right in rights
        if right.side == side
        for name, prefixed in resources[right.on].items()
    )


def _on_target(plan: Plan, topics: Mapping[str, bool]) -> dict[str, bool]:
    """As the target calls them. Raises BadInput for a prefix of which topics are called otherwise there."""
    called, found = plan.topic_names, dict[str, bool]()
    for topic, is_prefix in topics.items():
        name = called.prefix_on_target(topic) if is_prefix else called.on_target(topic)
        if name is None:
            raise BadInput(
                f"topics with the prefix {topic} are renamed one by one (naming.topics): no ACL can express that",
                field="topics.include",
                value=topic,
                remedy="give --names, with connections that may describe everything: the clusters are asked for names",
            )
        found[name] = is_prefix
    return found


def transactional_id(plan: Plan) -> str:
    """That of the plan's link: see :attr:`kafka_migration.state.link.LinkState.transactional_id`."""
    return f"kafka-migration.{plan.name}"


#: A name spelled out: letters, digits, and what is special in patterns behind a backslash.
_SPELLED = r"((?:[A-Za-z0-9_-]|\\[.\-_])+)"
_NAME, _PREFIX = re.compile(_SPELLED), re.compile(_SPELLED + r"\.[*+]")


def spelled_out(selection: Selection) -> tuple[str, ...]:
    """Names that stand among the patterns as they are."""
    found = (_NAME.fullmatch(pattern) for pattern in selection.include)
    return selection.select(match[1].replace("\\", "") for match in found if match)


def _names(field: str, selection: Selection) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for at, pattern in enumerate(selection.include):
        name, prefix = _NAME.fullmatch(pattern), _PREFIX.fullmatch(pattern)
        if name:
            found.setdefault(name[1].replace("\\", ""), False)
        elif prefix and not selection.exclude:
            found[prefix[1].replace("\\", "")] = True
        else:
            why = "is a prefix of which something is excluded" if prefix else "is neither a name nor a prefix and .*"
            raise BadInput(
                f"the pattern {pattern!r} {why}: no ACL can express that",
                field=f"{field}.include[{at}]",
                value=pattern,
                remedy="give --names, with connections that may describe everything: the clusters are asked for names;"
                r" or spell a dot in a name as \.",
            )
    return {name: prefixed for name, prefixed in sorted(found.items()) if selection.matches(name) or prefixed}


def by_resource(given: Iterable[Rule]) -> dict[tuple[str, str, bool], tuple[str, ...]]:
    """Operations by (type of resource, name, whether it is a prefix)."""
    found: dict[tuple[str, str, bool], tuple[str, ...]] = {}
    for rule in given:
        key = (RESOURCE[rule.right.on], rule.name, rule.prefixed)
        found[key] = (*found.get(key, ()), rule.right.operation)
    return found

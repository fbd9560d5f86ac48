"""The plan: everything a person decides about one migration, in one immutable value.

Field names are the user's interface. Docstrings below the fields are their documentation in the JSON schema, too.
Contradictions between parts are looked for as soon as the parts concerned are valid, so that one reading of a file
reports everything that is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)

from kafka_migration.domain.digest import digest_of
from kafka_migration.domain.direction import SOURCE, TARGET, Side
from kafka_migration.domain.handlers import FUNCTION, Handler
from kafka_migration.domain.names import SAME, TopicNames
from kafka_migration.plans.access import Access
from kafka_migration.plans.alerts import Alerts
from kafka_migration.plans.base import (
    PLAIN_NAME,
    ConnectionId,
    Contradictions,
    Name,
    PlanModel,
    Seconds,
    each_once,
    without_unused,
    wrong,
)
from kafka_migration.plans.hooks import Hook
from kafka_migration.plans.patterns import GroupSelection, Patterns, TopicSelection, matches_any
from kafka_migration.plans.places import APPROVALS_CONNECTION
from kafka_migration.plans.producers import Producers
from kafka_migration.plans.schemas import Schemas
from kafka_migration.plans.waves import Waves


def _cron(text: str) -> str:
    # Imported here: only plans with a schedule pay for it when a DAG file is parsed.
    from datetime import UTC, datetime

    from croniter import (  # type: ignore[import-untyped]
        CroniterBadDateError,
        CroniterError,
        croniter,
    )

    remedy = "write five fields: minute hour day month weekday, such as '0 3 * * *' for 03:00 UTC every day"
    if not text.startswith("@") and len(text.split()) != 5:
        raise wrong("a cron expression has five fields", remedy)
    try:
        croniter(text, datetime.now(UTC)).get_next(datetime)
    except CroniterBadDateError:
        raise wrong("this moment never comes", remedy) from None
    except (CroniterError, ValueError, KeyError) as error:
        raise wrong(f"not a cron expression: {error}", remedy) from None
    return text


def _moment(text: str) -> str:
    if text in ("earliest", "latest"):
        return text
    remedy = "write earliest, latest, or a time with its zone, such as 2026-11-01T00:00:00Z"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise wrong("not a place to begin at", remedy) from None
    if moment.tzinfo is None:
        raise wrong("a time without a zone is another one on each machine", remedy)
    if moment.timestamp() < 0:
        raise wrong("a time before 1970", remedy)
    return text


class TopicDefaults(PlanModel):
    """How a target topic differs from its source, where it must."""

    replication_factor: Literal["source"] | Annotated[int, Field(ge=1, le=32767)] = "source"
    """Replicas of each target topic: "source" for the source topic's own number, or a number for all."""


Streams = Annotated[int, Field(ge=1, le=1024)]
Bytes = Annotated[int, Field(ge=1_048_576, le=1_073_741_824)]
RequestBytes = Annotated[int, Field(ge=1_048_576, le=67_108_864)]


class DedicatedStreams(PlanModel):
    """Copy tasks for some topics alone: while a copy round lasts, neither these nor the others wait for each other."""

    topics: Annotated[Patterns, Field(min_length=1)]
    """Regular expressions; each matches whole names of topics. A topic belongs to the first entry that matches it."""

    num_streams: Streams = 1
    """Copy tasks side by side, beside those of all other topics."""

    fetch_bytes: Bytes = 16_777_216
    """How much one of these tasks asks a broker of the source for at once, in bytes, and a sixteenth of that for each
    partition."""

    queue_bytes: Bytes = 134_217_728
    """How much one of these tasks holds that is read and not sent yet, in bytes; a 32nd of it of a partition. Its
    executor needs that much memory beside Spark's."""

    request_bytes: RequestBytes = 8_388_608
    """How much one of these tasks sends to a broker of the target at once, in bytes; larger batches go alone. Must be
    less than the brokers' socket.request.max.bytes."""

    niceness: Annotated[int, Field(ge=0, le=19)] = 0
    """How far these tasks give way to others where there are fewer cores than work: 0, not at all, to 19. Above 0 they
    have one append under way for each broker, and pause as long as its answer was late."""

    @model_serializer(mode="wrap")
    def _without_what_is_not_used(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_unused(dump(self), "niceness")


class Mirror(PlanModel):
    """The running copy."""

    num_streams: Streams = 2
    """Copy tasks side by side (Spark tasks)."""

    dedicated_streams: tuple[DedicatedStreams, ...] = ()
    """Topics with copy tasks of their own, beside the num_streams of all others: heavy ones, or ones that must not be
    late. Where Spark runs fewer tasks than there are entries, and one for all others, all topics share the tasks."""

    epoch_seconds: Annotated[float, Field(ge=1, le=600, allow_inf_nan=False)] = 15.0
    """How soon partitions are assigned to tasks again, in seconds, while there is a backlog. Without a backlog a copy
    round lasts ten minutes; so it does with dedicated_streams, unless the next one would even out their backlog."""

    start: Annotated[str, AfterValidator(_moment)] = "earliest"
    """Where the copy of a topic begins when it is mirrored for the first time: earliest (all that the source has),
    latest (what is written from then on), or a time with its zone, such as 2026-11-01T00:00:00Z (the first record of
    each partition that is as young, and what follows it). What lies before is never copied."""

    follow_new_topics: bool = False
    """Have topics that are made on the source while the mirror runs, and that topics.include matches, join it by
    themselves: created on the target as the others were, within half a minute."""

    spark_connection: ConnectionId = "spark_default"
    """The Airflow connection that the mirror is submitted to."""

    @property
    def all_streams(self) -> int:
        """Copy tasks side by side, dedicated ones included."""
        return self.num_streams + sum(each.num_streams for each in self.dedicated_streams)

    def by_streams(self, topics: Iterable[str]) -> dict[int | None, list[str]]:
        """``topics`` by the entry of ``dedicated_streams`` whose tasks copy them, None for those of all others."""
        found: dict[int | None, list[str]] = {}
        for topic in topics:
            entries = enumerate(self.dedicated_streams)
            at = next((at for at, each in entries if matches_any(each.topics, topic)), None)
            found.setdefault(at, []).append(topic)
        return found

    def streams_of(self, entry: int | None) -> tuple[int, str]:
        """How many tasks copy the topics of an entry, or (None) all others, and the name of that field."""
        if entry is None:
            return self.num_streams, "mirror.num_streams"
        return self.dedicated_streams[entry].num_streams, f"mirror.dedicated_streams[{entry}].num_streams"

    @model_serializer(mode="wrap")
    def _without_what_is_not_used(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_unused(dump(self), "dedicated_streams")


class TopicHandler(PlanModel):
    """A Python function that changes or drops records of some topics on their way to the target."""

    topics: Annotated[Patterns, Field(min_length=1)]
    """Regular expressions; each matches whole names of topics. A topic belongs to the first entry that matches it; one
    that none matches is copied byte for byte."""

    function: Annotated[str, Field(pattern=rf"^{FUNCTION}$", max_length=500)]
    """The function, as package.module:name. It is given a record (kafka_migration.domain.handlers.Record), and returns
    that, another one in its place, or None, which drops it. Spark's executors must have its module."""

    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """SHA-256 of the module's file, which `check` shows. No other code is run; without it, nothing is copied."""

    keeps_keys: bool = False
    """Each record keeps its key, and whether it has a value, and none is dropped: what is not so stops its partition.
    Must be true for compacted topics."""

    @property
    def handler(self) -> Handler:
        """For who copies and compares."""
        return Handler(function=self.function, sha256=self.sha256 or "", keeps_keys=self.keeps_keys)


class LagGateSettings(PlanModel):
    """When the mirror counts as caught up. Lag is in source offsets, summed over all partitions."""

    threshold_records: Annotated[int, Field(ge=0)] = 1000
    """The largest total replication lag that passes."""

    samples: Annotated[int, Field(ge=1, le=10_000)] = 3
    """How many samples in a row must be at or under the threshold."""

    interval_seconds: Seconds = 2.0
    """Seconds between two samples."""

    deadline_seconds: Seconds = 86_400.0
    """After so many seconds the gate gives up, having changed nothing."""

    @model_validator(mode="after")
    def _can_pass(self) -> Self:
        found = Contradictions()
        least = (self.samples - 1) * self.interval_seconds
        if least >= self.deadline_seconds:
            found.add(
                ("deadline_seconds",),
                self.deadline_seconds,
                f"{self.samples} samples take {least:g} s, so the gate could never pass",
                f"give a deadline well over {least:g} s, or fewer samples",
            )
        found.raise_any("lag_gate")
        return self


class Validation(PlanModel):
    """The independent comparison of source and target."""

    segment_records: Annotated[int, Field(ge=1000, le=1_000_000_000)] = 1_000_000
    """Records of a partition that are digested together: how closely a difference is located. What was found equal is
    kept by segment, and not read again."""

    # A plan of an earlier version keeps its digest; its level is read as record.
    level: Annotated[
        Literal["batch", "record", "sampled"], WithJsonSchema({"type": "string", "enum": ["batch", "record"]})
    ] = "record"
    """How closely both clusters are compared: record, every record by a reader that shares no code with the mirror;
    batch, batches by their bytes."""

    sample: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.05
    """At level record, the share of segments of which Spark's own Kafka source reads a stretch once more, at most a
    hundredth. 0 for none."""

    reread_seconds: Seconds = 604_800.0
    """Segments that were found equal longer ago than this many seconds are read again."""

    least_coverage: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.5
    """The share of each topic's mirrored source offsets that must have been compared before a group moves: what expired
    on the source before any validation read it never was. 0 asks for nothing."""

    schedule: Annotated[str, AfterValidator(_cron)] | None = None
    """Cron expression (UTC) on which a validation reruns by itself; null for by hand only."""

    max_age_seconds: Seconds = 86_400.0
    """A verdict older than this many seconds lets no group move."""

    examples: Annotated[int, Field(ge=1, le=1000)] = 10
    """How many of the records that differ are shown, of each partition."""

    private_payloads: bool = True
    """Show no byte of keys, values and headers where records differ: only which part does, and where. With false, they
    stand in validation.json, the Data Docs, the report, the journal and Airflow's pages, for all who may see those."""

    spark_connection: ConnectionId = "spark_default"
    """The Airflow connection that validations are submitted to."""


class Approvals(PlanModel):
    """Which gates wait for a person. No answer is never an approval."""

    plan: bool = True
    """Ask before anything is created on the target."""

    cutover: bool = True
    """Ask before the first consumer group is moved, to the target or back."""

    approvers: tuple[Name, ...] = ()
    """Users who may answer, by their names in Airflow, and in the password database of the machine that runs the
    command; empty: whoever may answer in Airflow, or has the approval key."""

    signed: bool = True
    """Answers are signed with the approval key, and one that is not signed is none. With false, whoever may write to
    the journal on the target may make one up."""

    max_age_seconds: Seconds = 3600.0
    """Evidence older than this many seconds cannot be approved any more, and an approval that old is void. What began
    in time may go on under it, as long as no step comes later than this after the one before."""

    @model_validator(mode="after")
    def _somebody_is_asked(self) -> Self:
        found = Contradictions()
        if self.approvers and not (self.plan or self.cutover):
            found.add(
                ("approvers",),
                list(self.approvers),
                "approvers are named, but no gate asks them",
                "set approvals.plan or approvals.cutover to true, or remove the approvers",
            )
        each_once(found, "approvers", self.approvers)
        found.raise_any("approvals")
        return self


class Cutover(PlanModel):
    """How consumer groups are moved."""

    rest_seconds: Seconds = 5.0
    """An empty group that was never seen with members: its commits on the source must not move for this many seconds
    before they are translated. One whose commits were seen to move without members rests for as long as that took, if
    it is longer (up to consumers.wait_seconds). One that was seen with members needs no rest."""

    uncommitted: Literal["refuse", "earliest", "cut"] = "refuse"
    """A partition that a group subscribes to but never committed: refuse the group, or commit the target's log start
    offset (earliest), or the target's end at the moment of the cut (cut)."""

    watch_seconds: Seconds = 300.0
    """How long a started group may take to commit past its translated offset on the target."""

    stopped_groups: tuple[Name, ...] = ()
    """Groups that have no running consumers and shall have none: no hooks, and the read-back is enough."""

    batch_size: Annotated[int, Field(ge=1, le=1000)] = 50
    """Groups that one task moves, one after the other."""

    rewind: bool = False
    """Allow committing below what the group has committed on the target already."""

    @model_validator(mode="after")
    def _each_group_once(self) -> Self:
        found = Contradictions()
        each_once(found, "stopped_groups", self.stopped_groups)
        found.raise_any("cutover")
        return self


class Consumers(PlanModel):
    """How consumers are stopped on the source and started on the target. In order; all must succeed."""

    stop: tuple[Hook, ...] = ()
    """Run before a group is moved. Empty: the group must be empty already, and is refused otherwise."""

    start: tuple[Hook, ...] = ()
    """Run after a group was moved. Empty, or wait: somebody else starts it, and the watch waits for it."""

    wait_seconds: Seconds = 300.0
    """How long to wait until a stopped group is empty and the mirror has copied up to its last commit."""


class Drain(PlanModel):
    """The gate before the mirror is stopped for good."""

    window_seconds: Seconds = 10.0
    """Source log ends must not move for this many seconds."""

    deadline_seconds: Seconds = 600.0
    """After so many seconds the gate refuses, having changed nothing."""

    @model_validator(mode="after")
    def _can_pass(self) -> Self:
        found = Contradictions()
        if self.deadline_seconds <= self.window_seconds:
            found.add(
                ("deadline_seconds",),
                self.deadline_seconds,
                f"a window of {self.window_seconds:g} s never fits in, so the gate could never pass",
                "give a deadline longer than drain.window_seconds",
            )
        found.raise_any("drain")
        return self


#: How names begin that are not for topics of a plan.
_RESERVED = ("__", "kafka-migration.")


class Naming(PlanModel):
    """How topics are called on the target, where they do not keep their names."""

    prefix: Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{0,100}$")] = ""
    """What stands before a topic's name on the target, with the separator behind it: MirrorMaker 2 puts the source
    cluster's alias there. Empty for none."""

    separator: Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{0,20}$")] = "."
    """What stands between prefix and name."""

    topics: dict[Name, Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]] = Field(default_factory=dict)
    """Topics that are called otherwise: names on the target by names on the source."""

    @model_validator(mode="after")
    def _each_name_leads_back(self) -> Naming:
        found = Contradictions()
        if not self.prefix and not self.topics:
            found.add(("prefix",), "", "renames nothing", "give a prefix, or topics; or write `naming: identity`")
        before = f"{self.prefix}{self.separator}" if self.prefix else ""
        # With the first letters of a topic's name behind it, too.
        if before and any(before.startswith(own) or own.startswith(before) for own in _RESERVED):
            found.add(("prefix",), self.prefix, "is how Kafka's own topics begin, or the migration's", "choose another")
        seen: dict[str, str] = {}
        for topic, name in self.topics.items():
            if (other := seen.setdefault(name, topic)) != topic:
                found.add(("topics", topic), name, f"{other} is called so already", "give each a name of its own")
            elif name.startswith(_RESERVED):
                found.add(("topics", topic), name, "is a name of Kafka's own, or of the migration's", "choose another")
        found.raise_any(type(self).__name__)
        return self

    @property
    def names(self) -> TopicNames:
        """For who asks the clusters."""
        return TopicNames(prefix=self.prefix + self.separator if self.prefix else "", renamed=dict(self.topics))


class Plan(PlanModel):
    """One migration of topics and consumer groups from a source to a target Kafka cluster."""

    version: Literal[1]
    """Version of this format."""

    name: Annotated[str, Field(pattern=f"^{PLAIN_NAME}$")]
    """The migration's name: its DAG, its state on the target and its report are found by it."""

    source: ConnectionId
    """Airflow connection (type kafka) of the cluster to migrate from."""

    target: ConnectionId
    """Airflow connection (type kafka) of the cluster to migrate to."""

    topics: TopicSelection
    """Topics to mirror."""

    groups: GroupSelection = GroupSelection()
    """Consumer groups to move."""

    waves: Waves | None = None
    """Which of them move together, one wave after another; null for all in one."""

    naming: Annotated[
        Annotated[Literal["identity"], Tag("identity")] | Annotated[Naming, Tag("naming")],
        Discriminator(lambda value: "identity" if isinstance(value, str) else "naming"),
    ] = "identity"
    """How a target topic is named: identity, as on the source; or as this section has it. Everywhere else, in the plan,
    in commands and in reports, a topic goes by its name on the source."""

    topic_defaults: TopicDefaults = TopicDefaults()
    """How target topics differ from their sources."""

    mirror: Mirror = Mirror()
    """The running copy."""

    handlers: Annotated[tuple[TopicHandler, ...], Field(min_length=1)] | None = None
    """Functions that change or drop records on their way to the target; null for none."""

    lag_gate: LagGateSettings = LagGateSettings()
    """When the mirror counts as caught up."""

    validation: Validation = Validation()
    """The independent comparison."""

    approvals: Approvals = Approvals()
    """Which gates wait for a person."""

    cutover: Cutover = Cutover()
    """How consumer groups are moved."""

    consumers: Consumers = Consumers()
    """How consumers are stopped and started."""

    producers: Producers | None = None
    """How producers are kept from the source. Left out: nothing keeps them from it, and they leave by themselves."""

    access: Access | None = None
    """Which ACLs of the source the target should have: the command access."""

    schemas: Schemas | None = None
    """The schema registries of both sides, and which subjects are copied: the command schemas. Left out: none is."""

    drain: Drain = Drain()
    """The gate before the mirror is stopped for good."""

    alerts: Alerts = Alerts()
    """Who is notified when something goes wrong."""

    @field_validator("target")
    @classmethod
    def _another_cluster(cls, target: str, info: ValidationInfo) -> str:
        source = info.data.get("source")
        # Connections come from variables named in capitals: ids that differ in case only are one connection.
        if isinstance(source, str) and source.upper() == target.upper():
            raise wrong(
                f"source ({source}) and target are the same connection",
                "name two connections, to two different clusters",
            )
        return target

    @field_validator("waves")
    @classmethod
    def _waves_are_of_the_plan(cls, waves: Waves | None, info: ValidationInfo) -> Waves | None:
        found = Contradictions()
        topics, groups = info.data.get("topics"), info.data.get("groups")
        if waves is not None and isinstance(groups, GroupSelection):
            for at, group in enumerate(waves.spanning_groups):
                if not groups.matches(group):
                    found.add(
                        ("spanning_groups", at),
                        group,
                        "may span waves, but groups does not select it",
                        "add it to groups.include (and see groups.exclude), or remove it here",
                    )
            for at, wave in enumerate(waves.given):
                for field in ("groups", "canary"):
                    if getattr(wave, field) and not groups.include:
                        found.add(("given", at, field), None, "no group is moved", "fill groups.include")
        topic = waves.auto.canary_topic if waves is not None and waves.auto is not None else None
        if topic is not None and isinstance(topics, TopicSelection) and not topics.matches(topic):
            found.add(
                ("auto", "canary_topic"),
                topic,
                "to go first, but topics does not select it",
                "add it to topics.include (and see topics.exclude), or name another topic",
            )
        found.raise_any("waves")
        return waves

    @field_validator("cutover")
    @classmethod
    def _stopped_groups_are_selected(cls, cutover: Cutover, info: ValidationInfo) -> Cutover:
        found = Contradictions()
        groups = info.data.get("groups")
        for at, group in enumerate(cutover.stopped_groups):
            if isinstance(groups, GroupSelection) and not groups.matches(group):
                found.add(
                    ("stopped_groups", at),
                    group,
                    "declared stopped, but groups does not select it",
                    "add it to groups.include (and see groups.exclude), or remove it here",
                )
        found.raise_any("cutover")
        return cutover

    @field_validator("consumers")
    @classmethod
    def _hooks_have_groups(cls, consumers: Consumers, info: ValidationInfo) -> Consumers:
        found = Contradictions()
        groups = info.data.get("groups")
        if isinstance(groups, GroupSelection) and not groups.include:
            for name in ("stop", "start"):
                if getattr(consumers, name):
                    found.add((name,), None, "hooks are given, but no group is moved", "fill groups.include")
        found.raise_any("consumers")
        return consumers

    @field_validator("alerts")
    @classmethod
    def _notifiers_have_connections_of_their_own(cls, alerts: Alerts, info: ValidationInfo) -> Alerts:
        found, data = Contradictions(), info.data
        producers = data.get("producers")
        fences = [producers.fence_on(SOURCE), producers.fence_on(TARGET)] if isinstance(producers, Producers) else []
        schemas = data.get("schemas")
        registries = schemas.connections if isinstance(schemas, Schemas) else ()
        # A notifier would send what they keep secret to the service that it knows. Ids differ by case alone nowhere.
        probes = (fence.probe for fence in fences)
        named = (data.get("source"), data.get("target"), APPROVALS_CONNECTION, *probes, *registries)
        others = {name.upper() for name in named if isinstance(name, str)}
        for at, one in enumerate(alerts.notifiers):
            for name, value in one.connections.items():
                if isinstance(value, str) and value.upper() in others:
                    remedy = "name the connection of the service that is notified"
                    found.add(("notifiers", at, "arguments", name), value, "the connection of something else", remedy)
        found.raise_any("alerts")
        return alerts

    @property
    def digest(self) -> str:
        """Digest of the plan's content, defaults included: an approval binds to it."""
        return digest_of(self.snapshot())

    @property
    def producers_apart(self) -> bool:
        """Whether switching producers has a gate of its own, rather than that of the groups: where it is a step of the
        workflow, or comes first; and where waves of groups were approved each for itself."""
        return self.producers is not None and (
            self.producers.in_workflow or self.producers.first or self.waves is not None
        )

    @property
    def topic_names(self) -> TopicNames:
        """How topics are called on the target."""
        return self.naming.names if isinstance(self.naming, Naming) else SAME

    def handler_of(self, topic: str) -> Handler | None:
        """What changes records of ``topic`` on their way to the target; None where they are copied as they are."""
        return next((each.handler for each in self.handlers or () if matches_any(each.topics, topic)), None)

    def connection(self, side: Side) -> str:
        """The id of the connection to the cluster ``side``."""
        return self.source if side == SOURCE else self.target

    @property
    def registries(self) -> tuple[str, ...]:
        """Ids of the connections to schema registries, the source's first; none for a plan without."""
        return () if self.schemas is None else self.schemas.connections

    def asks(self, gate: str) -> bool:
        """Whether a person is asked at ``gate``: plan, producers, or cutover, and rollback with it."""
        if gate == "producers":
            return self.producers is not None and self.producers_apart and self.producers.approval
        return self.approvals.plan if gate == "plan" else self.approvals.cutover

    def snapshot(self) -> dict[str, Any]:
        """The plan as JSON types, defaults included; ``load.restore_plan`` reads it back.

        A run works from its snapshot: the file may be edited while the run is in flight. Sections that the plan does
        not have are left out, so that a section of a later version changes no plan's digest.
        """
        return {name: part for name, part in self.model_dump(mode="json").items() if part is not None}

    def stop_hooks(self, group: str) -> tuple[Hook, ...]:
        """The hooks that stop ``group``, in order. None for a group that is declared stopped."""
        return self._hooks(self.consumers.stop, group)

    def start_hooks(self, group: str) -> tuple[Hook, ...]:
        """The hooks that start ``group``, in order. None for a group that is declared stopped."""
        return self._hooks(self.consumers.start, group)

    def _hooks(self, hooks: tuple[Hook, ...], group: str) -> tuple[Hook, ...]:
        return () if group in self.cutover.stopped_groups else tuple(h for h in hooks if h.is_for(group))

"""Every option of MirrorMaker 1 and 2, and what stands for it in a migration. docs/mirrormaker.md has these tables.

Names are those of Kafka 4.3.1 (MirrorMaker 2, its Connect worker and its clients), and of 3.9, the last release that
had MirrorMaker 1; a test compares them with what those releases define. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What becomes of an option; of one that is about several flows or clusters, the first of these."""

    TAKEN = "taken"
    """It stands in the plan, or in a connection."""

    TO_DO = "to do"
    """A person has to write something into the connection first."""

    NO_COUNTERPART = "no counterpart"
    """The migration does not do this; ``note`` is what to do instead."""

    NOT_NEEDED = "not needed"
    """The migration does as much without being asked, or has nothing that it could be about."""

    IGNORED = "ignored"
    """MirrorMaker does nothing with it, where it stands."""


@dataclass(frozen=True, slots=True)
class Counterpart:
    """What stands for an option, and where; or why nothing does."""

    outcome: Outcome
    note: str

    @property
    def is_open(self) -> bool:
        """Whether a person has to do or decide something."""
        return self.outcome in (Outcome.TO_DO, Outcome.NO_COUNTERPART)


def taken(note: str) -> Counterpart:
    """It stands in the plan, or in a connection: ``note`` is where."""
    return Counterpart(Outcome.TAKEN, note)


def not_needed(note: str) -> Counterpart:
    """The migration does without it: ``note`` is why."""
    return Counterpart(Outcome.NOT_NEEDED, note)


def to_do(note: str) -> Counterpart:
    """A person has to do something: ``note`` is what."""
    return Counterpart(Outcome.TO_DO, note)


def no_counterpart(note: str) -> Counterpart:
    """The migration does not do this: ``note`` is why, or what to do instead."""
    return Counterpart(Outcome.NO_COUNTERPART, note)


def ignored(note: str) -> Counterpart:
    """MirrorMaker makes no use of it: ``note`` is why."""
    return Counterpart(Outcome.IGNORED, note)


def _table(*rows: tuple[Counterpart, str]) -> dict[str, Counterpart]:
    return {name: counterpart for counterpart, names in rows for name in names.split()}


_TUNING = not_needed("tunes a Java client; mirror.num_streams says how much is copied at once, `throttle` how fast")
_METRICS = no_counterpart("`status --json` and `lag --json` are what can be monitored")
_HANDLER = no_counterpart("no code in Java is run: write it as a function in Python, and name that under `handlers`")
_CONNECT = not_needed("of Connect's worker; the mirror runs on Spark")
_DESERIALIZED = not_needed("records are copied as bytes")
_OFFSETS = not_needed("offsets are translated exactly, from a map that is written with the records")
_CLIENT_TLS = no_counterpart("what TLS negotiates is left to the clients' defaults")

BYTES_CONVERTER = "org.apache.kafka.connect.converters.ByteArrayConverter"
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
PREFIXED = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
_FILTERS = {
    "topic.filter.class": "org.apache.kafka.connect.mirror.DefaultTopicFilter",
    "group.filter.class": "org.apache.kafka.connect.mirror.DefaultGroupFilter",
    "config.property.filter.class": "org.apache.kafka.connect.mirror.DefaultConfigPropertyFilter",
}

#: Of a replication flow A->B, or of its connectors.
FLOW: Mapping[str, Counterpart] = _table(
    (taken("one plan for each enabled flow"), "enabled"),
    (taken("topics.include"), "topics"),
    (taken("topics.exclude"), "topics.exclude topics.blacklist"),
    (taken("groups.include"), "groups"),
    (taken("groups.exclude"), "groups.exclude groups.blacklist"),
    (taken("topic_defaults.replication_factor"), "replication.factor"),
    (taken("mirror.num_streams"), "tasks.max"),
    (taken("mirror.follow_new_topics"), "refresh.topics.enabled"),
    (taken("the plan's name and its connections"), "name source.cluster.alias target.cluster.alias"),
    (not_needed("all of it is one migration"), "connector.class connector.plugin.version tasks.max.enforce"),
    (not_needed("new topics are looked for twice a minute"), "refresh.topics.interval.seconds"),
    (
        _OFFSETS,
        """emit.checkpoints.enabled emit.checkpoints.interval.seconds checkpoints.topic.replication.factor
        emit.offset-syncs.enabled offset-syncs.topic.location offset-syncs.topic.replication.factor offset.lag.max""",
    ),
    (
        not_needed("`cutover` moves a group once, when its members have stopped, and reads back what it committed"),
        """sync.group.offsets.enabled sync.group.offsets.interval.seconds refresh.groups.enabled
        refresh.groups.interval.seconds""",
    ),
    (
        not_needed("`status` and `lag` see whether the mirror runs"),
        """emit.heartbeats.enabled emit.heartbeats.interval.seconds heartbeats.topic.replication.factor
        heartbeats.replication.enabled""",
    ),
    (
        not_needed("configs are taken over when a topic is made, and `lag` shows where they differ since"),
        "sync.topic.configs.interval.seconds",
    ),
    (
        no_counterpart("every config that the target takes is the source's; alter it on the target after `restore`"),
        "config.properties.exclude config.properties.blacklist use.defaults.from",
    ),
    (not_needed("ACLs are made once, by `access PLAN --apply`"), "sync.topic.acls.interval.seconds"),
    (no_counterpart("requests have time limits of their own"), "admin.timeout.ms consumer.poll.timeout.ms"),
    (no_counterpart("topics are made by Kafka's own admin client"), "forwarding.admin.class"),
    (
        not_needed("nothing is skipped: a record that cannot be copied halts its partition, and `status` names it"),
        "errors.log.enable errors.log.include.messages errors.retry.delay.max.ms errors.retry.timeout errors.tolerance",
    ),
    (_HANDLER, "transforms predicates"),
    (taken("naming.separator, unless the policy keeps names"), "replication.policy.separator"),
    (
        not_needed("its own state stands in topics called kafka-migration.*"),
        "replication.policy.internal.topic.separator.enabled",
    ),
    (_METRICS, "metric.names.formats"),
    (
        not_needed("every record is copied exactly once"),
        "exactly.once.support transaction.boundary transaction.boundary.interval.ms",
    ),
    (
        not_needed("the mirror keeps its position on the target"),
        "offsets.storage.topic config.action.reload task.index task.assigned.partitions task.assigned.groups",
    ),
    (
        not_needed("topics are made as on the source"),
        "topic.creation.groups topic.creation.default.replication.factor topic.creation.default.partitions",
    ),
)

#: Of a client, which a connection takes: see connections.py. The rest decides what no connection can.
CLIENT: Mapping[str, Counterpart] = _table(
    (taken("mirror.start"), "auto.offset.reset"),
    (
        not_needed("the mirror is no consumer group, and never commits on the source"),
        """group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms session.timeout.ms
        max.poll.interval.ms partition.assignment.strategy enable.auto.commit auto.commit.interval.ms
        share.acknowledgement.mode share.acquire.mode""",
    ),
    (
        not_needed("batches are copied as they are, in the source's compression"),
        "compression.type compression.gzip.level compression.lz4.level compression.zstd.level",
    ),
    (
        not_needed("each record goes into the partition that it had"),
        """partitioner.class partitioner.ignore.keys partitioner.adaptive.partitioning.enable
        partitioner.availability.timeout.ms""",
    ),
    (
        not_needed("every record is copied exactly once, in order, and confirmed by all replicas in sync"),
        """acks enable.idempotence retries max.in.flight.requests.per.connection transactional.id
        transaction.timeout.ms transaction.two.phase.commit.enable delivery.timeout.ms""",
    ),
    (not_needed("records of open and aborted transactions are never copied"), "isolation.level"),
    (not_needed("checksums are always verified"), "check.crcs"),
    (not_needed("topics are only ever made by `create`"), "allow.auto.create.topics"),
    (not_needed("topics.internal says which are left out"), "exclude.internal.topics"),
    (_DESERIALIZED, "key.deserializer value.deserializer key.serializer value.serializer"),
    (
        _TUNING,
        """batch.size buffer.memory linger.ms max.block.ms max.request.size metadata.max.idle.ms fetch.max.bytes
        fetch.max.wait.ms fetch.min.bytes max.partition.fetch.bytes max.poll.records receive.buffer.bytes
        send.buffer.bytes default.api.timeout.ms retry.backoff.ms retry.backoff.max.ms
        socket.connection.setup.timeout.max.ms metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms""",
    ),
    (no_counterpart("leaders are asked, not replicas of the own rack"), "client.rack"),
    (no_counterpart("no code of others runs inside of the mirror"), "interceptor.classes"),
    (
        _METRICS,
        """metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms enable.metrics.push
        auto.include.jmx.reporter""",
    ),
    (no_counterpart("brokers are asked, not controllers"), "bootstrap.controllers"),
    (
        not_needed("tickets are acquired from the keytab, and again before they end"),
        """sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
        sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor""",
    ),
    (
        not_needed("a token is renewed after 80% of its life"),
        """sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
        sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
        sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms""",
    ),
    (
        no_counterpart("tokens come from sasl.oauthbearer.token.endpoint.url, for a client id and its secret"),
        """sasl.client.callback.handler.class sasl.login.class sasl.oauthbearer.assertion.algorithm
        sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
        sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
        sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
        sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
        sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
        sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.header.urlencode""",
    ),
    (
        not_needed("brokers verify tokens, clients do not"),
        """sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
        sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
        sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name""",
    ),
    (
        _CLIENT_TLS,
        """security.providers ssl.cipher.suites ssl.enabled.protocols ssl.engine.factory.class ssl.keymanager.algorithm
        ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm""",
    ),
)

#: Of the process: Connect's worker, and MirrorMaker's own.
WORKER: Mapping[str, Counterpart] = _table(
    (taken("a connection for each cluster of a flow"), "clusters"),
    (to_do("values like ${name:path:key} stand in no connection: write them in"), "config.providers"),
    (not_needed("every record is copied exactly once"), "exactly.once.source.support"),
    (
        _CONNECT,
        """dedicated.mode.enable.internal.rest access.control.allow.methods access.control.allow.origin admin.listeners
        config.storage.replication.factor config.storage.topic connect.protocol
        connector.client.config.override.policy inter.worker.key.generation.algorithm inter.worker.key.size
        inter.worker.key.ttl.ms inter.worker.signature.algorithm inter.worker.verification.algorithms listeners
        offset.flush.interval.ms offset.flush.timeout.ms offset.storage.partitions offset.storage.replication.factor
        offset.storage.topic plugin.discovery plugin.path rebalance.timeout.ms response.http.headers.config
        rest.advertised.host.name rest.advertised.listener rest.advertised.port rest.extension.classes
        scheduled.rebalance.max.delay.ms ssl.client.auth status.storage.partitions
        status.storage.replication.factor status.storage.topic task.shutdown.graceful.timeout.ms
        topic.creation.enable topic.tracking.allow.reset topic.tracking.enable worker.sync.timeout.ms
        worker.unsync.backoff.ms key.converter.plugin.version value.converter.plugin.version
        header.converter.plugin.version""",
    ),
)

#: Of MirrorMaker 2's command line, without its dashes.
SECOND: Mapping[str, Counterpart] = _table(
    (not_needed("the mirror runs where its Spark connection leads, best near the target"), "clusters"),
)

#: Of MirrorMaker 1's command line, without its dashes.
FIRST: Mapping[str, Counterpart] = _table(
    (taken("the source's connection"), "consumer.config"),
    (taken("the target's connection"), "producer.config"),
    (taken("topics.include"), "include whitelist"),
    (taken("mirror.num_streams"), "num.streams"),
    (_HANDLER, "message.handler message.handler.args"),
    (not_needed("a record that cannot be copied halts its partition alone"), "abort.on.send.failure"),
    (not_needed("positions are written with the records"), "offset.commit.interval.ms"),
    (
        not_needed("the mirror is no consumer group, so nothing is rebalanced"),
        "consumer.rebalance.listener rebalance.listener.args",
    ),
    (not_needed("there is only the new consumer"), "new.consumer"),
)


def of_client(name: str, value: str) -> Counterpart | None:
    """What stands for a client's option with this value; None if Kafka's clients know none of this name, or a
    connection takes it."""
    match name, value.strip().lower():
        case "isolation.level", "read_uncommitted":
            return no_counterpart("records of aborted transactions are never copied")
        case "exclude.internal.topics", "false":
            return no_counterpart("Kafka's own topics are never copied")
    return CLIENT.get(name)


def of_flow(name: str, value: str) -> Counterpart | None:
    """What stands for an option of a flow with this value; None if MirrorMaker 2 knows none of this name."""
    is_off = value.strip().lower() == "false"
    match name:
        case "replication.policy.class" if value.strip() == IDENTITY:
            return taken("naming: identity")
        case "replication.policy.class" if value.strip() == PREFIXED:
            return taken("naming.prefix: the alias of the source")
        case "replication.policy.class":
            return no_counterpart("topics keep their names, unless the plan's section naming calls them otherwise")
        case "replication.factor" if value.strip() == "-1":
            return not_needed("a topic has as many replicas as on the source (topic_defaults.replication_factor)")
        case "sync.topic.configs.enabled":
            if is_off:
                return no_counterpart("every config that the target takes is the source's; alter it after `restore`")
            return not_needed("`create` and `restore` take over configs")
        case "sync.topic.acls.enabled":
            if is_off:
                return not_needed("no ACL is made without `access PLAN --apply`")
            return no_counterpart("`access PLAN` shows which ACLs the target lacks, `access PLAN --apply` makes them")
        case "key.converter" | "value.converter" | "header.converter":
            if value.strip() == BYTES_CONVERTER:
                return _DESERIALIZED
            return no_counterpart("records are copied as bytes, and never converted")
        case "topic.filter.class" | "group.filter.class" | "config.property.filter.class":
            if value.strip() == _FILTERS[name]:
                return not_needed("the plan's patterns mean the same")
            return no_counterpart("no code of others chooses: write patterns into the plan")
        case "emit.checkpoints.enabled" if is_off:
            return taken("no groups")
        case "errors.tolerance" if value.strip().lower() == "all":
            return no_counterpart("nothing is skipped: a record that cannot be copied halts its partition")
    if name.startswith(("transforms.", "predicates.")):
        return FLOW[name.partition(".")[0]]
    if name.startswith(("topic.creation.", "key.converter.", "value.converter.", "header.converter.")):
        return FLOW.get(name) or WORKER.get(name) or _CONNECT
    return FLOW.get(name)

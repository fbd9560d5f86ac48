"""Fences: taking a link over so that nothing sent by an earlier attempt can land any more.

A fence is an aborted, empty transaction of the link's own transactional id over all its partitions: InitProducerId
(the next producer epoch), AddPartitionsToTxn, EndTxn(abort), and then *seeing the marker* in every partition.
EndTxn answers up to 97 ms before the markers are written, and requests of the earlier epoch have landed in between;
an epoch bump without a marker fences nothing (docs/mirror.md, rule 2). A marker takes one offset that no consumer sees.

Until the transaction is complete a coordinator may write its markers again: one that takes over from a dead one writes
all of them. So that is waited for, too, and the last of the markers counts.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain, repeat
from typing import Any

import kafka.errors as kafka_errors
from kafka.future import Future
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from kafka_migration.domain import codes
from kafka_migration.domain.errors import ClusterUnreachable, CouldNotFindOut, NotAuthorized, TakenOver, reason_of
from kafka_migration.domain.types import Identity, TopicPartition
from kafka_migration.wire.batch import BatchHeader, CorruptBatch, batches
from kafka_migration.wire.cluster import WireCluster, code_name
from kafka_migration.wire.fetch import fetch
from kafka_migration.wire.fetch_request import Fetched, FetchFrom
from kafka_migration.wire.suspects import Suspects

_NEEDED = {
    codes.CLUSTER_AUTHORIZATION_FAILED: ("IdempotentWrite", "cluster"),
    codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ("Write", "transactional id"),
}
"""Operation and resource that a coordinator's refusal is about."""
_CLIENT_TRANSACTIONS = 4
"""EndTxn v5 (KIP-890) bumps the epoch by itself; the link counts its own fences, so the version stops before it."""
_CLIENT_ADD_PARTITIONS = 3
_PARTITIONS_PER_REQUEST = 1000
_SCAN_BYTES = 4 * 1024 * 1024
_PAUSE_SECONDS = 0.05
UNREAD_SECONDS = 3.0
"""A leader that serves nothing of a log for so long is in trouble: markers that are durable can be read at once."""


class Forgotten(CouldNotFindOut):
    """The brokers know nothing of the transactional id any more, or by now another producer by it."""


async def take_identity(cluster: WireCluster, transactional_id: str, *, deadline: float) -> Identity:
    """InitProducerId: the link's producer id at its next epoch.

    Ends an unfinished transaction of an earlier author by the way. Where an answer is lost the epoch is raised twice,
    which harms nobody. Raises CouldNotFindOut at ``deadline``.
    """
    request = InitProducerIdRequest(max_version=4, transactional_id=transactional_id, transaction_timeout_ms=60_000)
    response = await _ask_coordinator(cluster, transactional_id, request, _error_code, deadline)
    return Identity(response.producer_id, response.producer_epoch)


async def write_markers(
    cluster: WireCluster,
    transactional_id: str,
    identity: Identity,
    partitions: list[TopicPartition],
    *,
    deadline: float,
) -> None:
    """Put ``partitions`` into a transaction of ``identity`` and abort it. The markers are *not yet* visible then.

    Raises TakenOver if a newer fence of this link began meanwhile.
    """
    for at in range(0, len(partitions), _PARTITIONS_PER_REQUEST):
        chunk = partitions[at : at + _PARTITIONS_PER_REQUEST]
        topics: dict[str, list[int]] = {}
        for tp in chunk:
            topics.setdefault(cluster.name_here(tp.topic), []).append(tp.partition)
        add = AddPartitionsToTxnRequest(
            max_version=_CLIENT_ADD_PARTITIONS,
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=parts)
                for name, parts in topics.items()
            ],
        )
        await _ask_coordinator(cluster, transactional_id, add, partial(_add_partitions_error, cluster), deadline)
    await _ask_coordinator(cluster, transactional_id, _abort(transactional_id, identity), _error_code, deadline)


async def await_completion(cluster: WireCluster, transactional_id: str, identity: Identity, *, deadline: float) -> None:
    """Until every marker of ``identity``'s aborted transaction is durable, and nobody will write one again.

    A second request to abort it gets CONCURRENT_TRANSACTIONS before that, and succeeds after it. Raises TakenOver
    if a newer fence of this link began meanwhile, CouldNotFindOut at ``deadline``.
    """

    def error_of(response: Any) -> int:
        code = _error_code(response)
        return 0 if code == codes.INVALID_TXN_STATE else code  # nothing is left to end

    await _ask_coordinator(cluster, transactional_id, _abort(transactional_id, identity), error_of, deadline)


def _abort(transactional_id: str, identity: Identity) -> EndTxnRequest:
    return EndTxnRequest(
        max_version=_CLIENT_TRANSACTIONS,
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        committed=False,
    )


async def await_markers(
    cluster: WireCluster,
    identity: Identity,
    scan_from: Mapping[TopicPartition, int],
    see: Callable[[TopicPartition, BatchHeader], bool],
    *,
    deadline: float,
    ends: Mapping[TopicPartition, int] | None = None,
    unread: dict[TopicPartition, str] | None = None,
) -> dict[TopicPartition, int]:
    """Read every partition from ``scan_from`` until the marker of ``identity`` is visible; its offsets.

    With ``ends`` each is read up to there at least: of several markers the last one counts. ``see`` is shown the header
    of every batch on the way, the marker included: the caller judges whether each is explained by the link. Once it
    answers False the partition is not read on, and has no marker in what is returned. Raises CouldNotFindOut at
    ``deadline``, NotAuthorized at once. A partition of which nothing could be read for some seconds, or whose topic
    breaks every connection, is not waited for where ``unread`` takes it, with why; it has no marker in what is returned
    either.
    """
    search = _Search(cluster, identity, scan_from, see, ends or {})
    while search.offsets:
        progressed = await search.read(deadline)
        if unread is not None:
            unread |= search.give_up_unread()
        if search.offsets and not progressed:
            if time.monotonic() > deadline:
                first = min(search.offsets)
                problem = f" ({search.problems[first]})" if first in search.problems else ""
                raise CouldNotFindOut(
                    f"target: {len(search.offsets)} partitions do not show the fence's marker, first {first}{problem}",
                    remedy="check that these partitions have a leader and enough in-sync replicas, then run this again",
                )
            await cluster.net.sleep(_PAUSE_SECONDS)
    return search.markers


class _Search:
    """The search for the marker of one fence in many partitions.

    ``offsets``: those that are still read, and from where on. ``markers``: what was found. ``problems``: why partitions
    could not be read, as far as is known.
    """

    def __init__(
        self,
        cluster: WireCluster,
        identity: Identity,
        scan_from: Mapping[TopicPartition, int],
        see: Callable[[TopicPartition, BatchHeader], bool],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        self._cluster, self._identity, self._see, self._ends = cluster, identity, see, ends
        self.offsets = dict(scan_from)
        self.markers: dict[TopicPartition, int] = {}
        self.problems: dict[TopicPartition, str] = {}
        self._read_at = dict.fromkeys(scan_from, time.monotonic())
        self._suspects: defaultdict[int, Suspects] = defaultdict(Suspects)

    async def read(self, deadline: float) -> bool:
        """Fetch once from all leaders; whether any partition was read further."""
        await self._find_leaders(deadline)
        progressed = [self._take(answer) for answers in await self._fetched() for answer in answers]
        return any(progressed)

    async def _find_leaders(self, deadline: float) -> None:
        cluster, timeout = self._cluster, min(30.0, max(1.0, deadline - time.monotonic()))
        errors = await cluster.refresh({tp.topic for tp in self.offsets}, timeout=timeout)
        for tp in self.offsets.keys() - cluster.leaders.keys():
            cluster.require_authorized("Describe", tp.topic, errors.get(tp.topic, 0))
            self.problems[tp] = code_name(errors[tp.topic]) if tp.topic in errors else "no leader"

    async def _fetched(self) -> list[list[Fetched]]:
        """What leaders answer within some seconds, all asked at once. Of the topics of a broker some are left out while
        it is looked for the one that breaks its connection."""
        asked: dict[int, list[TopicPartition]] = {}
        for node, led in self._cluster.by_leader(self.offsets).items():
            topics = self._suspects[node].next({tp.topic for tp in led})
            asked[node] = [tp for tp in led if tp.topic in topics]
        asks = {node: partial(self._fetch, of=group) for node, group in asked.items() if group}
        answers = await self._cluster.ask_each(asks)
        for node, answer in answers.items():
            await self._judge(node, asked[node], answer)
        return [answer.value for answer in answers.values() if answer.succeeded()]

    async def _fetch(self, node: int, of: list[TopicPartition]) -> list[Fetched]:
        # A response is filled in this order: who has waited longest comes first.
        wanted = [FetchFrom(tp, self.offsets[tp], _SCAN_BYTES) for tp in sorted(of, key=self._read_at.__getitem__)]
        return await fetch(self._cluster, node, wanted, max_wait_ms=50, max_bytes=4 * _SCAN_BYTES)

    async def _judge(self, node: int, group: list[TopicPartition], answer: Future) -> None:
        """Note why ``node`` did not answer for ``group``, if so, and which topics may be to blame."""
        suspects, topics, error = self._suspects[node], {tp.topic for tp in group}, answer.exception
        if answer.succeeded():
            suspects.answered(topics)
            return
        why = f"broker {node} does not answer"
        if error is not None:
            if not isinstance(error, kafka_errors.KafkaError):
                raise error
            why = reason_of(error)
            if await self._cluster.answers(node):
                suspects.failed(topics)
        self.problems.update(dict.fromkeys(group, why))

    def _take(self, answer: Fetched) -> bool:
        """Look at what was fetched of a partition; whether it was read further."""
        tp, progressed = answer.partition, False
        self._cluster.require_authorized("Read", tp.topic, answer.error)
        if answer.error:
            self.problems[tp] = code_name(answer.error)
        try:
            for header, _ in batches(answer.records):
                if header.next_offset <= self.offsets[tp]:
                    continue
                progressed = True
                if not self._pass(tp, header):
                    del self.offsets[tp]
                    break
        except CorruptBatch as error:
            # What stands behind it is read by nobody; the other partitions are none the worse for it.
            self.problems[tp] = f"a batch cannot be read: {error}"
            return False
        return progressed

    def _pass(self, tp: TopicPartition, header: BatchHeader) -> bool:
        """Go past one batch; whether the partition is read on behind it."""
        is_explained = self._see(tp, header)
        self.offsets[tp], self._read_at[tp] = header.next_offset, time.monotonic()
        if is_marker_of(header, self._identity):
            self.markers[tp] = header.base_offset
        if not is_explained:
            self.markers.pop(tp, None)
            return False
        return tp not in self.markers or header.next_offset < self._ends.get(tp, 0)

    def give_up_unread(self) -> dict[TopicPartition, str]:
        """Stop reading partitions of which nothing came for some seconds, or whose topic breaks connections; why."""
        guilty = {topic for suspects in self._suspects.values() for topic in suspects.guilty}
        # While others are read, what a response has no room for waits its turn.
        is_late = time.monotonic() - max(self._read_at.values()) > UNREAD_SECONDS
        given_up = [tp for tp in self.offsets if tp.topic in guilty or is_late]
        for tp in given_up:
            del self.offsets[tp]
        return {tp: self.problems.get(tp, "nothing comes") for tp in given_up}


def is_marker_of(header: BatchHeader, identity: Identity) -> bool:
    """True if ``header`` is the transaction marker that ``identity``'s fence wrote."""
    return (
        header.is_control
        and header.producer_id == identity.producer_id
        and header.producer_epoch == identity.producer_epoch
    )


def _error_code(response: Any) -> int:
    return int(response.error_code)


def _add_partitions_error(cluster: WireCluster, response: Any) -> int:
    errors = []
    for topic in response.results_by_topic_v3_and_below:
        errors += [part.partition_error_code for part in topic.results_by_partition]
        if codes.TOPIC_AUTHORIZATION_FAILED in errors:
            # None was added then, of no topic.
            raise NotAuthorized(cluster.role, "Write", f"topic {topic.name}", topic=cluster.known_as(topic.name))
    # OPERATION_NOT_ATTEMPTED only accompanies the error that counts.
    return next((code for code in errors if code not in (0, codes.OPERATION_NOT_ATTEMPTED)), 0)


async def _ask_coordinator(
    cluster: WireCluster, transactional_id: str, request: Any, error_of: Callable[[Any], int], deadline: float
) -> Any:
    """The answer of the transactional id's coordinator, which may move meanwhile: it is looked up again unless it has
    just answered.

    Only for requests that may be repeated. Raises TakenOver if a newer fence began, NotAuthorized, CouldNotFindOut.
    """
    what = f"transactional id {transactional_id}"
    find = FindCoordinatorRequest(max_version=3, key=transactional_id, key_type=1)
    # Markers are durable within milliseconds, or not for a while.
    pauses = chain((0.005, 0.01, 0.02), repeat(_PAUSE_SECONDS))
    while True:
        node = cluster.coordinators.pop(transactional_id, None)
        if node is None:
            found = await cluster.send_to_any(find, deadline=deadline)
            if found.error_code:
                await _pause_or_raise(cluster, found.error_code, what, deadline, next(pauses))
                continue
            node = int(found.node_id)
        try:
            if cluster.manager.cluster.broker_metadata(node) is None:
                await cluster.manager.cluster.refresh_metadata()
            response = await cluster.send(request, node)
        except kafka_errors.KafkaError as error:
            if time.monotonic() > deadline:
                raise ClusterUnreachable(cluster.role, cluster.servers, reason_of(error)) from error
            await cluster.net.sleep(0.1)
            continue
        code = error_of(response)
        if code == 0:
            cluster.coordinators[transactional_id] = node
            return response
        if code in codes.TAKEN_OVER:
            raise TakenOver(f"link {transactional_id}")
        await _pause_or_raise(cluster, code, what, deadline, next(pauses))


async def _pause_or_raise(cluster: WireCluster, code: int, what: str, deadline: float, pause: float) -> None:
    if code in _NEEDED:
        operation, resource = _NEEDED[code]
        raise NotAuthorized(cluster.role, operation, f"{resource} ({what})")
    if code not in codes.RETRYABLE_TRANSACTION or time.monotonic() > deadline:
        kind = Forgotten if code == codes.INVALID_PRODUCER_ID_MAPPING else CouldNotFindOut
        raise kind(
            f"{cluster.role}: {what}: {code_name(code)}",
            remedy="check the brokers' state, then run this again",
        )
    await cluster.net.sleep(pause)

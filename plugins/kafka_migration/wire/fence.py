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
from typing import Any

import kafka.errors as kafka_errors
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from kafka_migration.domain.errors import ClusterUnreachable, CouldNotFindOut, NotAuthorized, TakenOver
from kafka_migration.domain.types import Identity, TopicPartition
from kafka_migration.wire.batch import BatchHeader, batches
from kafka_migration.wire.cluster import UNAUTHORIZED, WireCluster, code_name
from kafka_migration.wire.fetch import fetch
from kafka_migration.wire.fetch_request import Fetched, FetchFrom
from kafka_migration.wire.suspects import Suspects

_FORGOTTEN = 49  # INVALID_PRODUCER_ID_MAPPING
_NOTHING_TO_END = 48  # INVALID_TXN_STATE
_RETRIED = frozenset({14, 15, 16, 51, 7, 3, 6, 9})  # coordinator moves and loads, concurrent transactions, new topics
TOPIC_UNAUTHORIZED = 29
_UNAUTHORIZED = {
    31: ("IdempotentWrite", "cluster"),
    53: ("Write", "transactional id"),
}
_FENCED = frozenset({47, 90})
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
            topics.setdefault(tp.topic, []).append(tp.partition)
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
        await _ask_coordinator(cluster, transactional_id, add, partial(_add_partitions_error, cluster.role), deadline)
    await _ask_coordinator(cluster, transactional_id, _abort(transactional_id, identity), _error_code, deadline)


async def await_completion(cluster: WireCluster, transactional_id: str, identity: Identity, *, deadline: float) -> None:
    """Until every marker of ``identity``'s aborted transaction is durable, and nobody will write one again.

    Whoever asks to abort it once more hears CONCURRENT_TRANSACTIONS before, and is told of success after that. Raises
    TakenOver if a newer fence of this link began meanwhile, CouldNotFindOut at ``deadline``.
    """

    def error_of(response: Any) -> int:
        code = _error_code(response)
        return 0 if code == _NOTHING_TO_END else code

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
    offsets, markers = dict(scan_from), dict[TopicPartition, int]()
    problems, read_at = dict[TopicPartition, str](), dict.fromkeys(scan_from, time.monotonic())
    suspects: defaultdict[int, Suspects] = defaultdict(Suspects)
    while offsets:
        progressed = False
        for answers in await _fetched(cluster, offsets, problems, suspects, deadline):
            for answer in answers:
                if answer.error in UNAUTHORIZED:
                    raise NotAuthorized(cluster.role, "Read", f"topic {answer.partition.topic}")
                if answer.error:
                    problems[answer.partition] = code_name(answer.error)
                for header, _ in batches(answer.records):
                    if header.next_offset <= offsets[answer.partition]:
                        continue
                    go_on = see(answer.partition, header)
                    offsets[answer.partition] = header.next_offset
                    progressed, read_at[answer.partition] = True, time.monotonic()
                    if is_marker_of(header, identity):
                        markers[answer.partition] = header.base_offset
                    is_read = header.next_offset >= (ends or {}).get(answer.partition, 0)
                    if not go_on:
                        markers.pop(answer.partition, None)
                    if not go_on or (is_read and answer.partition in markers):
                        del offsets[answer.partition]
                        break
        if unread is not None:
            guilty = {topic for found in suspects.values() for topic in found.guilty}
            late = time.monotonic() - UNREAD_SECONDS
            for tp in [tp for tp in offsets if tp.topic in guilty or read_at[tp] < late]:
                unread[tp] = problems.get(tp, "nothing comes")
                del offsets[tp]
        if offsets and not progressed:
            if time.monotonic() > deadline:
                first = min(offsets)
                problem = f" ({problems[first]})" if first in problems else ""
                raise CouldNotFindOut(
                    f"target: {len(offsets)} partitions do not show the fence's marker, first {first}{problem}",
                    remedy="check that these partitions have a leader and enough in-sync replicas, then run this again",
                )
            await cluster.net.sleep(_PAUSE_SECONDS)
    return markers


async def _fetched(
    cluster: WireCluster,
    offsets: Mapping[TopicPartition, int],
    problems: dict[TopicPartition, str],
    suspects: Mapping[int, Suspects],
    deadline: float,
) -> list[list[Fetched]]:
    """What the leaders of ``offsets`` answer within some seconds, all asked at once; why others do not goes to
    ``problems``. Of the topics of a broker some are left out while it is looked for the one that breaks its
    connection."""
    timeout = min(30.0, max(1.0, deadline - time.monotonic()))
    codes = await cluster.refresh({tp.topic for tp in offsets}, timeout=timeout)
    for tp in offsets.keys() - cluster.leaders.keys():
        if codes.get(tp.topic) in UNAUTHORIZED:
            raise NotAuthorized(cluster.role, "Describe", f"topic {tp.topic}")
        problems[tp] = code_name(codes[tp.topic]) if tp.topic in codes else "no leader"
    asked: dict[int, list[TopicPartition]] = {}
    for node, led in cluster.by_leader(offsets).items():
        topics = suspects[node].next({tp.topic for tp in led})
        asked[node] = [tp for tp in led if tp.topic in topics]
    under_way = {
        node: cluster.net.call_soon_with_future(
            lambda at=node, of=group: fetch(
                cluster,
                at,
                [FetchFrom(tp, offsets[tp], _SCAN_BYTES) for tp in of],
                max_wait_ms=50,
                max_bytes=4 * _SCAN_BYTES,
            )
        )
        for node, group in asked.items()
        if group
    }
    await cluster.answered(under_way.values())
    for node, it in under_way.items():
        if it.is_done and it.failed() and not isinstance(it.exception, kafka_errors.KafkaError):
            raise it.exception
        topics = {tp.topic for tp in asked[node]}
        if it.is_done and it.succeeded():
            suspects[node].answered(topics)
            continue
        if it.is_done and await cluster.answers(node):
            suspects[node].failed(topics)
        error = it.exception if it.is_done else None
        why = f"broker {node} does not answer" if error is None else str(error) or type(error).__name__
        problems.update(dict.fromkeys(asked[node], why))
    return [it.value for it in under_way.values() if it.is_done and it.succeeded()]


def is_marker_of(header: BatchHeader, identity: Identity) -> bool:
    """True if ``header`` is the transaction marker that ``identity``'s fence wrote."""
    return (
        header.is_control
        and header.producer_id == identity.producer_id
        and header.producer_epoch == identity.producer_epoch
    )


def _error_code(response: Any) -> int:
    return int(response.error_code)


def _add_partitions_error(role: str, response: Any) -> int:
    codes = []
    for topic in response.results_by_topic_v3_and_below:
        codes += [part.partition_error_code for part in topic.results_by_partition]
        if TOPIC_UNAUTHORIZED in codes:
            # None was added then, of no topic.
            raise NotAuthorized(role, "Write", f"topic {topic.name}")
    # 55 (OPERATION_NOT_ATTEMPTED) only accompanies the error that counts.
    return next((code for code in codes if code not in (0, 55)), 0)


async def _ask_coordinator(
    cluster: WireCluster, transactional_id: str, request: Any, error_of: Callable[[Any], int], deadline: float
) -> Any:
    """The answer of the transactional id's coordinator, which may move meanwhile: it is looked up again unless it has
    just answered.

    Only for requests that may be repeated. Raises TakenOver if a newer fence began, NotAuthorized, CouldNotFindOut.
    """
    what = f"transactional id {transactional_id}"
    find = FindCoordinatorRequest(max_version=3, key=transactional_id, key_type=1)
    while True:
        node = cluster.coordinators.pop(transactional_id, None)
        if node is None:
            found = await cluster.send_to_any(find, deadline=deadline)
            if found.error_code:
                await _pause_or_raise(cluster, found.error_code, what, deadline)
                continue
            node = int(found.node_id)
        try:
            if cluster.manager.cluster.broker_metadata(node) is None:
                await cluster.manager.cluster.refresh_metadata()
            response = await cluster.send(request, node)
        except kafka_errors.KafkaError as error:
            if time.monotonic() > deadline:
                raise ClusterUnreachable(cluster.role, cluster.servers, str(error) or type(error).__name__) from error
            await cluster.net.sleep(0.1)
            continue
        code = error_of(response)
        if code == 0:
            cluster.coordinators[transactional_id] = node
            return response
        if code in _FENCED:
            raise TakenOver(f"link {transactional_id}")
        await _pause_or_raise(cluster, code, what, deadline)


async def _pause_or_raise(cluster: WireCluster, code: int, what: str, deadline: float) -> None:
    if code in _UNAUTHORIZED:
        operation, resource = _UNAUTHORIZED[code]
        raise NotAuthorized(cluster.role, operation, f"{resource} ({what})")
    if code not in _RETRIED or time.monotonic() > deadline:
        kind = Forgotten if code == _FORGOTTEN else CouldNotFindOut
        raise kind(
            f"{cluster.role}: {what}: {code_name(code)}",
            remedy="check the brokers' state, then run this again",
        )
    await cluster.net.sleep(0.05)

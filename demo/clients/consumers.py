"""A member process of a consumer group: notes what it reads, commits; on SIGTERM it commits and leaves.

    python -m demo.clients.consumers RUN_DIRECTORY GROUP source|target MEMBER BEGUN_NS

To process a record is to note it (docs/checker.md). When a member is stopped, or gives up a partition, nothing that it
noted stays uncommitted, so that whoever goes on neither skips nor repeats.

BEGUN_NS is when whoever starts this process started it, on the machine's monotonic clock: an interpreter that is not
there yet cannot look at it.
"""

import sys
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from checker.recorder import Recorder, clock_name
from demo.clients.groups import GroupSpec
from demo.clients.records import RecordError, id_reader, position
from demo.clients.scenarios import BY_GROUP, BY_TOPIC
from demo.clients.settings import ClusterName, Settings, cluster_name
from demo.clients.termination import Termination
from demo.notes import RunDirectory, status_path, write_json

POLL_SECONDS = 0.1
STATUS_SECONDS = 0.5
COMMIT_DEADLINE_SECONDS = 20.0
COMMIT_PAUSE_SECONDS = 0.1

_WAIT_AND_RETRY = frozenset(
    {
        KafkaError.REBALANCE_IN_PROGRESS,
        # The epoch changed between reading it and committing: librdkafka learns the new one by itself (KIP-848).
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
    }
)


def client_properties(settings: Settings, group: GroupSpec, cluster: ClusterName, member: str) -> dict[str, object]:
    """librdkafka properties of a member."""
    properties: dict[str, object] = {
        **settings.cluster(cluster),
        "client.id": f"{group.name}-{member}",
        "group.id": group.name,
        "group.protocol": group.protocol,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # A missing or impossible committed offset must be seen, not papered over.
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        # Prefetch is bounded: a group far behind would otherwise hold 64 MiB of records that it drops when stopped.
        "queued.min.messages": 10_000,
        "queued.max.messages.kbytes": 16_384,
    }
    if group.protocol == "classic":
        properties["partition.assignment.strategy"] = group.assignor
        properties["session.timeout.ms"] = 45_000
    return properties


class Member:
    """One member of a group on one cluster."""

    def __init__(
        self, run: RunDirectory, group: GroupSpec, cluster: ClusterName, member: str, stop: Termination, begun_ns: int
    ) -> None:
        settings = run.settings()
        self._group = group
        self._name = member
        self._stop = stop
        self._path = run.member_notes(group.name, cluster, member)
        self._notes = Recorder(
            self._path,
            client=f"{group.name} {member} on {cluster}",
            cluster=cluster,
            group=group.name,
            started=begun_ns,
            # How long a group stood that its operator had stopped says nothing: on another clock nobody measures it.
            clock=f"{clock_name()}, {cluster}" if group.stopped else None,
        )
        self._consumer = Consumer(client_properties(settings, group, cluster, member))
        self._read_id = {topic: id_reader(BY_TOPIC[topic]) for topic in group.topics}
        slow = group.slow and cluster == "source"
        self._per_second = settings.behind_per_second if slow else settings.target_per_second
        self._commit_interval_seconds = settings.commit_interval_seconds
        self._processed = 0
        self._assigned: set[tuple[str, int]] = set()
        self._at_end: set[tuple[str, int]] = set()
        self._uncommitted: dict[tuple[str, int], int] = {}
        self._next_status = 0.0

    def run(self) -> None:
        """Process until stopped, then commit and leave the group.

        Raises:
            KafkaException: a commit or a read failed for good; what was noted is on disk.
        """
        self._consumer.subscribe(
            list(self._group.topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        error: Exception | None = None
        try:
            self._process_until_stopped()
            self._notes.stop(mono=self._stop.asked_ns)
            self._commit_all_of(set(self._uncommitted))
        except (KafkaException, RecordError) as failure:
            error = failure
            raise
        finally:
            self._consumer.close()
            self._notes.close()
            self._log(has_ended=True, error=error)

    def _process_until_stopped(self) -> None:
        started = next_commit = time.monotonic()
        while not self._stop.asked:
            message = self._consumer.poll(POLL_SECONDS)
            now = time.monotonic()
            if message is not None:
                error = message.error()
                if error is None:
                    self._process(message)
                    self._keep_pace(now - started)
                else:
                    self._on_error(error, message)
            if now >= next_commit:
                next_commit = now + self._commit_interval_seconds
                self._commit_once(set(self._uncommitted))
            if now >= self._next_status:
                self._next_status = now + STATUS_SECONDS
                self._log()

    def _process(self, message: Message) -> None:
        topic, partition, offset = position(message)
        key = message.key()
        record_id = self._read_id[topic](message)
        self._notes.receipt(topic, partition, offset, record_id, key=None if key is None else bytes(key).decode())
        self._uncommitted[topic, partition] = offset + 1
        self._processed += 1
        if self._at_end:
            self._at_end.discard((topic, partition))

    def _keep_pace(self, elapsed_seconds: float) -> None:
        ahead = self._processed / self._per_second - elapsed_seconds
        if ahead > 0.001:
            time.sleep(min(ahead, POLL_SECONDS))

    def _on_error(self, error: KafkaError, message: Message) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            topic, partition, _ = position(message)
            self._at_end.add((topic, partition))
        elif not error.retriable() and error.code() not in _WAIT_AND_RETRY:
            raise KafkaException(error)

    # --- commits: only of what is noted --------------------------------------------------------------------------

    def _commit_once(self, places: set[tuple[str, int]]) -> bool:
        """Commit what was noted of some partitions; False if the group is busy and the commit must be tried again."""
        offsets = [
            TopicPartition(*place, self._uncommitted[place], metadata=f"noted by {self._name}") for place in places
        ]
        if not offsets:
            return True
        commit = self._notes.commit([(*place, self._uncommitted[place]) for place in places])
        try:
            results = self._consumer.commit(offsets=offsets, asynchronous=False)
            for result in results or ():
                if result.error is not None:
                    raise KafkaException(result.error)
        except KafkaException as failure:
            error = failure.args[0]
            self._notes.committed(commit, "unknown")
            if error.retriable() or error.code() in _WAIT_AND_RETRY:
                print(f"commit will be tried again: {error}", file=sys.stderr, flush=True)
                return False
            raise
        self._notes.committed(commit, "ok")
        for place in places:
            del self._uncommitted[place]
        return True

    def _commit_all_of(self, places: set[tuple[str, int]]) -> None:
        deadline = time.monotonic() + COMMIT_DEADLINE_SECONDS
        places &= self._uncommitted.keys()
        while not self._commit_once(places):
            if time.monotonic() > deadline:
                waited = f"no commit within {COMMIT_DEADLINE_SECONDS} s for {sorted(places)}"
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, waited))
            time.sleep(COMMIT_PAUSE_SECONDS)

    # --- rebalances, called from poll() and close() ------------------------------------------------------------------

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._assigned |= _places(partitions)
        if partitions:
            self._notes.assign([(*place, None) for place in _places(partitions)])

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        # The partition's next owner starts from the commit: it must hold everything noted here.
        self._commit_all_of(_places(partitions))
        self._forget(partitions)

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        # Somebody else owns them already, so a commit would be refused; what stays uncommitted is processed twice.
        print(f"lost {sorted(_places(partitions))}: this member was taken for dead", file=sys.stderr, flush=True)
        self._forget(partitions)

    def _forget(self, partitions: list[TopicPartition]) -> None:
        gone = _places(partitions)
        self._notes.revoke(gone)
        self._assigned -= gone
        self._at_end -= gone
        for place in gone:
            self._uncommitted.pop(place, None)

    def _log(self, *, has_ended: bool = False, error: Exception | None = None) -> None:
        write_json(
            status_path(self._path),
            {
                "processed": self._processed,
                "assigned": len(self._assigned),
                "at_end": len(self._at_end),
                "ended": has_ended,
                "error": None if error is None else str(error),
            },
        )


def main(arguments: list[str]) -> int:
    """Run one member; 1 when it failed."""
    directory, group, cluster, name, begun_ns = arguments
    stop = Termination().install()
    member = Member(
        RunDirectory(Path(directory)), BY_GROUP[group], cluster_name(cluster), name, stop, begun_ns=int(begun_ns)
    )
    try:
        member.run()
    except (KafkaException, RecordError) as error:
        print(f"{group} {name} on {cluster}: {error}", file=sys.stderr)
        return 1
    return 0


def _places(partitions: list[TopicPartition]) -> set[tuple[str, int]]:
    return {(partition.topic, partition.partition) for partition in partitions}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

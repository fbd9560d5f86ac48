"""Reading notes by the million: files become arrays of numbers, not objects."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from demo.errors import DemoError
from demo.notes import COLUMNS, NOT_ACKNOWLEDGED, RunDirectory, producer_statuses

Numbers = npt.NDArray[np.int64]

BLOCK_BYTES = 16 * 1024 * 1024
_TYPES = dict(
    zip(
        COLUMNS,
        (pa.string(), pa.dictionary(pa.int32(), pa.string()), pa.int64(), pa.int64(), pa.int64()),
        strict=True,
    )
)


class AccountingError(DemoError):
    """The notes are incomplete or contradict themselves: nothing can be counted."""


class Partitions:
    """Numbers all partitions of a run from 0, so that arrays can hold them. Called places."""

    def __init__(self, log_starts: Mapping[str, list[int]]) -> None:
        self._first: dict[str, int] = {}
        self._count: dict[str, int] = {}
        total = 0
        for topic, starts in log_starts.items():
            self._first[topic], self._count[topic] = total, len(starts)
            total += len(starts)
        self.total = total

    def first(self, topic: str) -> int:
        """The place of a topic's partition 0."""
        return self._first[topic]

    def places(self, topics: pa.DictionaryArray, partitions: Numbers, source: Path) -> Numbers:
        """The place of each note.

        Raises:
            AccountingError: a partition that the run does not have.
        """
        names = topics.dictionary.to_pylist()
        unknown = [name for name in names if name not in self._first]
        if unknown:
            raise AccountingError(f"{source} notes topics that the run has not: {unknown}.")
        codes: Numbers = topics.indices.to_numpy(zero_copy_only=False)
        counts = np.array([self._count[name] for name in names], dtype=np.int64)
        if ((partitions < 0) | (partitions >= counts[codes])).any():
            raise AccountingError(f"{source} notes partitions that its topics have not.")
        first = np.array([self._first[name] for name in names], dtype=np.int64)
        places: Numbers = first[codes] + partitions
        return places


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """A part of one file: arrays of one length, an item a line.

    Attributes:
        record: the record's index in `ProducedRecords`.
        place: the partition, as `Partitions` numbers it.
        offset: the record's offset on the cluster that the client talked to.
        noted_ns: nanoseconds on the machine's monotonic clock.
    """

    record: Numbers
    place: Numbers
    offset: Numbers
    noted_ns: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The records that producers sent: `<producer>-<n>` has index `first[producer] + n`."""

    first: Mapping[str, int]
    sent: Mapping[str, int]

    @property
    def total(self) -> int:
        """How many."""
        return sum(self.sent.values())

    def indexes(self, ids: pa.StringArray, source: Path) -> Numbers:
        """The index of each id.

        Raises:
            AccountingError: an id that no producer gave.
        """
        parts = pc.split_pattern(ids, "-", max_splits=1, reverse=True)
        flat = parts.flatten()
        if len(flat) != 2 * len(ids):
            raise AccountingError(f"{source} holds ids that are not <producer>-<n>.")
        names = pc.dictionary_encode(flat.take(pa.array(np.arange(0, len(flat), 2))))
        try:
            numbers: Numbers = (
                flat.take(pa.array(np.arange(1, len(flat), 2))).cast(pa.int64()).to_numpy(zero_copy_only=False)
            )
        except pa.ArrowInvalid as error:
            raise AccountingError(f"{source} holds ids that are not <producer>-<n>: {error}") from error
        codes: Numbers = names.indices.to_numpy(zero_copy_only=False)
        known = names.dictionary.to_pylist()
        first = np.array([self.first.get(name, 0) for name in known], dtype=np.int64)
        sent = np.array([self.sent.get(name, 0) for name in known], dtype=np.int64)
        foreign = (numbers < 0) | (numbers >= sent[codes])
        if foreign.any():
            example = ids[int(np.flatnonzero(foreign)[0])]
            raise AccountingError(f"{source} notes {int(foreign.sum())} records that no producer sent, as {example}.")
        indexes: Numbers = first[codes] + numbers
        return indexes


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """What became of each record that producers sent; arrays by record index.

    Attributes:
        place: the partition it was sent to.
        offset: its offset on the source, or NOT_ACKNOWLEDGED.
        noted_ns: when its delivery report came; nanoseconds on the monotonic clock.
    """

    records: Records
    partitions: Partitions
    place: Numbers
    offset: Numbers
    noted_ns: Numbers

    @property
    def acknowledged(self) -> npt.NDArray[np.bool_]:
        """Which records the source took."""
        taken: npt.NDArray[np.bool_] = self.offset != NOT_ACKNOWLEDGED
        return taken


def read_produced(run: RunDirectory) -> Produced:
    """Read all producers' notes.

    Raises:
        AccountingError: a producer has not ended in order, or notes are missing, double, or contradictory.
    """
    sent: dict[str, int] = {}
    for producer, status in producer_statuses(run):
        if not status.get("ended"):
            raise AccountingError(f"{producer} has not said that its notes are complete; stop it with SIGTERM first.")
        sent[producer] = int(status["sent"])
    first = dict(zip(sent, np.cumsum([0, *sent.values()]).tolist(), strict=False))
    records = Records(first=first, sent=sent)
    partitions = Partitions(run.obligations().log_starts)
    place = np.zeros(records.total, dtype=np.int64)
    offset = np.full(records.total, NOT_ACKNOWLEDGED, dtype=np.int64)
    noted_ns = np.zeros(records.total, dtype=np.int64)
    times = np.zeros(records.total, dtype=np.int64)
    for producer in sent:
        for notes in read_notes(run.producer_notes(producer), records, partitions):
            np.add.at(times, notes.record, 1)
            place[notes.record] = notes.place
            offset[notes.record] = notes.offset
            noted_ns[notes.record] = notes.noted_ns
    if (times != 1).any():
        raise AccountingError(f"producers noted {int((times != 1).sum())} of their records not at all or twice.")
    produced = Produced(records=records, partitions=partitions, place=place, offset=offset, noted_ns=noted_ns)
    here = ordered_keys(place, offset)[produced.acknowledged]
    if len(np.unique(here)) != len(here):
        raise AccountingError("two records were acknowledged at the same offset of the same partition.")
    return produced


def read_notes(path: Path, records: Records, partitions: Partitions) -> Iterator[Notes]:
    """Read one file in parts of some hundred thousand lines.

    Raises:
        AccountingError: the file ends within a line, or names what the run does not have.
    """
    if path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        file.seek(-1, 2)
        if file.read(1) != b"\n":
            raise AccountingError(f"{path} ends within a line: its client was killed while noting. Run again.")
    with csv.open_csv(
        path,
        read_options=csv.ReadOptions(column_names=list(COLUMNS), block_size=BLOCK_BYTES),
        parse_options=csv.ParseOptions(delimiter="\t", quote_char=False),
        convert_options=csv.ConvertOptions(column_types=_TYPES),
    ) as reader:
        for batch in reader:
            numbers = [batch.column(name).to_numpy(zero_copy_only=False) for name in COLUMNS[2:]]
            yield Notes(
                record=records.indexes(batch.column("id"), path),
                place=partitions.places(batch.column("topic"), numbers[0], path),
                offset=numbers[1],
                noted_ns=numbers[2],
            )


def ordered_keys(place: Numbers, offset: Numbers) -> Numbers:
    """Numbers that sort by place, then by offset (below 2^44)."""
    return (place << 44) | offset

"""Translation over several links, beside a model that knows no maps: two logs of records, with gaps in both."""

import random
from dataclasses import dataclass, field

import pytest

from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import StateConflict
from kafka_migration.domain.generations import Generation, Generations
from kafka_migration.domain.offset_map import NotMirroredYet, OffsetMap, Run

FORWARD, REVERSE = Direction.FORWARD, Direction.REVERSE


@dataclass
class Logs:
    """Two logs as lists: a record by its name, None where no record stands. ``maps`` is what the links wrote down."""

    chance: random.Random
    source: list[int | None] = field(default_factory=list)
    target: list[int | None] = field(default_factory=list)
    maps: list[Generation] = field(default_factory=list)
    names: int = 0
    begin: int = 0

    def log(self, cluster: str) -> list[int | None]:
        return self.source if cluster == "source" else self.target

    def gap(self, cluster: str, most: int, least: int = 0) -> None:
        self.log(cluster).extend([None] * self.chance.randint(least, most))

    def write(self, cluster: str) -> None:
        """Clients of a cluster: records, control records, and what compaction has taken away since."""
        for _ in range(self.chance.randint(0, 6)):
            self.gap(cluster, 2)
            for _ in range(self.chance.randint(0, 4)):
                self.log(cluster).append(self.names)
                self.names += 1

    def copy(self, direction: Direction, *, drained: bool) -> None:
        """One link from its beginning to its seal, or to somewhere before the end: rounds, each behind a fence."""
        origin, destination = self.log(direction.origin), self.log(direction.destination)
        at, end, runs = self.begin, len(destination), list[Run]()
        rounds = self.chance.randint(drained, 3)
        for part in range(rounds):
            self.gap(direction.destination, 2, least=1)
            end = len(destination)
            upto = len(origin) if drained and part == rounds - 1 else self.chance.randint(at, len(origin))
            for offset in range(at, upto):
                if (name := origin[offset]) is not None:
                    runs.append(Run(offset, len(destination), 1))
                    destination.append(name)
                    end = len(destination)
            at = upto
        self.maps.append(Generation(direction=direction, offsets=OffsetMap(runs, source_end=at, target_end=end)))
        if drained:
            self.gap(direction.destination, 3, least=1)
            # The next link reads from behind the seal.
            self.begin = len(destination)


def history(seed: int, links: int) -> tuple[Logs, Generations]:
    logs = Logs(random.Random(seed))
    for number in range(links):
        direction = REVERSE if number % 2 else FORWARD
        logs.write(direction.origin)
        logs.copy(direction, drained=number < links - 1)
    return logs, Generations(logs.maps)


@pytest.mark.parametrize("links", [1, 2, 3, 4, 5])
def test_every_offset_of_either_side_goes_on_at_the_very_same_record(links: int) -> None:
    seen = {"record": 0, "gap": 0, "end": 0, "pending": 0}
    for seed in range(120):
        logs, maps = history(seed, links)
        for direction, translate, end in (
            (FORWARD, maps.to_target, maps.source_end),
            (REVERSE, maps.to_source, maps.target_end),
        ):
            here, there = logs.log(direction.origin), logs.log(direction.destination)
            place = {name: offset for offset, name in enumerate(there) if name is not None}
            for offset in range(len(here) + 2):
                at = (seed, direction, offset)
                following = next((name for name in here[offset:] if name is not None), None)
                if following in place:
                    assert translate(offset) == place[following], at
                    seen["record" if here[offset] is not None else "gap"] += 1
                elif offset <= end:
                    # What comes next stands on one side alone so far: exactly what stands on both lies before it.
                    found, known = translate(offset), set(here)
                    assert all(name in known for name in there[:found] if name is not None), at
                    assert not any(name in known for name in there[found:] if name is not None), at
                    seen["end"] += 1
                else:
                    with pytest.raises(NotMirroredYet, match=f"{direction.origin} offset {offset} lies beyond"):
                        translate(offset)
                    seen["pending"] += 1
    assert all(count > 50 for count in seen.values()), seen


def test_offsets_of_earlier_generations_stay_where_they_were() -> None:
    for seed in range(60):
        logs, maps = history(seed, 4)
        for links in (1, 2, 3):
            before = Generations(logs.maps[:links])
            first = logs.maps[links - 1]
            for offset in range(first.end("target")):
                if (found := before.to_source(offset)) < before.source_end:
                    assert maps.to_source(offset) == found, (seed, links, offset)


def test_runs_are_the_places_of_every_copied_record_in_order() -> None:
    for seed in range(60):
        for links in (1, 2, 3, 4):
            logs, maps = history(seed, links)
            places = [(run.source + n, run.target + n) for run in maps.runs() for n in range(run.length)]
            at_source, at_target = (
                {name: offset for offset, name in enumerate(log) if name is not None}
                for log in (logs.source, logs.target)
            )
            both = sorted((at_source[name], at_target[name]) for name in at_source.keys() & at_target.keys())
            assert places == both, (seed, links)


def _generation(direction: Direction, runs: list[Run], source_end: int, target_end: int) -> Generation:
    return Generation(direction=direction, offsets=OffsetMap(runs, source_end=source_end, target_end=target_end))


def test_at_the_cut_and_on_its_marker_the_first_record_behind_it_follows() -> None:
    forward = _generation(FORWARD, [Run(10, 1, 5)], 20, 6)  # the seal's marker is at target offset 6
    armed = Generations([forward, _generation(REVERSE, [], 7, 20)])
    assert [armed.to_source(offset) for offset in (5, 6, 7)] == [14, 20, 20]
    with pytest.raises(NotMirroredYet):
        armed.to_source(8)
    back = Generations([forward, _generation(REVERSE, [Run(7, 21, 3)], 10, 24)])  # its fence is at source offset 20
    assert [back.to_source(offset) for offset in (0, 1, 5, 6, 7, 8, 10)] == [10, 10, 14, 21, 21, 22, 24]
    assert [back.to_target(offset) for offset in (9, 14, 15, 20, 21, 24)] == [1, 5, 7, 7, 7, 10]
    # Without the reverse link nothing is known of what follows the forward link's position.
    with pytest.raises(NotMirroredYet):
        Generations([forward]).to_source(7)


@pytest.mark.parametrize("run", [Run(7, 19, 1), Run(5, 21, 1)], ids=["on the source", "on the target"])
def test_maps_that_overlap_are_refused(run: Run) -> None:
    forward = _generation(FORWARD, [Run(10, 1, 5)], 20, 6)
    with pytest.raises(StateConflict, match="a link begins at"):
        Generations([forward, _generation(REVERSE, [run], 30, 30)])

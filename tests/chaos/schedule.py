"""What is done to the mirror in which round: by the seed alone, so that a seed that was printed replays it."""

import random
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass

SIDES = ("source", "target")
#: Kinds that take a while: a process starts anew, or is waited for.
HEAVY = (
    "kill_driver",
    "kill_jvm",
    "kill_source_broker",
    "kill_target_broker",
    "freeze_driver",
    "freeze_worker",
    "freeze_mirror",
    "freeze_long",
    "rivals",
    "rolling_restart",
)
#: Those of them that take more than a minute: so seldom that they lengthen a run by a tenth at most.
SELDOM = ("freeze_long",)
#: Kinds that are over in seconds.
LIGHT = (
    "kill_worker",
    "cut_request",
    "cut_response",
    "slow_network",
    "leader_moves",
    "quota",
    "revoke_topic",
    "sever_topic",
    "wrong_answers",
    "long_quota",
)
#: They concern one topic, or one broker: what they do not concern is measured meanwhile.
NARROW = frozenset({"revoke_topic", "sever_topic", "wrong_answers"})
KINDS = (*HEAVY, *LIGHT)
#: They need three brokers, and replicas on each.
OF_BROKERS = frozenset({"kill_source_broker", "kill_target_broker", "rolling_restart", "leader_moves", "wrong_answers"})
#: Others may fall while these last.
LASTING = frozenset({"slow_network", "quota", "kill_source_broker", "kill_target_broker"})
_SELDOM_EVERY = 12
_OF_BOTH_SIDES = frozenset(
    {"rolling_restart", "leader_moves", "cut_request", "cut_response", "slow_network", "sever_topic", "wrong_answers"}
)


@dataclass(frozen=True)
class Fault:
    """One thing to be done, `after` so many seconds of progress. `seed` chooses the victim among those there are then.

    `side` is a cluster's, or empty; `overlaps`: the next one does not wait until this one is over.
    """

    kind: str
    side: str
    after: float
    seed: int
    overlaps: bool = False

    def __str__(self) -> str:
        return f"{self.kind}{f' ({self.side})' if self.side else ''}{' …' if self.overlaps else ''}"


@dataclass(frozen=True)
class Round:
    """One round: its number from 1 on, the seed of its workload, replicas of its topics, and its faults in order."""

    number: int
    seed: int
    replicas: int
    faults: tuple[Fault, ...]

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


class _Deck:
    """Deals kinds in random order, each as often as the others, however many are dealt."""

    def __init__(self, kinds: Sequence[str], chance: random.Random) -> None:
        self._kinds, self._chance, self._left = list(kinds), chance, list[str]()

    def deal(self, count: int) -> list[str]:
        """So many kinds, none twice (fewer, if there are fewer)."""
        dealt: list[str] = []
        put_back: list[str] = []
        while len(dealt) < min(count, len(self._kinds)):
            if not self._left:
                self._left = self._chance.sample(self._kinds, len(self._kinds))
            kind = self._left.pop()
            (put_back if kind in dealt else dealt).append(kind)
        self._left.extend(put_back)
        return dealt


class _Sides:
    """Each kind falls on either side in turn, beginning with a random one."""

    def __init__(self, chance: random.Random) -> None:
        self._next = {kind: chance.randrange(2) for kind in KINDS}

    def of(self, kind: str) -> str:
        if kind in ("kill_source_broker", "kill_target_broker"):
            return kind.split("_")[1]
        if kind in ("quota", "long_quota", "revoke_topic"):
            return "target"
        if kind not in _OF_BOTH_SIDES:
            return ""
        self._next[kind] += 1
        return SIDES[self._next[kind] % 2]


def rounds(
    seed: int, count: int, *, kinds: Collection[str] = KINDS, brokers: int = 3, heavy: int = 1, light: int = 2
) -> Sequence[Round]:
    """The schedule of a run: `heavy` and `light` kinds a round out of `kinds`; in every twelfth round one of the heavy
    ones is of those that are `SELDOM`. With fewer than three brokers a side those that need three are left out. Raises
    ValueError for an unknown kind, or if none is left."""
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        raise ValueError(f"unknown faults: {', '.join(unknown)}; there are {', '.join(KINDS)}")
    possible = [kind for kind in KINDS if kind in kinds and (brokers >= 3 or kind not in OF_BROKERS)]
    if not possible:
        raise ValueError(f"none of {', '.join(kinds)} is possible with {brokers} brokers a side")
    chance = random.Random(seed)
    sides = _Sides(chance)
    often = [kind for kind in HEAVY if kind in possible and kind not in SELDOM]
    seldom = [kind for kind in SELDOM if kind in possible]
    of_heavy, of_seldom = _Deck(often, chance), _Deck(seldom, chance)
    of_light = _Deck([kind for kind in LIGHT if kind in possible], chance)
    turn = chance.randrange(_SELDOM_EVERY)
    found = []
    for number in range(1, count + 1):
        rare = of_seldom.deal(1 if heavy and (number % _SELDOM_EVERY == turn or not often) else 0)
        dealt = [*rare, *of_heavy.deal(heavy - len(rare)), *of_light.deal(light)]
        chance.shuffle(dealt)
        faults = tuple(
            Fault(
                kind=kind,
                side=sides.of(kind),
                after=round(chance.uniform(0.2, 1.5), 2),
                seed=chance.getrandbits(32),
                overlaps=kind in LASTING and chance.random() < 0.5,
            )
            for kind in dealt
        )
        # Where no broker is harmed replicas would only cost time.
        replicas = min(brokers, 3) if any(kind in OF_BROKERS for kind in dealt) else 1
        found.append(Round(number, chance.getrandbits(32), replicas, faults))
    return found

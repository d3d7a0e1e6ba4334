"""The rows of ``danaus bench ft``: what is measured, in which shape, and what it is to reach.

Owns ``Row`` and ``ROWS``.  A row measures through ``Side``, so that both sides are measured alike;
faults are struck by ``app.bench_ft_faults``.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from danaus.app.bench_figures import Figure, Goal, scaled, seen, together, windows
from danaus.app.bench_ft_faults import AWAY_S, Kill, form, hang_one, kill_some, lose_coordinator
from danaus.app.bench_ft_fleet import Fleet, Shape
from danaus.app.bench_ft_sides import CAUGHT, EXACT, Side, plain_steps

_SIZES = (2, 4, 8)
_HANG_LIMIT_S = 40.0
_MS, _GB = 1e3, 1e-9


@dataclass
class Ground:
    """Where rows measure, and how often.

    Args:
        folder: Each measurement has a folder of its own in it.
        repeats: How often each fault strikes, and how often what is cheap is measured.
        small: Only see that everything runs: few rounds, small states.
    """

    folder: Path
    repeats: int
    small: bool = False
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def new(self) -> Path:
        """Return a new folder, with a short path for sockets."""
        folder = self.folder / str(next(self._numbers))
        folder.mkdir(mode=0o700)
        return folder

    def rounds(self, number: int) -> int:
        """Return how many rounds to measure."""
        return min(number, 20) if self.small else number


@dataclass(frozen=True)
class Row:
    """One row.

    Args:
        title: What it is about.
        measure: Measures it on one side.
        goals: What this project is to reach, by the figure that shows it.
    """

    title: str
    measure: Callable[[Ground, Side], list[Figure]]
    goals: Mapping[str, Goal]


@contextlib.contextmanager
def _formed(
    ground: Ground, side: Side, shape: Shape, *, tuning: str = ""
) -> Iterator[Fleet | None]:
    """Hand out a fleet that has taken steps together; None if it did not come to that."""
    fleet = side.fleet(shape, ground.new(), tuning=tuning)
    try:
        yield fleet if form(fleet) else None
    finally:
        fleet.close()


# -- killed replicas ------------------------------------------------------------------------


def _killed(ground: Ground, side: Side) -> list[Figure]:
    figures: list[Figure] = []
    for replicas, words in ((3, "of three"), (2, "of two")):
        for tuning in side.tunings:
            shape = Shape(replicas)
            told = f"{words}, {tuning}" if tuning else words
            with _formed(ground, side, shape, tuning=tuning) as fleet:
                for at_once in (False, True):
                    when = "successor at once" if at_once else "successor later"
                    kills = _kills(fleet, ground.repeats, warm=True, at_once=at_once)
                    figures += _gap_figures(f"{told}, {when}", kills)
    return figures


def _kills(fleet: Fleet | None, times: int, *, warm: bool, at_once: bool) -> list[Kill] | str:
    if fleet is None:
        return "the fleet did not come together"
    return kill_some(fleet, times, warm=warm, at_once=at_once)


def _gap_figures(words: str, kills: list[Kill] | str) -> list[Figure]:
    if isinstance(kills, str):
        return [seen(f"{words}: gap", kills)]
    gaps = tuple(kill.gap_s for kill in kills)
    beyond = tuple(max(0.0, kill.gap_s - kill.reduced_s) for kill in kills)
    return [
        Figure(f"{words}: gap", "s", gaps),
        Figure(f"{words}: gap beyond one step", "s", beyond),
    ]


_KILL_GOALS = {
    f"{words}, {when}: gap beyond one step": Goal(0.3, always=True)
    for words in ("of three", "of two")
    for when in ("successor later", "successor at once")
}


def _rejoined(ground: Ground, side: Side) -> list[Figure]:
    figures: list[Figure] = []
    for warm, words in ((True, "warm spare"), (False, "no spare")):
        with _formed(ground, side, Shape(3)) as fleet:
            kills = _kills(fleet, ground.repeats, warm=warm, at_once=True)
        if isinstance(kills, str):
            figures.append(seen(f"{words}: started to first step", kills))
            continue
        for what, name in (
            ("started to first step", "first_s"),
            ("killed to full strength", "whole_s"),
            ("the others' gap meanwhile", "entry_gap_s"),
        ):
            values = tuple(getattr(kill, name) for kill in kills)
            figures.append(Figure(f"{words}: {what}", "s", values))
    return figures


# -- coordinator, hang ----------------------------------------------------------------------


def _coordinator(ground: Ground, side: Side) -> list[Figure]:
    def lose(fleet: Fleet) -> list[Figure]:
        return lose_coordinator(fleet, newcomer=fleet.shape.replicas)

    return _many(ground, side, lose)


def _hung(ground: Ground, side: Side) -> list[Figure]:
    return _many(ground, side, lambda fleet: hang_one(fleet, _HANG_LIMIT_S))


def _many(ground: Ground, side: Side, strike: Callable[[Fleet], list[Figure]]) -> list[Figure]:
    """Strike so many new fleets of three; return the figures with all their values."""
    found: dict[str, list[Figure]] = {}
    for _ in range(ground.repeats):
        with _formed(ground, side, Shape(3)) as fleet:
            if fleet is None:
                return [seen("fleet", "did not come together")]
            for figure in strike(fleet):
                found.setdefault(figure.what, []).append(figure)
    return [together(each) for each in found.values()]


# -- rounds ---------------------------------------------------------------------------------


def _quorum(ground: Ground, side: Side) -> list[Figure]:
    return [
        Figure(
            f"{num} replicas",
            "ms",
            scaled(windows(side.quorums(num, ground.rounds(700), ground.new())), _MS),
        )
        for num in _sizes(ground)
    ]


def _vote(ground: Ground, side: Side) -> list[Figure]:
    return [
        Figure(
            f"{num} members",
            "ms",
            scaled(windows(side.votes(num, ground.rounds(3500), ground.new())), _MS),
        )
        for num in _sizes(ground)
    ]


def _sizes(ground: Ground) -> tuple[int, ...]:
    return _SIZES[:1] if ground.small else _SIZES


def _transfer(ground: Ground, side: Side) -> list[Figure]:
    num_mib = 4 if ground.small else 1024
    times = max(ground.repeats, 1 if ground.small else 5)
    return [
        Figure(
            f"{num} donor{'s' if num > 1 else ''}",
            "GB/s",
            scaled(
                side.transfers(ground.new(), num_donors=num, num_mib=num_mib, num_times=times), _GB
            ),
        )
        for num in ((1, 2) if side.name == "danaus" else (1,))
    ]


# -- averages -------------------------------------------------------------------------------


def _first_step(ground: Ground, side: Side) -> list[Figure]:
    return [Figure("mean of 1 and 3", "", (side.first_mean(ground.new()),))]


def _averages(ground: Ground, side: Side) -> list[Figure]:
    return [
        seen("several buckets, tensors larger than one", side.averages(ground.new())),
        seen("a bit flips in one replica", side.divergence(ground.new())),
    ]


# -- the loop -------------------------------------------------------------------------------


def _loop(ground: Ground, side: Side) -> list[Figure]:
    figures: list[Figure] = []
    for compute_s, words in ((0.0, "no compute"), (0.02, "20 ms of compute")):
        shape = Shape(2, step_s=compute_s)
        num_steps = ground.rounds(700 if compute_s else 2000)
        plain = _settled(plain_steps(shape, num_steps, ground.new()))
        figures.append(Figure(f"{words}: plain DDP, a step", "ms", plain))
        for bits in side.orders:
            shape = replace(shape, bits=bits)
            managed = _settled(side.steps(shape, num_steps, ground.new()))
            told = f"{words}, bits {bits}"
            figures += [
                Figure(f"{told}: a step", "ms", managed),
                Figure(f"{told}: added to a step", "ms", (median(managed) - median(plain),)),
                Figure(f"{told}: speed of plain DDP", "times", (median(plain) / median(managed),)),
            ]
    return figures


def _settled(spans: list[float]) -> tuple[float, ...]:
    """Return the milliseconds of steps once the first have warmed up, in seven windows."""
    return scaled(windows(spans[len(spans) // 8 :]), _MS)


ROWS: Mapping[str, Row] = {
    "kill": Row("One replica SIGKILLed: the survivors' longest gap", _killed, _KILL_GOALS),
    "rejoin": Row(
        "A killed replica comes back",
        _rejoined,
        {
            "warm spare: started to first step": Goal(1.0),
            "no spare: started to first step": Goal(2.0),
        },
    ),
    "coordinator": Row(
        f"The coordinator is killed and away for {AWAY_S:g} s, then a new replica joins",
        _coordinator,
        {
            "steps lost": Goal(exactly="0"),
            "replicas that exit": Goal(exactly="0 of 3"),
            "gap": Goal(AWAY_S + 0.2, always=True),
        },
    ),
    "hang": Row(
        "One replica hangs, its heart beats",
        _hung,
        {"survivors' gap": Goal(_HANG_LIMIT_S, words="evicted at the limit, the rest go on")},
    ),
    "quorum": Row(
        "The quorum as the loop sees it, unchanged",
        _quorum,
        {f"{n} replicas": Goal(0.3, words="no round trip") for n in _SIZES},
    ),
    "vote": Row("A commit vote", _vote, {f"{n} members": Goal(like_peer=True) for n in _SIZES}),
    "transfer": Row(
        "State transfer, 1 GiB on loopback",
        _transfer,
        {
            "1 donor": Goal(1.8, high_is_good=True, always=True),
            "2 donors": Goal(2.5, high_is_good=True),
        },
    ),
    "first_step": Row(
        "The first step, gradients 1 and 3", _first_step, {"mean of 1 and 3": Goal(2.0, words="2")}
    ),
    "averages": Row(
        "Averages",
        _averages,
        {
            "several buckets, tensors larger than one": Goal(exactly=EXACT),
            "a bit flips in one replica": Goal(exactly=CAUGHT),
        },
    ),
    "loop": Row(
        "The managed loop without faults, two replicas, 0.2 M parameters",
        _loop,
        {
            "no compute, bits off: added to a step": Goal(1.0),
            "20 ms of compute, bits off: speed of plain DDP": Goal(0.95, high_is_good=True),
            "20 ms of compute, bits exact: speed of plain DDP": Goal(0.9, high_is_good=True),
        },
    ),
}

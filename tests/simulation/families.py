"""Plans of one shape each: the histories in which a certain rule is what saves the run.

``family(seed)`` is one plan of it; the seed moves the moments a little and the messages freely.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.simulation.plans import Fault, Plan, random_plan

Family = Callable[[int], Plan]


def any_history(seed: int) -> Plan:
    return random_plan(10**6 + seed)


def _one_of(kinds: str, chance: random.Random) -> str:
    return chance.choice(kinds.split("|")) if "|" in kinds else kinds


def _shape(
    *faults: tuple[str, str, tuple[int, int], int, int],
    replicas: tuple[int, int] = (2, 3),
    ranks: int = 1,
    steps: int = 5,
    slow: tuple[int, ...] = (0, 15, 30),
    repairs: bool = False,
) -> Family:
    """Faults are (kind, moment, range of nth, who, span); ``a|b`` is one of several."""

    def family(seed: int) -> Plan:
        chance = random.Random(seed)
        return Plan(
            seed=seed,
            replicas=chance.randint(*replicas),
            ranks=ranks,
            steps=steps,
            slow=chance.choice(slow),
            repairs=repairs,
            faults=tuple(
                Fault(
                    _one_of(kind, chance),
                    chance.choice(moment.split("|")),
                    chance.randint(*nth),
                    who,
                    span,
                )
                for kind, moment, nth, who, span in faults
            ),
        )

    return family


cut_before_the_ballots = ("cut peers", "ballot sent|voted|ballot came", (1, 6), -1, 5)

unequal_sums = _shape(("missum", "computed", (1, 4), -1, 5), cut_before_the_ballots)
unequal_states = _shape(("flip", "computed", (1, 4), -1, 5), cut_before_the_ballots)

seen_refusal = _shape(
    ("refuse", "computed", (1, 4), -1, 5), ("kill", "voted", (1, 5), -1, 5), replicas=(3, 3)
)

committed_and_dead = _shape(
    ("cut peers", "counted|committing", (1, 4), -1, 5),
    ("kill", "applied", (1, 5), -1, 5),
    slow=(15, 30),
)
committed_and_dead_ranks = _shape(
    ("cut peers", "counted|committing", (1, 8), -1, 5),
    ("kill", "applied", (1, 10), -1, 5),
    ranks=2,
    slow=(15, 30),
)
a_rank_that_is_lost = _shape(
    ("kill", "computed|reduced|voted|counted|applied", (1, 12), -1, 5),
    ranks=2,
    steps=12,
    repairs=True,
)
committed_and_repaired = _shape(
    ("cut peers", "counted|committing", (1, 8), -1, 5),
    ("kill", "applied", (1, 10), -1, 5),
    ranks=2,
    slow=(15, 30),
    repairs=True,
)
committed_by_one_rank = _shape(
    ("cut peers", "counted|committing", (1, 8), -1, 5), ranks=2, slow=(15, 30)
)
committed_and_restarted = _shape(
    ("isolate from service", "counted", (1, 3), 1, 25),
    ("cut peers", "counted|committing", (1, 3), -1, 5),
    ("kill", "applied", (1, 3), -1, 5),
    replicas=(2, 2),
    slow=(15, 30),
)


def two_attempts(seed: int) -> Plan:
    """One comes back with its gradient of a refused attempt while the next is voted on."""
    chance = random.Random(seed)
    faults = (
        Fault("refuse", "computed", chance.randint(1, 3)),
        Fault("isolate from service", "computed", 1, who=2, span=chance.randint(70, 110)),
        Fault("cut peers", chance.choice(("counted", "committing")), chance.randint(4, 5)),
    )
    return Plan(seed=seed, replicas=3, steps=3, slow=30, faults=faults)


told_to_few = _shape(
    ("cut peers", "ballot came|counted", (1, 8), -1, 5),
    ("crash service", "announcing", (3, 5), -1, 5),
    ("kill", "applied|discarding", (1, 5), -1, 5),
    replicas=(3, 3),
)

lost_disk_and_lost_members = _shape(
    ("isolate", "time", (4, 6), 0, 150),
    ("isolate", "time", (4, 6), 1, 150),
    ("wipe service", "time", (140, 150), -1, 5),
    ("isolate", "time", (140, 150), 2, 150),
    replicas=(3, 3),
    steps=80,
    slow=(0,),
)
all_out_of_reach = _shape(
    ("isolate", "time", (5, 10), 0, 150),
    ("isolate", "time", (5, 10), 1, 150),
    ("replace", "time", (5, 15), 0, 5),
    ("replace", "time", (5, 15), 1, 5),
    replicas=(2, 2),
    steps=40,
    slow=(0,),
)
only_newcomers = _shape(
    ("isolate", "time", (5, 10), 0, 150),
    ("replace", "time", (5, 15), 0, 5),
    replicas=(1, 1),
    steps=40,
    slow=(0,),
)

echoes = _shape(
    ("echo", "time", (0, 0), 0, 5),
    ("echo", "time", (0, 0), 1, 5),
    ("cut peers", "ballot came|voted|computed", (1, 12), -1, 5),
    ("cut service", "joined|announced", (1, 8), -1, 5),
    steps=8,
)

a_learner = _shape(("kill", "computed|applied", (1, 8), -1, 5), replicas=(2, 4), steps=20)
a_learner_that_fails = _shape(
    ("kill", "computed|applied", (1, 8), -1, 5),
    ("isolate from peers", "learning", (1, 1), -1, 80),
    replicas=(2, 4),
    steps=20,
)
a_restore_that_fails = _shape(
    ("kill all", "applied", (6, 12), -1, 5),
    ("damage checkpoint", "restoring", (1, 2), -1, 5),
    steps=12,
    slow=(0,),
)


def a_spoiled_checkpoint(seed: int) -> Plan:
    """A bit flips just before a checkpoint is written; soon after all are killed."""
    chance = random.Random(seed)
    flip = chance.randint(4, 12)
    faults = (
        Fault("flip", "applied", flip),
        Fault("kill all", "applied", flip + chance.randint(3, 8)),
    )
    return Plan(seed=seed, replicas=3, steps=12, faults=faults)


alone_against = _shape(("refuse", "computed", (1, 4), -1, 5), replicas=(1, 1))

makes_room = _shape(
    ("straggle|leave", "ballot sent|ballot came|voted", (2, 12), -1, 5),
    ("cut peers|pause", "ballot sent|counted|applied", (2, 12), -1, 5),
)
apart = _shape(("rift|one-way rift", "announced|joined", (1, 3), -1, 5), replicas=(2, 4), slow=(0,))
apart_from_all = _shape(
    ("isolate from peers", "announced|joined", (1, 3), 0, 80), replicas=(3, 4), slow=(0,)
)


def _trailing(seed: int, *faults: Fault, steps: int = 80, replicas: int = 3) -> Plan:
    """Return a run in which one is killed early, and trails after the others in step 12 or so."""
    first = Fault("kill", "computed", 12 + seed % 5)
    return Plan(
        seed=4 * seed, replicas=replicas, steps=steps, slow=seed % 2 * 15, faults=(first, *faults)
    )


def a_donor_that_dies(seed: int) -> Plan:
    chance = random.Random(seed)
    moment = chance.choice(("serving", "fetched", "replayed", "caught up"))
    return _trailing(seed, Fault("kill", moment, 1 + seed % 2, who=seed % 2))


def a_log_that_ends(seed: int) -> Plan:
    moment = ("serving", "fetched", "replayed", "caught up")[seed % 4]
    return _trailing(seed, *(Fault("drop log", moment, 1, who=who) for who in (0, 1)))


def a_donor_that_is_cut_off(seed: int) -> Plan:
    moment = ("serving", "fetched", "replayed", "caught up")[seed % 4]
    return _trailing(seed, Fault("isolate from peers", moment, 1, who=seed % 3, span=40))


def a_restore_in_the_middle(seed: int) -> Plan:
    """Both members die while one trails: all go back, and what it has learned is void."""
    moment = ("fetched", "replayed", "caught up", "learning")[seed % 4]
    return _trailing(seed, Fault("kill others", moment, 1 + seed % 3))


def a_service_that_dies(seed: int) -> Plan:
    moment = ("fetched", "replayed", "caught up", "learning")[seed % 4]
    how = ("crash service", "wipe service")[seed // 4 % 2]
    return _trailing(seed, Fault(how, moment, 1), Fault("kill", "replayed", 3, who=0))


def a_wrong_transfer(seed: int) -> Plan:
    return _trailing(seed, Fault("garble fetch", ("learning", "fetched")[seed % 2], 1))


def an_end_that_comes_soon(seed: int) -> Plan:
    return _trailing(seed, steps=7 + seed % 8)


TRAILS = (
    a_donor_that_dies,
    a_log_that_ends,
    a_donor_that_is_cut_off,
    a_restore_in_the_middle,
    a_service_that_dies,
    a_wrong_transfer,
    an_end_that_comes_soon,
)
"""Histories in which learners trail, and something happens meanwhile."""

"""What a simulated run is made of: its size, its chance, and the faults that hit it.

A ``Plan`` determines a run completely: ``run(plan)`` replays it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from danaus.app.chaos import Fleet
from danaus.quorum.messages import MemberId

# Where a fault may strike.  ``time`` counts tenths of a second, every other moment how often it
# has come to pass in the whole run.
MEMBER_MOMENTS = (
    "joining",  # the machine decided to join, nothing is sent
    "joined",  # the ask is on its way
    "announced",  # an announcement arrived, nothing is done about it
    "forming",
    "computing",
    "computed",
    "contribution sent",
    "reducing",
    "reduced",  # the gradient is there, the vote is not cast
    "ballot sent",  # to one peer; others may not get it
    "voted",  # to all
    "ballot came",
    "counted",  # all votes are here, nothing is decided
    "committing",  # decided, the optimiser has not run
    "applied",  # it has, nobody knows
    "discarding",
    "serving",
    "learning",
    "fetched",
    "replayed",  # a learner has applied one step more
    "caught up",  # it has stopped trailing, nobody knows
    "restoring",
    "restored",
)
SERVICE_MOMENTS = (
    "join heard",
    "deciding",  # just before instructions are carried out
    "persisted",  # nothing is announced
    "announcing",  # to one more; the rest may not get it
)
MOMENTS = ("time", *MEMBER_MOMENTS, *SERVICE_MOMENTS)

MEMBER_FAULTS = (
    "kill",  # its host agent reports it
    "lose host",  # process, agent and connections gone without a word; confirmed late
    "hang",  # stopped until it is fenced
    "pause",  # stopped for a while: everything reaches it late
    "wedge",  # computes for ever but beats
    "flip",  # a bit of its state
    "missum",  # its reduced gradient differs
    "fail compute",
    "refuse",  # votes against
    "cut service",  # its session breaks, what is in flight is lost
    "cut peers",  # its connections with its group break
    "isolate",  # from everybody for a while; nothing is lost, all is late
    "isolate from service",
    "isolate from peers",
    "rift",  # its host and another's never reach each other again
    "one-way rift",  # one of the two reaches the other
    "mute",  # nobody hears it for a while
    "deafen",  # it hears nobody
    "mute to service",
    "deafen to service",
    "evict",  # held to be hung though it works
    "evict in vain",  # and it cannot be killed for a while
    "straggle",  # held to be slow: it makes room for another
    "leave",  # its replica leaves for good
    "leap",  # its clock leaps: every deadline passes
    "replace",  # a new incarnation is started beside it, elsewhere
    "lose agent",  # its death can be neither reported nor brought about
    "echo",  # all that it and the service say to each other comes twice, out of order
    "garble fetch",  # what it learns next is wrong
    "drop log",  # it has no room any more for what learners that trail need
)
SERVICE_FAULTS = (
    "crash service",
    "wipe service",  # crash, and the disk is empty
    "pause service",
    "leap service",  # its clock leaps
    "grow",  # a replica is added, or one that has left comes back
    "second service",  # it is started elsewhere, and lives on
    "damage checkpoint",
    "fill disk",
    "kill all",
    "kill others",  # all replicas but one
)
FAULTS = MEMBER_FAULTS + SERVICE_FAULTS


@dataclass(frozen=True)
class Fault:
    """``kind`` strikes when ``moment`` comes to pass for the ``nth`` time.

    ``who`` is -1 for the process at which the moment came to pass (any, if it is not a member),
    else an index into the living processes.  ``span`` is tenths of a second.
    """

    kind: str
    moment: str
    nth: int
    who: int = -1
    span: int = 10

    @property
    def method(self) -> str:
        """The name of what carries it out."""
        return "fault_" + self.kind.replace(" ", "_").replace("-", "_")


@dataclass(frozen=True)
class Plan:
    """A whole run."""

    seed: int = 0
    replicas: int = 3
    ranks: int = 1
    steps: int = 4
    exact: bool = False  # whether a step tried again gives the same bits
    slow: int = 0  # how often in a hundred a message takes long
    drift: int = 0  # by how much in a hundred each process's clock runs fast or slow at most
    faults: tuple[Fault, ...] = ()
    hosts: tuple[int, ...] = ()  # of each replica; none: each has one of its own
    service_on: int | None = None  # the host of the quorum service; None: one apart
    repairs: bool = False  # whether the siblings of a lost rank go on in their processes

    @property
    def log_room(self) -> int:
        """How many gradients a donor keeps."""
        return (2, 5, 1000)[self.seed % 3]

    @property
    def state_bytes(self) -> int:
        """How large a state is: mostly so that its transfer takes longer than a step."""
        return 10**3 if self.seed % 7 == 6 else 10**9

    def lends(self, member: MemberId) -> bool:
        """Tell whether a process can serve a learner while it goes on."""
        number = int(member.replica_id.removeprefix("r"))
        return self.seed % 4 != 1 and (self.seed % 4 != 2 or number % 2 == 0)

    @property
    def fleet(self) -> Fleet:
        """What a plan of faults can hit."""
        return Fleet(self.hosts or tuple(range(self.replicas)), self.ranks)

    def host_of(self, replica_id: str) -> int:
        """Return the place of the host on which a replica first lives."""
        return self.fleet.hosts[int(replica_id.removeprefix("r"))]


Pick = Callable[[int, int], int]


# What the hard histories are made of comes up more often.
OFTEN = ("kill", "lose host", "cut peers", "isolate", "pause", "crash service", "wipe service")
WEIGHED = FAULTS + OFTEN * 3
VOTING = MEMBER_MOMENTS.index("reduced"), MEMBER_MOMENTS.index("discarding")


def make_plan(pick: Pick) -> Plan:
    """Build a plan out of choices ``pick(low, high)``, both ends included."""
    # Most histories of interest are short: two or three faults near each other.
    faults: list[Fault] = []
    for _ in range(pick(0, 5)):
        faults.append(make_fault(pick, faults[-1] if faults and pick(0, 1) else None))
    return Plan(
        seed=pick(0, 2**32),
        replicas=pick(1, 4),
        ranks=(1, 1, 1, 2, 2, 3)[pick(0, 5)],
        steps=(2, 3, 4, 5, 6, 15)[pick(0, 5)],
        exact=pick(0, 3) == 3,
        slow=(0, 3, 15, 30)[pick(0, 3)],
        drift=(0, 0, 1, 20)[pick(0, 3)],
        faults=tuple(faults),
        repairs=pick(0, 1) == 1,
    )


def make_fault(pick: Pick, near: Fault | None = None) -> Fault:
    """Build a fault, perhaps one that strikes soon after another."""
    if near is not None and near.moment in MEMBER_MOMENTS:
        place = MEMBER_MOMENTS.index(near.moment)
        last = len(MEMBER_MOMENTS) - 1
        moment = MEMBER_MOMENTS[pick(max(0, place - 1), min(last, place + 3))]
        nth = max(1, near.nth + pick(-1, 3))
    elif pick(0, 1):
        moment, nth = MEMBER_MOMENTS[pick(*VOTING)], pick(1, 12)
    else:
        moment = MOMENTS[pick(0, len(MOMENTS) - 1)]
        nth = pick(0, 80) if moment == "time" else pick(1, 12)
    return Fault(
        kind=WEIGHED[pick(0, len(WEIGHED) - 1)],
        moment=moment,
        nth=nth,
        who=max(-1, pick(-4, 3)),
        span=(5, 20, 80, 150)[pick(0, 3)],
    )


def random_plan(seed: int) -> Plan:
    return make_plan(random.Random(seed).randint)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    return make_plan(lambda low, high: draw(st.integers(low, high)))

"""The kinds of faults: what each hits, what may be said of it, and what it needs.

Owns ``FACTS``, the table that the parser, the schedule and ``danaus chaos --list`` read, and the
words that stand in it.  Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from danaus.app.events import FaultKind

Hits = Literal["worker", "host", "link", "nothing"]
"""What a target names: a worker, a host, the way between two hosts, or nothing at all."""

By = Literal["outside", "network", "inside"]
"""Who strikes: signals from another process, the lab's network, or the victim itself."""

Unit = Literal["x", "%", "s", "-s"]
"""Of an amount: times as slow, percent, seconds, seconds forward or back."""

PROCESSES = ("worker", "nursery", "host_agent", "coordinator", "controller")
"""Whom a hang or a slowness may hit."""

PHASES = (
    "join", "learn", "learning", "serving", "replayed", "hold", "compute", "forward",
    "reduce", "vote", "voted", "apply", "applied", "checkpoint",
)  # fmt: skip
"""Moments of a step at which a worker can be struck, by itself, so that the moment is exact.

``forward`` is inside the network; ``voted``, ``applied``, ``learning``, ``replayed`` and
``serving`` are ``ft.observer``'s moments; the others are the phases of a position.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a kind.

    Args:
        about: What it does, in words.
        hits: What its target names.
        by: Who strikes, unless a moment of a step or a place inside is named.
        where: Places that may be named; the first is the default.
        processes: Whom it may hit; the first is the default.
        unit: Of its amount; None: it has none.
        amount: If none is named.
        lasts: It may be told how long it lasts.
        for_s: How long it lasts if it is not told; None: for ever.
        needs: What the machine must have, in words.
    """

    about: str
    hits: Hits = "worker"
    by: By = "outside"
    where: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()
    unit: Unit | None = None
    amount: float | None = None
    lasts: bool = False
    for_s: float | None = None
    needs: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """What may be said of this kind beside when it strikes."""
        said = {
            "where": bool(self.where),
            "process": bool(self.processes),
            "amount": self.unit is not None,
            "for": self.lasts,
            "one_way": self.hits == "link",
        }
        return (*TARGETS[self.hits], *(key for key, legal in said.items() if legal))

    @property
    def has_moments(self) -> bool:
        """Tell whether it can strike at a moment of a step."""
        return self.hits == "worker" and self.for_s is None


TARGETS: dict[Hits, tuple[str, ...]] = {
    "worker": ("replica", "rank", "host"),
    "host": ("host",),
    "link": ("host", "peer"),
    "nothing": (),
}
"""Keys that name a target."""

_LAB = ("a lab (root)",)

FACTS: dict[FaultKind, Facts] = {
    FaultKind.KILL: Facts(about="SIGKILL a worker"),
    FaultKind.SEGV: Facts(about="a worker writes where no memory is", by="inside"),
    FaultKind.OOM: Facts(
        about="a worker asks for more memory than its limit", by="inside", needs=("root", "cgroup")
    ),
    FaultKind.HANG: Facts(
        about="a process stands still: stopped by a signal, in a call of C that keeps the GIL, "
        "in a collective, in its data loader, or in the kernel (needs root and the freezer of "
        "cgroup v1)",
        where=("stop", "gil", "collective", "loader", "kernel"),
        processes=PROCESSES,
        lasts=True,
    ),
    FaultKind.SLOW: Facts(
        about="a process is stopped for most of the time",
        processes=PROCESSES,
        unit="x",
        amount=3.0,
        lasts=True,
        for_s=5.0,
    ),
    FaultKind.PARTITION: Facts(
        about="no packet passes between two hosts, or from one to the other",
        hits="link", by="network", lasts=True, for_s=5.0, needs=_LAB,
    ),
    FaultKind.LOSS: Facts(
        about="a share of a host's packets is lost, both ways",
        hits="host", by="network", unit="%", amount=10.0, lasts=True, for_s=5.0, needs=_LAB,
    ),
    FaultKind.DELAY: Facts(
        about="a host's packets take longer, both ways",
        hits="host", by="network", unit="s", amount=0.05, lasts=True, for_s=5.0, needs=_LAB,
    ),
    FaultKind.DISK_FULL: Facts(
        about="the disk that a worker writes to has no room", by="inside", lasts=True, for_s=5.0,
        needs=("a small file system of its own",),
    ),
    FaultKind.FLIP_BIT: Facts(
        about="one bit of a worker's state, or of what it sends or has written, is flipped",
        by="inside",
        where=(
            "parameters", "gradient", "sum", "optimizer", "transfer", "exchange", "checkpoint",
        ),
    ),
    FaultKind.NAN: Facts(
        about="a number that is none appears", by="inside", where=("gradient", "parameters")
    ),
    FaultKind.CLOCK_JUMP: Facts(
        about="a worker's clock jumps: that of the day, or the steady one, forward",
        by="inside", where=("day", "monotonic"), unit="-s", amount=3600.0,
    ),
    FaultKind.KILL_COORDINATOR: Facts(
        about="SIGKILL the quorum service, and keep it away for as long; what it has saved is "
        "lost too where its disk is named",
        hits="nothing", where=("process", "disk"), lasts=True,
    ),
    FaultKind.KILL_CONTROLLER: Facts(about="SIGKILL the run's controller", hits="nothing"),
    FaultKind.KILL_NURSERY: Facts(about="SIGKILL a host's nursery", hits="host"),
    FaultKind.KILL_HOST_AGENT: Facts(about="SIGKILL a host's agent", hits="host"),
    FaultKind.KILL_HOST: Facts(
        about="SIGKILL every process of a host at once; a lab's host falls silent so, and starts "
        "again after a while",
        hits="host", lasts=True, for_s=5.0,
    ),
    FaultKind.PREEMPT: Facts(
        about="SIGTERM, as a scheduler does before it takes a host away, and SIGKILL for what is "
        "left of it after that time",
        hits="host",
        lasts=True,
        processes=("host_agent", "worker"),
    ),
}  # fmt: skip
"""Every kind that can be asked for; ``FaultKind.OUTSIDE`` is what others do to a run."""

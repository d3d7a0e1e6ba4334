"""One run that is struck again and again, to its end: started, watched, started again when killed.

Owns ``strike_to_the_end`` and ``Course``, what it tells.  The run's controller is a process of its
own; what is seen of the run comes from its folder.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from danaus.app.campaign import Campaign
from danaus.app.campaign_controller import Controller, fast_path
from danaus.app.campaign_watch import Life, UsageWatch
from danaus.app.chaos import FaultPlan, Fleet
from danaus.app.chaos_lab import LabNetwork
from danaus.app.chaos_strike import TICK_S
from danaus.app.chaos_victims import Victims
from danaus.app.run_folder import RunFolder
from danaus.app.stopping import StopSignals
from danaus.core.clock import Deadline
from danaus.core.errors import DeadlinePassed

_LOOK_S = 2.0
_SAY_EVERY_S = 10.0
_STILL_LIMIT_S = 120.0
_GONE_LIMIT_S = 10.0
"""What a killed controller's processes have to be gone in (P-4)."""


@dataclass(slots=True)
class Course:
    """How it went.

    Args:
        num_struck: Faults that struck.
        num_missed: Faults that found nothing to hit, or could not be done.
        num_forgotten: Faults that a victim was asked to strike itself with, and never did.
        num_planned: Faults of the plan.
        took_s: From the first start to the end, in seconds.
        num_starts: How often the controller was started.
        slowest_end_s: The longest that a killed controller's processes took to be gone.
        problems: What should not have been, in words.
        lives: What the longest-lived processes used.
        record: The record of the faults.
    """

    num_struck: int = 0
    num_missed: int = 0
    num_forgotten: int = 0
    num_planned: int = 0
    took_s: float = 0.0
    num_starts: int = 0
    slowest_end_s: float = 0.0
    problems: list[str] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    record: Path | None = None


def strike_to_the_end(
    folder: RunFolder,
    plan: FaultPlan,
    fleet: Fleet,
    *,
    network: LabNetwork | None = None,
    say: Callable[[str], None],
    signals: StopSignals,
) -> Course:
    """Run a run to its end, striking it by a plan.

    Args:
        folder: The run's; nobody holds it.
        plan: What is done to it.
        fleet: What it has.
        network: Between its hosts; None: it lives on this machine, plainly.
        say: Told of each fault, and now and then how far it is, for a person.
        signals: What may ask for the end.

    Raises:
        KeyboardInterrupt: It was asked to end.
    """
    controller = Controller(folder, folder.log_path("controller"))
    try:
        with Campaign(folder, plan, fleet, network=network, say=say) as campaign:
            usage = UsageWatch(Victims(folder, fleet, network), sorted(set(fleet.hosts)))
            strikes = _Strikes(folder, campaign, controller, usage=usage, say=say)
            return strikes.run(signals, plan)
    finally:
        controller.close()


class _Strikes:
    def __init__(
        self,
        folder: RunFolder,
        campaign: Campaign,
        controller: Controller,
        *,
        usage: UsageWatch,
        say: Callable[[str], None],
    ) -> None:
        self._campaign, self._controller, self._say = campaign, controller, say
        self._usage = usage
        self._fast = fast_path(folder.path)
        self._course = Course(record=campaign.record.path)
        self._began_s = time.monotonic()
        self._next_look_s = self._next_say_s = 0.0
        self._moved = (0, Deadline.after(_STILL_LIMIT_S))
        self._never = threading.Event()

    def run(self, signals: StopSignals, plan: FaultPlan) -> Course:
        """Strike until the run has ended; return how it went."""
        course = self._course
        course.num_planned = len(plan.faults)
        self._controller.start()
        try:
            while self._goes_on():
                if signals.asked:
                    raise KeyboardInterrupt
                self._campaign.look()
                self._look_around()
                if self._campaign.is_over:
                    self._fast.touch()
                self._never.wait(TICK_S)
        except DeadlinePassed as still:
            course.problems.append(str(still))
        finally:
            self._campaign.striker.close()
        course.took_s = time.monotonic() - self._began_s
        if not course.problems:
            course.problems += self._left_behind()
        striker = self._campaign.striker
        course.num_struck, course.num_missed = striker.num_struck, striker.num_missed
        course.num_forgotten = striker.num_open
        course.num_starts, course.lives = self._controller.num_starts, self._usage.longest()
        return course

    def _goes_on(self) -> bool:
        """Tell whether the run goes on; start its controller again if it was killed."""
        code = self._controller.poll()
        if code is None:
            return True
        if code >= 0:
            if code:
                self._course.problems.append(f"the controller ended with exit code {code}")
            return False
        self._course.problems += self._left_behind()
        self._say(f"the controller was ended by signal {-code}; it is started again")
        self._controller.start()
        return True

    def _left_behind(self) -> list[str]:
        """Wait until nothing of the run is left; return what stays."""
        began_s, deadline = time.monotonic(), Deadline.after(_GONE_LIMIT_S)
        while (left := self._controller.left()) and not deadline.passed:
            self._never.wait(TICK_S)
        ended_s = time.monotonic() - began_s
        self._course.slowest_end_s = max(self._course.slowest_end_s, ended_s)
        return [f"left behind {_GONE_LIMIT_S:g} s after its controller: {_what(p)}" for p in left]

    def _look_around(self) -> None:
        """See what the processes use, and that the run moves.

        Raises:
            DeadlinePassed: It does not.
        """
        now_s, step = time.monotonic(), self._campaign.step
        struck = self._campaign.striker.num_struck
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + _LOOK_S
            self._usage.look(now_s, struck)
        if now_s >= self._next_say_s:
            self._next_say_s = now_s + _SAY_EVERY_S
            self._say(f"{now_s - self._began_s:.0f} s: step {step}, {struck} faults")
        if step != self._moved[0]:
            self._moved = (step, Deadline.after(_STILL_LIMIT_S))
        if self._moved[1].passed:
            raise DeadlinePassed(f"the run to move on from step {step}", _STILL_LIMIT_S)


def _what(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        words = ""
    return f"{pid} {words.strip()[:100]}".strip()

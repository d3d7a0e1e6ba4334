"""A peer in a virtual environment of its own, measured by the same rows.

Owns how its programs are started; they lie in its folder under ``bench/peers`` and say what they
measured as lines of JSON, as ours do.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from danaus.app.bench_ft_fleet import Commit, Fleet, Shape, commits_in
from danaus.app.bench_ft_sides import CAUGHT, EXACT, LIMIT_S, finish
from danaus.app.bench_peer import Peer
from danaus.app.bench_processes import Program, Programs
from danaus.core.clock import Deadline
from danaus.ft.step_plan import Bits

_POLL_S = 0.005


class Torchft(Peer):
    """TorchFT, as its own documents use it."""

    name = "torchft"
    tunings: tuple[str, ...] = ("", "tuned")
    orders: tuple[Bits, ...] = ("off",)

    def fleet(self, shape: Shape, folder: Path, *, tuning: str = "") -> Fleet:
        return TorchftFleet(self, shape, folder, tuning=tuning)

    def votes(self, num_members: int, num_rounds: int, folder: Path) -> list[float]:
        return list(self._ask(folder, "vote", num_members, num_rounds)["spans_s"])

    def quorums(self, num_replicas: int, num_rounds: int, folder: Path) -> list[float]:
        return list(self._ask(folder, "quorum", num_replicas, num_rounds)["spans_s"])

    def steps(self, shape: Shape, num_steps: int, folder: Path) -> list[float]:
        fleet = TorchftFleet(self, shape, folder, num_steps=num_steps)
        try:
            fleet.start_coordinator()
            for replica in range(shape.replicas):
                fleet.start(replica)
            fleet.wait(Deadline.after(LIMIT_S))
            times = [commit.time for commit in fleet.commits(0)]
        finally:
            fleet.close()
        return [b - a for a, b in zip(times, times[1:], strict=False)]

    def transfers(
        self, folder: Path, *, num_donors: int, num_mib: int, num_times: int
    ) -> list[float]:
        """Of one donor: it knows no other way."""
        return list(self._ask(folder, "transfer", num_mib, num_times)["bytes_per_s"])

    def first_mean(self, folder: Path) -> float:
        return float(self._ask(folder, "averages", "first_step")["mean"])

    def averages(self, folder: Path) -> str:
        said = self._ask(folder, "averages", "buckets")
        num, exact = said["num_tensors"], said["num_exact"]
        committed = "committed all the same" if said["committed"] else "not committed"
        return EXACT if num == exact else f"{num - exact} of {num} tensors are wrong, {committed}"

    def divergence(self, folder: Path) -> str:
        said = self._ask(folder, "averages", "divergence")
        return CAUGHT if said["caught"] else f"not noticed in {said['steps_after']} steps"

    def _ask(self, folder: Path, program: str, *arguments: object) -> dict[str, Any]:
        """Run one of its programs to its end; return what it said last."""
        with Programs(folder / "programs") as programs:
            return finish([programs.start(self.command(program, *arguments), name=program)])[0]


class TorchftFleet:
    """Replicas of TorchFT, one process each, and its lighthouse in a process of its own.

    Args:
        side: Whose programs are started.
        shape: What replicas do.
        folder: Where their logs lie.
        tuning: Empty: the limits as they come; else shorter ones.
        num_steps: Steps of the run; None: without end.
    """

    def __init__(
        self,
        side: Torchft,
        shape: Shape,
        folder: Path,
        *,
        tuning: str = "",
        num_steps: int | None = None,
    ) -> None:
        self._side, self.shape, self._folder = side, shape, folder
        self._tuning, self._num_steps = tuning, num_steps
        self._programs = Programs(folder / "programs")
        self._replicas: dict[int, Program] = {}
        self._lives: dict[int, int] = {}
        self._lighthouse: Program | None = None
        self._address = ""
        self._port = 0

    def start_coordinator(self) -> None:
        least = 1 if self._num_steps is None else self.shape.replicas
        command = self._side.command("lighthouse", least, self._port, self._tuning or "defaults")
        name = f"lighthouse-{time.monotonic_ns()}"
        self._lighthouse = self._programs.start(command, name=name)
        deadline = Deadline.after(LIMIT_S)
        while not (said := list(self._lighthouse.lines())):
            deadline.check("the lighthouse")
            time.sleep(_POLL_S)
        self._address, self._port = said[0]["address"], said[0]["port"]

    def kill_coordinator(self) -> None:
        if self._lighthouse is not None:
            self._lighthouse.kill()

    def start(self, replica: int, *, warm: bool = True) -> None:
        """Start a replica as a new process: it knows no other way."""
        self._lives[replica] = self._lives.get(replica, -1) + 1
        least = 1 if self._num_steps is None else self.shape.replicas
        facts = (
            replica,
            self._address,
            self._log(replica),
            self._folder / f"hang-replica-{replica}",
            self.shape.width,
            self.shape.step_s,
            self._num_steps or 1_000_000_000,
            least,
            self._tuning or "defaults",
        )
        command = self._side.command("replica", *facts)
        name = f"replica-{replica}-{self._lives[replica]}"
        self._replicas[replica] = self._programs.start(command, name=name)

    def _log(self, replica: int) -> Path:
        return self._folder / f"steps-{replica}-{self._lives[replica]}.jsonl"

    def kill(self, replica: int) -> float:
        now = time.monotonic()
        self._replicas[replica].kill()
        return now

    def hang(self, replica: int) -> float:
        (self._folder / f"hang-replica-{replica}").touch()
        return time.monotonic()

    def is_alive(self, replica: int) -> bool:
        return self._replicas[replica].is_alive

    def commits(self, replica: int) -> list[Commit]:
        return commits_in(self._log(replica))

    def wait(self, deadline: Deadline) -> None:
        """Wait until every replica has trained to the end."""
        for program in self._replicas.values():
            program.wait(deadline)

    def close(self) -> None:
        self._programs.close()

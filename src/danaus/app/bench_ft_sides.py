"""What rows of ``danaus bench ft`` ask of whatever they measure, and this project's answers.

Owns ``Side``, the face of both, and ``Danaus``.  The peer's is ``app.bench_ft_peer``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from danaus.app.bench_ft_fleet import DanausFleet, Fleet, Shape, read_log
from danaus.app.bench_ft_job import ReplicaJob
from danaus.app.bench_processes import Program, Programs
from danaus.core.clock import Deadline
from danaus.ft.step_plan import Bits
from danaus.job.local import LocalJob
from danaus.quorum.folder import RunFiles
from danaus.wire.secret import Secret

LIMIT_S = 300.0
EXACT = "exact"
CAUGHT = "caught at the next vote"
_PLAIN = "danaus.app.bench_ft_plain"
_SERVICE = "danaus.quorum.service"
_PRELOAD = ("torch", "danaus.app.bench_ft_replica")


class Side(Protocol):
    """Whatever is measured."""

    name: str
    tunings: tuple[str, ...]
    """Settings of its limits to measure it with; the empty one: its defaults."""
    orders: tuple[Bits, ...]
    """Whether its sums may have one order, or none, to measure it with."""

    def fleet(self, shape: Shape, folder: Path, *, tuning: str = "") -> Fleet:
        """Return a fleet that is not started."""
        ...

    def votes(self, num_members: int, num_rounds: int, folder: Path) -> list[float]:
        """Return the seconds of commit votes, one after the other, as one of the members."""
        ...

    def quorums(self, num_replicas: int, num_rounds: int, folder: Path) -> list[float]:
        """Return the seconds that a loop spends on each step's quorum; nobody comes or goes."""
        ...

    def steps(self, shape: Shape, num_steps: int, folder: Path) -> list[float]:
        """Return the seconds from step to step of the managed loop, without faults."""
        ...

    def transfers(
        self, folder: Path, *, num_donors: int, num_mib: int, num_times: int
    ) -> list[float]:
        """Return the bytes per second at which a learner gets a state, each time."""
        ...

    def first_mean(self, folder: Path) -> float:
        """Return what two replicas make of the gradients 1 and 3 in their first step."""
        ...

    def averages(self, folder: Path) -> str:
        """Return what averages in several buckets come to: ``EXACT``, or in words what is wrong."""
        ...

    def divergence(self, folder: Path) -> str:
        """Return what becomes of weights that change behind a replica's back, or ``CAUGHT``."""
        ...


def finish(programs: Sequence[Program]) -> list[dict[str, Any]]:
    """Wait for the end of all; return what each said last."""
    deadline = Deadline.after(LIMIT_S)
    return [program.wait(deadline) for program in programs]


def plain_steps(shape: Shape, num_steps: int, folder: Path) -> list[float]:
    """Return the seconds of the steps of the same loop in plain DDP over Gloo."""
    facts = (shape.replicas, shape.width, shape.step_s, num_steps)
    with Programs(folder / "programs") as programs:
        said = finish(
            [
                programs.start_ours(_PLAIN, folder / "store", at, *facts, name=f"plain-{at}")
                for at in range(shape.replicas)
            ]
        )
    return list(said[0]["spans_s"])


class Danaus:
    """This project.

    Args:
        job: Whose first host runs the replicas of fleets.
        secret: File of that job's secret.
    """

    name = "danaus"
    tunings: tuple[str, ...] = ("",)
    orders: tuple[Bits, ...] = ("exact", "off")

    def __init__(self, job: LocalJob, secret: Path) -> None:
        self._job, self._secret = job, secret

    @classmethod
    @contextlib.contextmanager
    def in_folder(cls, folder: Path) -> Iterator[Self]:
        """Hand out this side while a host stands ready that has torch and the bench's loop."""
        secret = folder / "secret"
        Secret.ensure(secret)
        with LocalJob(run_dir=folder / "job", secret_path=secret, preload=_PRELOAD) as job:
            yield cls(job, secret)

    def fleet(self, shape: Shape, folder: Path, *, tuning: str = "") -> Fleet:
        # The quorum service asks the host agent who has died: they must hold the same secret.
        os.link(self._secret, RunFiles(folder).secret)
        RunFiles.prepare(folder)
        return DanausFleet(shape, folder, self._job)

    def votes(self, num_members: int, num_rounds: int, folder: Path) -> list[float]:
        facts = (num_members, "tcp:127.0.0.1:0", num_rounds)
        spans = self._side_by_side("vote", folder, num=num_members, facts=facts)[0]["spans_s"]
        return list(spans)

    def quorums(self, num_replicas: int, num_rounds: int, folder: Path) -> list[float]:
        lines = self._loop(Shape(num_replicas, step_s=0.0), num_rounds, folder)
        return [line["between_s"] for line in lines]

    def steps(self, shape: Shape, num_steps: int, folder: Path) -> list[float]:
        times = [line["t"] for line in self._loop(shape, num_steps, folder)]
        return [b - a for a, b in zip(times, times[1:], strict=False)]

    def transfers(
        self, folder: Path, *, num_donors: int, num_mib: int, num_times: int
    ) -> list[float]:
        RunFiles.prepare(folder)
        module = "danaus.app.bench_ft_transfer"
        with Programs(folder / "programs") as programs:
            for at in range(num_donors):
                programs.start_ours(module, "serve", folder, at, num_mib, name=f"donor-{at}")
            facts = ("learn", folder, num_donors, num_mib, num_times)
            learner = programs.start_ours(module, *facts, name="learner")
            return list(finish([learner])[0]["bytes_per_s"])

    def first_mean(self, folder: Path) -> float:
        said = self._averages_of("first_step", folder, service=True)
        return float(said[0]["mean"])

    def averages(self, folder: Path) -> str:
        said = self._averages_of("buckets", folder, service=False)
        num, exact = said[0]["num_tensors"], min(each["num_exact"] for each in said)
        return EXACT if num == exact else f"{num - exact} of {num} tensors are wrong"

    def divergence(self, folder: Path) -> str:
        said = self._averages_of("divergence", folder, service=True)
        caught = {each["caught_at"] for each in said}
        healed = len({each["weight"] for each in said}) == 1
        if caught == {said[0]["flipped_after"] + 1} and healed:
            return CAUGHT
        return f"told at {sorted(caught)}, {'healed' if healed else 'the replicas differ'}"

    def _averages_of(self, what: str, folder: Path, *, service: bool) -> list[dict[str, Any]]:
        return self._side_by_side("averages", folder, num=2, facts=(what,), service=service)

    def _side_by_side(
        self,
        what: str,
        folder: Path,
        *,
        num: int,
        facts: tuple[object, ...],
        service: bool = False,
    ) -> list[dict[str, Any]]:
        """Run a program so many times, each with its number; return what each says."""
        RunFiles.prepare(folder)
        with Programs(folder / "programs") as programs:
            if service:
                _start_service(programs, folder, num)
            module = f"danaus.app.bench_ft_{what}"
            return finish(
                [
                    programs.start_ours(module, folder, at, *facts, name=f"{what}-{at}")
                    for at in range(num)
                ]
            )

    def _loop(self, shape: Shape, num_steps: int, folder: Path) -> list[dict[str, Any]]:
        """Run plain processes that train; return the lines of one of them."""
        RunFiles.prepare(folder)
        logs = [folder / f"steps-{at}.jsonl" for at in range(shape.replicas)]
        jobs = [
            ReplicaJob(
                folder=str(folder),
                log=str(log),
                name=f"replica-{at}",
                incarnation=0,
                width=shape.width,
                compute_s=shape.step_s,
                num_leaves=shape.replicas,
                num_steps=num_steps,
                bits=shape.bits,
            )
            for at, log in enumerate(logs)
        ]
        with Programs(folder / "programs") as programs:
            _start_service(programs, folder, shape.replicas)
            words = [json.dumps(dataclasses.asdict(job)) for job in jobs]
            replica = "danaus.app.bench_ft_replica"
            finish(
                [
                    programs.start_ours(replica, word, name=job.name)
                    for job, word in zip(jobs, words, strict=True)
                ]
            )
        return [line for line in read_log(logs[0]) if "step" in line]


def _start_service(programs: Programs, folder: Path, num_replicas: int) -> None:
    words = ("--run", folder, "--expected-replicas", num_replicas)
    programs.start_ours(_SERVICE, *words, name="quorum")

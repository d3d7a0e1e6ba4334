"""Whole runs for tests: a small training under a real controller, and what it must come to.

Owns ``small_run``, ``running``, ``finish`` and ``plain_sha256``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from danaus.app.chaos import FaultPlan
from danaus.app.experiment import RunOrder
from danaus.app.lab_folder import LABS
from danaus.app.launch import Launched
from danaus.app.run_folder import RunFolder
from danaus.app.run_result import RunResult
from danaus.app.settings import RunConfig
from danaus.core.errors import DeadlinePassed
from danaus.ft.observer import Observer
from danaus.model.config import LlamaConfig
from danaus.testing.watching import RunWatch
from danaus.train.config import CheckpointConfig, DataConfig, ParallelConfig, StepConfig
from danaus.train.plain import run_plain
from danaus.train.replica import ReplicaWork
from danaus.train.trainer import Trainer

Observers = Mapping[str, tuple[Callable[[ReplicaWork], Observer], ...]]


@dataclass(frozen=True, slots=True)
class SmallRun:
    """A run of a few steps of a tiny network.

    Args:
        config: Every setting.
        observers: Extra observers by replica.
        resume: Whether the folder holds an earlier part of it.
        heal: Whether a replica whose bits differ heals.
        chaos: Faults on purpose.
        labs: Folder of the labs whose hosts it may span.
        adopt: Whether what an earlier controller has left goes on.
        take_over: Whether a controller of its folder that is alive is ended.
    """

    config: RunConfig
    observers: Observers = field(default_factory=dict)
    resume: bool = False
    heal: bool = True
    chaos: FaultPlan | None = None
    labs: Path = LABS
    adopt: bool = True
    take_over: bool = False

    @property
    def folder(self) -> RunFolder:
        """The run's folder."""
        if self.config.run_dir is None:
            raise ValueError("a small run has a folder")
        return RunFolder.open(self.config.run_dir)

    def launch(self, name: str = "run") -> Launched:
        """Start the run's controller."""
        order = RunOrder(
            self.folder.path,
            self.config,
            resume=self.resume,
            heal=self.heal,
            observers=self.observers,
            chaos=self.chaos,
            labs=self.labs,
            adopt=self.adopt,
            take_over=self.take_over,
        )
        return Launched(name, order)

    def again(self, *, adopt: bool = True, take_over: bool = False) -> SmallRun:
        """Return the same run, going on from what its folder holds, with nothing on purpose.

        Args:
            adopt: Go on with what lives.
            take_over: End a controller that is alive.
        """
        return replace(
            self, resume=True, observers={}, chaos=None, adopt=adopt, take_over=take_over
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large a small run is.

    Args:
        replicas: Replica groups.
        ranks: Processes of each.
        steps: Steps.
        leaves: Leaves of a step.
    """

    replicas: int = 3
    ranks: int = 1
    steps: int = 12
    leaves: int = 5


def small_run(
    path: Path,
    shape: Shape,
    *,
    observers: Observers | None = None,
    heal: bool = True,
    chaos: FaultPlan | None = None,
    bits: str = "auto",
    **more: object,
) -> SmallRun:
    """Make the folder of a tiny run.

    Args:
        path: The run's folder, to be made.
        shape: How large it is.
        observers: Extra observers by replica.
        heal: Whether a replica whose bits differ heals.
        chaos: Faults on purpose.
        bits: Whether sums have one order.
        more: Further fields of ``RunConfig``.
    """
    text = path.parent / "text.txt"
    if not text.exists():
        text.write_bytes(bytes(range(256)) * 64)
    settings: dict[str, object] = {
        "model": LlamaConfig(dim=32, num_layers=2, num_heads=4, num_kv_heads=2, ffn_dim=64),
        "data": DataConfig(path=str(text)),
        "step": StepConfig(
            num_microbatches=shape.leaves,
            microbatch_size=max(2, shape.ranks),
            seq_len=32,
            num_steps=shape.steps,
            seed=7,
            bits=bits,
        ),
        "parallel": ParallelConfig(shard=shape.ranks),
        "checkpoint": CheckpointConfig(every_steps=4, keep=2),
        "replicas": shape.replicas,
        "run_dir": path,
        "hang_limit_s": 3.0,
    }
    config = RunConfig(**{**settings, **more})  # type: ignore[arg-type]
    RunFolder.create(path, config).release()
    return SmallRun(config, observers or {}, heal=heal, chaos=chaos)


class Running:
    """A small run that goes on.

    Args:
        run: What.
        launched: Its controller, in this process.
    """

    def __init__(self, run: SmallRun, launched: Launched) -> None:
        self.run, self.launched = run, launched
        self.watch = RunWatch(run.folder, ended=lambda: launched.wait(0.0))

    def result(self, limit_s: float = 50.0) -> RunResult:
        """Wait for the end and return how it ended.

        Raises:
            DeadlinePassed: It did not end in time, or was stopped.
        """
        if not self.launched.wait(limit_s):
            raise DeadlinePassed(f"the end of a small run (at step {self.watch.step})", limit_s)
        result = self.launched.result()
        if result is None:
            raise DeadlinePassed("the end of a run that was stopped", limit_s)
        return result


@contextlib.contextmanager
def running(run: SmallRun) -> Iterator[Running]:
    """Start a run; on leaving the context it is stopped if it has not ended."""
    launched = run.launch()
    try:
        yield Running(run, launched)
    finally:
        if not launched.wait(0.0):
            launched.stop("the test is over")


def finish(run: SmallRun, *, limit_s: float = 50.0) -> RunResult:
    """Run to the end and return how it ended; see ``Running.result``."""
    with running(run) as going:
        return going.result(limit_s)


def plain_sha256(config: RunConfig) -> str:
    """Return the hash of the state that one process alone comes to, without any of danaus's
    processes, votes or sockets."""
    threads = torch.get_num_threads()
    torch.set_num_threads(config.platform.num_threads)
    try:
        return run_plain(Trainer(config), config.step.num_steps)
    finally:
        torch.set_num_threads(threads)

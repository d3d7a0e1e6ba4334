"""A run folder as a run would leave it, made up, for tests of what reads run folders.

Owns ``StoryTeller``: it lives through a run in made-up time, writes ledgers and a journal in the
formats of the real ones, and is told which faults strike when.  No process, no training.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from danaus.ft.ledger import Committed, Ledger, Opened
from danaus.quorum.messages import Epoch, MemberId

STARTED_AT = 1_700_000_000.0


@dataclass
class StoryTeller:
    """Writes the files of a run of ``num_replicas`` replicas in made-up time.

    Args:
        path: The run folder to fill; it is made.
        num_replicas: Replicas of one rank each.
        num_steps: Steps that the run plans.
        step_s: Usual time of a step, in seconds.
    """

    path: Path
    num_replicas: int = 3
    num_steps: int = 100
    step_s: float = 0.2
    now: float = STARTED_AT
    step: int = 0
    epoch: int = 0
    alive: dict[str, int] = field(default_factory=dict)
    loss_offset: float = 0.0
    _opened: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for name in ("ledger", "control", "metrics"):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        self.names = [f"replica-{i}" for i in range(self.num_replicas)]
        (self.path / "config.toml").write_text(
            f"replicas = {self.num_replicas}\n\n[step]\nnum_steps = {self.num_steps}\nseed = 1\n"
        )
        self.record(
            "run_started",
            name="debug",
            replicas=self.names,
            ranks=1,
            steps=self.num_steps,
            pid=4000,
        )
        self.record("service_started", pid=4001, address="unix:/s")
        for i, name in enumerate(self.names):
            self.alive[name] = 0
            self._started(name, pid=4100 + i)
        self.now += 1.0
        self.announce()

    # -- telling ---------------------------------------------------------------------------

    def record(self, event: str, **facts: Any) -> None:
        """Append a journal line."""
        line = json.dumps({"at": self.now, "mono": self.now, "event": event, **facts})
        with (self.path / "journal.jsonl").open("a") as file:
            file.write(line + "\n")

    def announce(self, learners: tuple[str, ...] = ()) -> None:
        """Announce a new quorum of the living without the learners."""
        self.epoch += 1
        self.record(
            "quorum_announced",
            epoch=f"1.{self.epoch}",
            members=self.members(learners),
            learners=[f"{n}/0#{self.alive[n]}" for n in learners],
            committed_step=self.step,
            hold=bool(learners),
            reason="all that are known have joined",
        )

    def members(self, without: tuple[str, ...] = ()) -> list[str]:
        """Return the living as the ledger names them."""
        return [f"{n}/0#{i}" for n, i in sorted(self.alive.items()) if n not in without]

    def run(self, num_steps: int) -> None:
        """Commit steps with those who are alive; fewer take longer."""
        for _ in range(num_steps):
            self.step += 1
            self.now += self.step_s * self.num_replicas / max(1, len(self.alive))
            wobble = 0.12 * math.sin(self.step * 1.7) * math.sin(self.step * 0.31)
            loss = 1.9 + 3.7 * math.exp(-self.step / 45) + wobble + self.loss_offset
            state = hashlib.sha256(f"{self.step}{self.loss_offset}".encode()).hexdigest()[:16]
            for name in sorted(self.alive):
                self._commit(name, loss, state)

    def kill(self, name: str, *, injected: bool = True, away_steps: int = 5) -> None:
        """Kill a worker and bring it back."""
        if injected:
            self._inject("kill", name)
        self.now += 0.004
        self._exited(name, "SIGKILL")
        self._come_back(name, away_steps)

    def hang(self, name: str, *, limit_s: float = 3.0, away_steps: int = 5) -> None:
        """Stop a worker until it is evicted, and bring it back."""
        self._inject("hang", name)
        self.now += limit_s
        facts = {"replica": name, "rank": 0, "incarnation": self.alive[name]}
        self.record("hang_noticed", **facts, still_s=limit_s, reason="furthest behind")
        self.now += 0.05
        self._exited(name, "SIGKILL")
        self._come_back(name, away_steps)

    def kill_service(self, *, down_steps: int = 4) -> None:
        """Kill the quorum service; the replicas go on."""
        self.record("fault_injected", fault="s", kind="kill_coordinator", target="quorum service")
        self.now += 0.003
        self.record("service_exited", pid=4001, signal="SIGKILL")
        self.run(down_steps)
        self.record("service_restarted", pid=4002, attempt=1)

    def finish(self) -> None:
        """End well."""
        sha = hashlib.sha256(f"{self.step}{self.loss_offset}".encode()).hexdigest()
        self.record("run_finished", step=self.step, sha256=sha, job_restarts=0)
        for name in sorted(self.alive):
            self._exited(name, "", expected=True, alive_after=True)

    # -- parts -----------------------------------------------------------------------------

    def _inject(self, kind: str, name: str) -> None:
        facts = {"incarnation": self.alive[name], "process_id": f"host-0/{name}/0"}
        self.record("fault_injected", fault=f"{kind}-{self.step}", kind=kind, target=name, **facts)

    def _started(self, name: str, pid: int) -> None:
        facts = {"replica": name, "rank": 0, "incarnation": self.alive[name], "pid": pid}
        self.record("process_started", **facts)

    def _exited(
        self, name: str, signal: str, *, expected: bool = False, alive_after: bool = False
    ) -> None:
        facts = {"replica": name, "rank": 0, "incarnation": self.alive[name], "signal": signal}
        self.record("process_exited", **facts, expected=expected)
        if not alive_after:
            self._dead = (name, self.alive.pop(name))
            self._opened.discard(name)

    def _come_back(self, name: str, away_steps: int) -> None:
        incarnation = self._dead[1] + 1
        self.now += 0.06
        self.announce()
        self.run(1)
        self.alive[name] = incarnation
        self._started(name, pid=5000 + self.step)
        del self.alive[name]
        self.run(away_steps)
        self.alive[name] = incarnation
        self.announce(learners=(name,))
        self.record("learning_started", replica=name, incarnation=incarnation, step=self.step)
        self.now += 0.05
        facts = {
            "bytes": 4_500_000,
            "duration_s": 0.05,
            "donors": [f"{n}/0#0" for n in self.names if n != name],
        }
        self.record("healed", replica=name, incarnation=incarnation, step=self.step, **facts)
        self.announce()
        self.run(1)

    def _commit(self, name: str, loss: float, state: str) -> None:
        members = tuple(MemberId(n, 0, i) for n, i in sorted(self.alive.items()))
        line = Committed(
            at=self.now,
            step=self.step,
            epoch=Epoch(1, self.epoch),
            members=members,
            leaves={m.replica_id: (i, i + 1) for i, m in enumerate(members)},
            samples=tuple(str(self.step * 100 + i) for i in range(len(members))),
            num_tokens=2048,
            loss=loss,
            grad_norm=1.0,
            fingerprint=state,
        )
        opened = Opened(at=self.now, member=MemberId(name, 0, self.alive[name]))
        path = self.path / "ledger" / f"{name}-0.jsonl"
        if name in self._opened:
            with path.open("ab") as file:
                file.write(msgspec.json.encode(line) + b"\n")
            return
        self._opened.add(name)
        with Ledger(path, opened) as ledger:
            ledger.append(line)


def tell_demo(path: Path) -> StoryTeller:
    """Write a run with the demo's three faults, and its undisturbed twin beside it."""
    twin = StoryTeller(path / "undisturbed")
    twin.run(100)
    twin.finish()
    story = StoryTeller(path)
    story.run(22)
    story.kill("replica-1")
    story.run(12)
    story.hang("replica-2")
    story.run(10)
    story.kill_service()
    story.run(2)
    story.kill("replica-0", injected=False)
    story.run(100 - story.step)
    story.finish()
    return story

"""Every error that danaus raises on purpose.

    DanausError
    ├── ConfigError            JOB      a setting, path or argument cannot be used
    ├── DependencyMissing      JOB      a library this command needs is not installed
    ├── DeviceUnavailable      JOB      the wanted kind of device cannot be had
    ├── RunFolderBusy          JOB      the run folder belongs to another run
    ├── Diverged               JOB      replicas disagree, and nothing heals that
    ├── NoQuorum               JOB      no quorum could be formed, and waiting will not help
    ├── RestartsExhausted      JOB      a supervisor's restart budget is used up
    ├── StepImpossible         JOB      a step comes out unfit for use however often it is tried
    ├── CheckpointDamaged      JOB      a checkpoint's bytes are not those its manifest names
    ├── LedgerDamaged          JOB      ledgers contradict each other or cannot be read
    ├── StaleQuorum            STEP     a message or a file carries an epoch that has ended
    ├── ExchangeAborted        STEP     a group was told to leave what it was blocked in
    ├── PeerLost               STEP     a member of a group went away during an exchange
    ├── ShareUnfit             REPLICA  what one replica computes of a step is unfit for use
    ├── TransferFailed         REPLICA  a joiner could not fetch its state from any donor
    ├── ServiceLost            REPLICA  the quorum service cannot be reached within the limit
    ├── ActorError             CALL     an endpoint raised
    ├── SupervisionError       CALL     an actor, its process or its host is gone
    ├── AddressRefused         CALL     an address cannot be dialled or bound
    ├── HandshakeRefused       CALL     a peer did not prove that it holds the job's secret
    ├── FrameDamaged           CALL     bytes on a channel are not a frame of ours
    ├── MessageTooLarge        CALL     a message does not fit into a frame
    ├── ChannelClosed          CALL     a channel or session ended
    ├── DeadlinePassed         CALL     a wait reached its limit
    └── InternalError          JOB      a promise of our own was broken; names its label

Fields in, message out: what happened, what was needed, what to do.  ``scope`` says how much
work the fault throws away; recovery switches on it and on nothing else.  Every error survives
pickling with its fields.
"""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass, fields
from typing import Any, ClassVar


class Scope(enum.Enum):
    """How much work a fault throws away."""

    CALL = "call"
    STEP = "step"
    REPLICA = "replica"
    JOB = "job"


class DanausError(Exception):
    """Base of every error raised on purpose; subclasses are dataclasses."""

    scope: ClassVar[Scope] = Scope.CALL

    def __post_init__(self) -> None:
        super().__init__(self.message())

    def message(self) -> str:
        """Return the sentence a person reads."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.message()

    def facts(self) -> dict[str, Any]:
        """Return the fields by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), **self.facts()), ()


@dataclass(eq=False)
class ConfigError(DanausError):
    """A setting, path or argument cannot be used."""

    scope: ClassVar[Scope] = Scope.JOB
    what: str
    needed: str = ""
    to_do: str = ""

    def message(self) -> str:
        what = f"{self.what}: {self.needed}" if self.needed else self.what
        return f"{what}; {self.to_do}" if self.to_do else what


@dataclass(eq=False)
class DependencyMissing(DanausError):
    """A library that this command needs is not installed, or is too old."""

    scope: ClassVar[Scope] = Scope.JOB
    library: str
    needed_for: str
    install: str
    found: str = "not installed"

    def message(self) -> str:
        what = f"{self.library} is {self.found}: {self.needed_for} needs it"
        return f"{what}; install it with: {self.install}"


@dataclass(eq=False)
class DeviceUnavailable(DanausError):
    """The wanted kind of device cannot be had."""

    scope: ClassVar[Scope] = Scope.JOB
    kind: str
    looked_for: str
    to_do: str = "run on the CPU with --device cpu"

    def message(self) -> str:
        return f"no {self.kind} device: looked for {self.looked_for}; {self.to_do}"


@dataclass(eq=False)
class RunFolderBusy(DanausError):
    """The run folder already belongs to another run."""

    scope: ClassVar[Scope] = Scope.JOB
    path: str
    held_by: str
    to_do: str

    def message(self) -> str:
        return f"{self.path} already holds {self.held_by}; {self.to_do}"


@dataclass(eq=False)
class Diverged(DanausError):
    """Replicas disagree about the state after a step, and nothing heals that (Q-9)."""

    scope: ClassVar[Scope] = Scope.JOB
    step: int
    fingerprints: dict[str, str]
    reason: str = ""

    def message(self) -> str:
        who = ", ".join(f"{name} has {value}" for name, value in sorted(self.fingerprints.items()))
        reason = self.reason or f"replicas disagree about the state after step {self.step}"
        to_do = "test these hosts' memory and devices, then resume from a checkpoint"
        return f"{reason}: {who}; {to_do}"


@dataclass(eq=False)
class NoQuorum(DanausError):
    """No quorum can be formed, and waiting longer will not help."""

    scope: ClassVar[Scope] = Scope.JOB
    reason: str
    to_do: str

    def message(self) -> str:
        return f"no quorum: {self.reason}; {self.to_do}"


@dataclass(eq=False)
class RestartsExhausted(DanausError):
    """A supervisor's restart budget is used up."""

    scope: ClassVar[Scope] = Scope.JOB
    name: str
    restarts: int
    period_s: float
    last: str

    def message(self) -> str:
        often = f"more than {self.restarts} times in {self.period_s:.0f} s"
        return f"{self.name} failed {often}, last: {self.last}; mend the cause, then resume the run"


@dataclass(eq=False)
class StepImpossible(DanausError):
    """A step comes out unfit for use however often it is tried (T-2)."""

    scope: ClassVar[Scope] = Scope.JOB
    step: int
    why: str

    def message(self) -> str:
        return f"step {self.step} comes out unfit for use each time that it is tried: {self.why}"


@dataclass(eq=False)
class CheckpointDamaged(DanausError):
    """A checkpoint's bytes are not those that its manifest names."""

    scope: ClassVar[Scope] = Scope.JOB
    path: str
    why: str

    def message(self) -> str:
        return f"checkpoint {self.path} is damaged: {self.why}; an older one is tried"


@dataclass(eq=False)
class LedgerDamaged(DanausError):
    """Ledgers contradict each other or cannot be read."""

    scope: ClassVar[Scope] = Scope.JOB
    path: str
    why: str

    def message(self) -> str:
        return f"ledger {self.path}: {self.why}"


@dataclass(eq=False)
class StaleQuorum(DanausError):
    """A message or a file carries an epoch or an incarnation that has ended."""

    scope: ClassVar[Scope] = Scope.STEP
    what: str
    epoch: str
    current: str

    def message(self) -> str:
        return f"{self.what} belongs to epoch {self.epoch}, the current one is {self.current}"


@dataclass(eq=False)
class ExchangeAborted(DanausError):
    """A group was told to leave what it was blocked in (Q-5)."""

    scope: ClassVar[Scope] = Scope.STEP
    reason: str

    def message(self) -> str:
        return f"exchange aborted: {self.reason}"


@dataclass(eq=False)
class PeerLost(DanausError):
    """A member of a group went away during an exchange."""

    scope: ClassVar[Scope] = Scope.STEP
    peer: str
    why: str

    def message(self) -> str:
        return f"lost {self.peer}: {self.why}"


@dataclass(eq=False)
class ShareUnfit(DanausError):
    """What one replica alone computes of a step is unfit, or wrong: ``stays_out`` (T-2, T-8)."""

    scope: ClassVar[Scope] = Scope.REPLICA
    step: int
    why: str
    stays_out: bool = False

    def message(self) -> str:
        to_do = "; test this host's memory and device" if self.stays_out else ""
        return f"step {self.step}: {self.why}; this process ends, so that others compute it{to_do}"


@dataclass(eq=False)
class TransferFailed(DanausError):
    """A joiner could not fetch its state from any donor."""

    scope: ClassVar[Scope] = Scope.REPLICA
    step: int
    tried: dict[str, str]

    def message(self) -> str:
        each = ", ".join(f"{donor} ({why})" for donor, why in sorted(self.tried.items()))
        return f"no donor could serve step {self.step}: tried {each or 'none'}"


@dataclass(eq=False)
class ServiceLost(DanausError):
    """The quorum service cannot be reached within the limit."""

    scope: ClassVar[Scope] = Scope.REPLICA
    address: str
    limit_s: float
    why: str

    def message(self) -> str:
        what = f"quorum service at {self.address} not reached for {self.limit_s:.1f} s ({self.why})"
        return f"{what}; start it again with the same run folder"


@dataclass(eq=False)
class ActorError(DanausError):
    """An endpoint raised.  ``exception``, its cause, is what, where that could be pickled."""

    scope: ClassVar[Scope] = Scope.CALL
    actor: str
    endpoint: str
    raised: str
    remote_traceback: str
    exception = BaseException.__cause__  # by Monarch's name

    def message(self) -> str:
        return f"{self.actor}.{self.endpoint} raised {self.raised}\n{self.remote_traceback}"


@dataclass(eq=False)
class SupervisionError(DanausError):
    """An actor, its process or its host is gone."""

    scope: ClassVar[Scope] = Scope.CALL
    actor: str
    why: str
    exit_code: int | None = None
    signal: str | None = None
    log_tail: tuple[str, ...] = ()

    def message(self) -> str:
        tail = "".join(f"\n  | {line}" for line in self.log_tail)
        return f"{self.actor} is gone: {self.why}{tail}"


@dataclass(eq=False)
class AddressRefused(DanausError):
    """An address cannot be dialled or bound."""

    scope: ClassVar[Scope] = Scope.CALL
    address: str
    why: str

    def message(self) -> str:
        return f"cannot use address {self.address}: {self.why}"


@dataclass(eq=False)
class HandshakeRefused(DanausError):
    """A peer did not prove that it holds the job's secret (W-2)."""

    scope: ClassVar[Scope] = Scope.CALL
    peer: str
    why: str

    def message(self) -> str:
        return f"handshake with {self.peer} refused: {self.why}"


@dataclass(eq=False)
class FrameDamaged(DanausError):
    """Bytes on a channel are not a frame of ours (W-3)."""

    scope: ClassVar[Scope] = Scope.CALL
    peer: str
    why: str

    def message(self) -> str:
        return f"damaged frame from {self.peer}: {self.why}; the session is closed"


@dataclass(eq=False)
class MessageTooLarge(DanausError):
    """A message does not fit into a frame; nothing of it was sent."""

    scope: ClassVar[Scope] = Scope.CALL
    size: int
    limit: int
    unit: str

    def message(self) -> str:
        what = f"a message of {self.size} {self.unit}; a frame holds {self.limit}"
        return f"{what}; send it in pieces or raise max_frame_bytes on both sides"


@dataclass(eq=False)
class ChannelClosed(DanausError):
    """A channel or session ended."""

    scope: ClassVar[Scope] = Scope.CALL
    peer: str
    why: str

    def message(self) -> str:
        return f"connection with {self.peer} closed: {self.why}"


@dataclass(eq=False)
class DeadlinePassed(DanausError, TimeoutError):
    """A wait reached its limit; a ``TimeoutError`` too, which is what callers expect to catch."""

    scope: ClassVar[Scope] = Scope.CALL
    waited_for: str
    limit_s: float

    def message(self) -> str:
        return f"waited {self.limit_s:.1f} s for {self.waited_for}"


@dataclass(eq=False)
class InternalError(DanausError):
    """A promise of our own was broken; ``label`` names it (as in ``T-1``)."""

    scope: ClassVar[Scope] = Scope.JOB
    label: str
    what: str

    def message(self) -> str:
        return f"promise {self.label} broken: {self.what}; please report this with the journal"

"""What each kind of fault does inside a worker, in words and in deed.

Owns the table of them.  Loaded in workers only, torch with it.
"""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from danaus.app import chaos_damage, chaos_harm, chaos_kernel
from danaus.app.chaos_fault import Fault
from danaus.app.chaos_inside import Blow
from danaus.app.events import FaultKind
from danaus.core.errors import ConfigError

FROZEN_S = 10.0
"""How long a process is kept in the kernel: longer than a fence waits (Q-7)."""

Act = Callable[[Blow], object]


@dataclass(frozen=True, slots=True)
class Effect:
    """What a kind of fault does in one place.

    Args:
        text: In words; ``{who}`` is the replica.
        act: In deed; called once it is written down, or given ``Blow.say`` for the moment when
            it really strikes.
        occasion: The moment of a step that it needs, or has unless another is named.
        by_itself: It calls ``Blow.say`` itself.
    """

    text: str
    act: Act
    occasion: str = "compute"
    by_itself: bool = False


def occasion_of(fault: Fault) -> str:
    """Return the moment of a step that a fault names or needs; without any, its beginning."""
    effect = _EFFECTS.get(_place(fault))
    return fault.at_phase or (effect.occasion if effect is not None else "compute")


def strike(blow: Blow) -> bool:
    """Strike this process; true if what is to be hit is not there yet, so that it comes again.

    Raises:
        ConfigError: It cannot be done here.
    """
    fault = blow.fault
    if blow.has_struck:
        return False
    effect = _effect(fault)
    if fault.kind is FaultKind.FLIP_BIT and fault.where == "checkpoint":
        return _flip_checkpoint(blow, effect)
    blow = dataclasses.replace(blow, text=effect.text.format(who=blow.work.place.replica_id))
    if effect.by_itself or blow.say():
        effect.act(blow)
    return False


def _flip_checkpoint(blow: Blow, effect: Effect) -> bool:
    part = chaos_damage.newest_checkpoint(blow.run_dir / "checkpoints")
    if part is None:
        return True
    text = effect.text.format(who=blow.work.place.replica_id)
    blow = dataclasses.replace(blow, text=f"{text} {part.parent.name}")
    if blow.say():
        chaos_damage.flip_on_disk(part)
    return False


def _place(fault: Fault) -> tuple[FaultKind, str]:
    return fault.kind, fault.where or next(iter(fault.facts.where), "")


def _effect(fault: Fault) -> Effect:
    effect, where = _EFFECTS.get(_place(fault)), fault.where
    if effect is None:
        raise ConfigError(
            f"{fault.kind.value}{f' in {where}' if where else ''} cannot be done inside a worker",
            f"one of {', '.join(sorted({kind.value for kind, _ in _EFFECTS}))}",
        )
    return effect


def _slow_down(blow: Blow) -> None:
    factor = blow.fault.amount or blow.fault.facts.amount or 1.0
    for_s = blow.fault.for_s or blow.fault.facts.for_s or 0.0
    chaos_harm.slow_down(blow.work, factor, for_s)


def _spoil(blow: Blow, what: str, spoil: Callable[[Tensor], None]) -> None:
    name, tensor = chaos_damage.first_of(blow.work, blow.fault.where or "parameters")
    if dataclasses.replace(blow, text=what.format(name, blow.work.place.replica_id)).say():
        spoil(tensor)


def _exhaust(blow: Blow) -> None:
    chaos_kernel.limit_memory(chaos_harm.OOM_ROOM_BYTES)
    blow.say()
    chaos_harm.exhaust_memory()


def _jump(blow: Blow) -> None:
    seconds = blow.fault.amount or blow.fault.facts.amount or 0.0
    which: Literal["day", "monotonic"] = "monotonic" if blow.fault.where == "monotonic" else "day"
    chaos_harm.jump_clock(seconds, which)


_EFFECTS: dict[tuple[FaultKind, str], Effect] = {
    (FaultKind.KILL, ""): Effect(
        "SIGKILL of {who}", lambda _: chaos_harm.send_self(signal.SIGKILL)
    ),
    (FaultKind.SEGV, ""): Effect(
        "{who} writes to the address 0", lambda _: chaos_harm.touch_null()
    ),
    (FaultKind.OOM, ""): Effect("{who} runs out of memory", _exhaust, by_itself=True),
    (FaultKind.HANG, "stop"): Effect(
        "SIGSTOP of {who}", lambda blow: chaos_kernel.stop(blow.fault.for_s)
    ),
    (FaultKind.HANG, "gil"): Effect(
        "{who} hangs in a call of C that keeps the interpreter's lock",
        lambda blow: chaos_harm.hold_interpreter(blow.fault.for_s),
    ),
    (FaultKind.HANG, "collective"): Effect(
        "{who} hangs in a collective", lambda blow: chaos_harm.wait(blow.fault.for_s), "reduce"
    ),
    (FaultKind.HANG, "loader"): Effect(
        "{who} waits for a batch that never comes",
        lambda blow: chaos_harm.starve(blow.work, blow.say, blow.fault.for_s),
        by_itself=True,
    ),
    (FaultKind.HANG, "kernel"): Effect(
        "{who} hangs where no kill ends it",
        lambda blow: chaos_kernel.freeze(blow.fault.for_s or FROZEN_S, blow.say),
        by_itself=True,
    ),
    (FaultKind.SLOW, ""): Effect("{who} is slow", _slow_down),
    (FaultKind.DISK_FULL, ""): Effect(
        "the disk of the run folder is full",
        lambda blow: chaos_kernel.fill_disk(
            blow.run_dir, blow.fault.for_s or blow.fault.facts.for_s or 0.0, blow.say
        ),
        by_itself=True,
    ),
    (FaultKind.FLIP_BIT, "parameters"): Effect(
        "",
        lambda blow: _spoil(blow, "one bit of {} flipped in {}", chaos_damage.flip),
        by_itself=True,
    ),
    (FaultKind.FLIP_BIT, "optimizer"): Effect(
        "",
        lambda blow: _spoil(blow, "one bit of {} flipped in {}", chaos_damage.flip),
        by_itself=True,
    ),
    (FaultKind.FLIP_BIT, "gradient"): Effect(
        "one bit of a gradient flipped in {who}",
        lambda blow: chaos_damage.flip_in_gradient(blow.work, blow.say),
        by_itself=True,
    ),
    (FaultKind.FLIP_BIT, "sum"): Effect(
        "one bit of the reduced gradient flipped in {who}",
        lambda blow: chaos_damage.flip_in_sum(blow.say),
        by_itself=True,
    ),
    (FaultKind.FLIP_BIT, "transfer"): Effect(
        "one bit of what {who} sends to a learner flipped on the way",
        lambda blow: chaos_damage.flip_in_flight("transfer", blow.say),
        by_itself=True,
    ),
    (FaultKind.FLIP_BIT, "exchange"): Effect(
        "one bit of a gradient that {who} sends flipped on the way",
        lambda blow: chaos_damage.flip_in_flight("exchange", blow.say),
        by_itself=True,
    ),
    (FaultKind.FLIP_BIT, "checkpoint"): Effect(
        "one bit flipped on the disk, in the checkpoint", lambda _: None
    ),
    (FaultKind.NAN, "gradient"): Effect(
        "a number of a gradient is none in {who}",
        lambda blow: chaos_damage.put_nan_in_gradient(blow.work, blow.say),
        by_itself=True,
    ),
    (FaultKind.NAN, "parameters"): Effect(
        "",
        lambda blow: _spoil(blow, "a number of {} is none in {}", chaos_damage.put_nan),
        by_itself=True,
    ),
    (FaultKind.CLOCK_JUMP, "day"): Effect("the clock of {who} jumps", _jump),
    (FaultKind.CLOCK_JUMP, "monotonic"): Effect("the steady clock of {who} jumps", _jump),
}

"""The first lines of a run: where it lives, what is trained, on what, and what a loss costs.

Owns ``opening``, a pure function of the settings.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from danaus.app.settings import RunConfig
from danaus.collectives.tree import assign, plan_reduction

_SLOW_WARNING = 1.3


def opening(settings: RunConfig, path: Path, text: str) -> Iterator[str]:
    """Return the lines.

    Args:
        settings: The run's.
        path: Its folder.
        text: Where the data comes from, in words.
    """
    yield f"folder {os.path.relpath(path)}"
    yield f"text   {text}"
    if settings.hosts:
        yield f"hosts  {', '.join(settings.hosts)}"
    model, step = settings.model, settings.step
    yield (
        f"model  Llama, {model.num_parameters:,} parameters ({model.num_layers} layers of width "
        f"{model.dim})"
    )
    shard, replicas = settings.parallel.shard, settings.replicas
    each = "1 process" if shard == 1 else f"{shard} processes"
    who = f"by 1 replica of {each}" if replicas == 1 else f"by {replicas} replicas of {each} each"
    yield f"steps  {step.num_steps:,} of {step.num_tokens:,} tokens, {who}"
    device = settings.platform.device
    bits, _ = step.bits_on("cpu" if device == "auto" else device)
    if bits == "off":
        yield "       each replica sends one sum of what it computed: other bits with other members"
    elif (partials := most_partials(step.num_leaves, replicas)) > 1:
        yield (
            f"       gradients travel as up to {partials} partial sums a replica, "
            f"{(partials + 1) / 2:g} times the bytes of a ring"
        )
    if costs := dict(cost_of_losses(settings)):
        yield f"       {_cost_words(costs, settings)}"


def _cost_words(costs: dict[int, float], settings: RunConfig) -> str:
    words = f"with 1 replica lost a step takes {_times(costs[1])}"
    if 2 in costs:
        words += f", with 2 lost {_times(costs[2])}"
    if costs[1] <= _SLOW_WARNING:
        return words
    even = costs[1] <= settings.replicas / (settings.replicas - 1)
    return f"{words} ({'few replicas share it' if even else _uneven(settings)})"


def _times(ratio: float) -> str:
    return f"up to {ratio:.2f} times as long" if ratio > 1 else "as long as before"


def _uneven(settings: RunConfig) -> str:
    return f"its {settings.step.num_leaves} leaves are shared unevenly; more of them would help"


def most_partials(num_leaves: int, replicas: int) -> int:
    """Return how many partial sums a replica sends in a step, of the one that sends most (T-4).

    With one each, as where each has a power of two of the leaves, a replica sends the bytes of a
    ring; each further one adds half of them.
    """
    plan = plan_reduction(num_leaves, assign(num_leaves, replicas))
    return max(len(nodes) for nodes in plan.nodes)


def cost_of_losses(settings: RunConfig) -> Iterator[tuple[int, float]]:
    """Yield how many times as long a step takes with one and two replicas lost (T-3).

    A batch that shrinks with its members takes as long as before.
    """
    if settings.step.batch == "elastic":
        return
    whole = _longest(settings, settings.replicas)
    for lost in range(1, min(3, settings.replicas)):
        yield lost, _longest(settings, settings.replicas - lost) / whole


def _longest(settings: RunConfig, replicas: int) -> int:
    return max(len(run) for run in assign(settings.step.num_leaves, replicas))

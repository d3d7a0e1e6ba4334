"""The same model in plain DistributedDataParallel over Gloo: what the managed loop is held against.

Owns ``plain_tokens_per_s`` and the process it starts per rank (``python -m
danaus.app.plain_ddp``).  Each rank computes the same microbatches that its replica would; Gloo
averages, nothing is voted, nothing survives a death.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

from danaus.core.errors import ConfigError
from danaus.core.lifeline import arm_lifeline, open_lifeline
from danaus.core.temporary_folder import TemporaryFolder

_WARM_UP_STEPS = 3
_LIMIT_S = 600.0


def plain_tokens_per_s(preset: str, world_size: int, num_steps: int) -> float:
    """Return the tokens per second of ``world_size`` plain ranks.

    Raises:
        ConfigError: A rank failed.
    """
    command = [sys.executable, "-m", "danaus.app.plain_ddp", preset]
    # With this pipe's end, that is, with this process, the ranks are killed (P-4).
    lifeline, end = open_lifeline()
    folder = TemporaryFolder()
    facts = [str(world_size), str(num_steps), str(folder.path / "store"), str(lifeline)]
    ranks: list[subprocess.Popen[str]] = []
    try:
        for rank in range(world_size):
            words = [*command, str(rank), *facts]
            ranks.append(
                subprocess.Popen(words, stdout=subprocess.PIPE, text=True, pass_fds=(lifeline,))
            )
        outputs = [process.communicate(timeout=_LIMIT_S)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
        os.close(lifeline)
        os.close(end)
        folder.remove()
    if any(process.returncode for process in ranks):
        raise ConfigError("plain DDP over Gloo failed", "every rank must end with exit code 0")
    return min(float(json.loads(output)["tokens_per_s"]) for output in outputs)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, kind in (("preset", str), ("rank", int), ("world_size", int), ("num_steps", int)):
        parser.add_argument(name, type=kind)
    parser.add_argument("store")
    parser.add_argument("lifeline", type=int)
    args = parser.parse_args()
    arm_lifeline(args.lifeline)
    rate = _train(
        args.preset,
        args.rank,
        world_size=args.world_size,
        num_steps=args.num_steps,
        store=args.store,
    )
    print(json.dumps({"tokens_per_s": rate}))


def _train(preset_name: str, rank: int, *, world_size: int, num_steps: int, store: str) -> float:
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F

    from danaus.collectives.tree import assign
    from danaus.model.llama import Llama
    from danaus.platform.choice import choose
    from danaus.train.data import ByteText
    from danaus.train.presets import preset
    from danaus.train.text import BatchShape

    config = preset(preset_name)
    choose(config.platform).platform.pin(config.platform)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    step = config.step
    shape = BatchShape(
        num_microbatches=step.num_microbatches, rows=step.microbatch_size, seq_len=step.seq_len
    )
    data = ByteText(config.data, shape, step.seed)
    model = torch.nn.parallel.DistributedDataParallel(Llama(config.model))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.optim.lr, foreach=True)
    run = assign(step.num_leaves, world_size)[rank]
    mine = range(run.start * step.leaf_size, run.stop * step.leaf_size)

    def backward(number: int, microbatch: int) -> None:
        tokens_BT, targets_BT, _ = data.batch(number, microbatch)
        logits_BTV = model(tokens_BT)
        F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten()).backward()  # type: ignore[no-untyped-call]

    started = time.perf_counter()
    for number in range(1, num_steps + _WARM_UP_STEPS + 1):
        if number == _WARM_UP_STEPS + 1:
            started = time.perf_counter()
        with model.no_sync():
            for microbatch in mine[:-1]:
                backward(number, microbatch)
        backward(number, mine[-1])
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.optim.clip_norm)
        optimizer.step()
        optimizer.zero_grad()
    took_s = time.perf_counter() - started
    dist.destroy_process_group()
    return num_steps * step.num_tokens / took_s


if __name__ == "__main__":
    _main()

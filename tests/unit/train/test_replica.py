"""What a replica's rank says of its checkpoints: which may be restored, and of which state."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from danaus.core.errors import CheckpointDamaged
from danaus.ft.place import Place
from danaus.model.config import LlamaConfig
from danaus.quorum.messages import Epoch
from danaus.train.checkpoint import Written
from danaus.train.config import CheckpointConfig, DataConfig, StepConfig, TrainConfig
from danaus.train.parallel import ALONE
from danaus.train.replica import ReplicaWork


@pytest.fixture
def work(tmp_path: Path) -> Iterator[ReplicaWork]:
    """The work of one rank, with a checkpoint every second step."""
    torch.set_num_threads(1)
    text = tmp_path / "text"
    text.write_bytes(bytes(range(32, 127)) * 60)
    config = TrainConfig(
        model=LlamaConfig(dim=16, num_layers=1, num_heads=2, num_kv_heads=1, ffn_dim=24),
        data=DataConfig(path=str(text)),
        step=StepConfig(num_microbatches=2, microbatch_size=2, seq_len=16, num_steps=9),
        checkpoint=CheckpointConfig(every_steps=2),
    )
    place = Place(
        replica_id="a",
        rank=0,
        num_ranks=1,
        incarnation=0,
        quorum_address="unix:/q",
        secret_path="/secret",
        data_address="unix:/d",
        agent_address="",
        process_id="a",
    )
    made = ReplicaWork.build(config, place, shards=ALONE, folder=tmp_path / "checkpoints")
    yield made
    made.close()


def at_step(work: ReplicaWork, step: int) -> None:
    with torch.no_grad():
        work.state()["progress.step"].fill_(step)
        for tensor in work.state().values():
            if tensor.is_floating_point():
                tensor.add_(1.0)


def flip(work: ReplicaWork) -> None:
    with torch.no_grad():
        next(iter(work.state().values())).view(torch.int32).view(-1)[0] ^= 1 << 12


def save(work: ReplicaWork, step: int) -> None:
    """Write the state after a step; all members vote for it."""
    at_step(work, step)
    told: queue.Queue[Written] = queue.Queue()
    work.on_checkpoint(told.put)
    print_of_it = work.fingerprint()
    assert work.checkpoint(step, Epoch(1, 1), print_of_it)
    work.voted(step + 1, {print_of_it}, {work.place.member: work.save_note(step + 1)})
    assert told.get(timeout=30) == Written(step, complete=True)


def test_a_checkpoint_is_known_by_the_state_it_was_written_of(work: ReplicaWork) -> None:
    save(work, 2)
    before = work.fingerprint()
    flip(work)
    assert work.fingerprint() != before
    work.restore(2, 2)
    assert work.fingerprint() == before


def test_the_last_is_written_at_once(work: ReplicaWork) -> None:
    at_step(work, 9)
    assert work.checkpoint_decision(9) == "save"
    work.checkpoint_now(9, Epoch(1, 1), work.fingerprint(), on_wait=lambda: None)
    assert work.restorable_step() == work.save_note(10).complete == 9


def test_no_tensor_is_read_before_it_is_restored(work: ReplicaWork, tmp_path: Path) -> None:
    for step in (2, 4):
        save(work, step)
    (part,) = (tmp_path / "checkpoints" / "step-000004").glob("*.safetensors")
    damaged = bytearray(part.read_bytes())
    damaged[-1] ^= 1
    part.write_bytes(damaged)
    assert work.restorable_step() == 4, "its size is right; its bytes are nobody's business yet"
    with pytest.raises(CheckpointDamaged, match="checksum"):
        work.restore(4, 2)
    assert work.restorable_step() == 2, "now every byte is looked at"

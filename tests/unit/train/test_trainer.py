"""What the trainer promises: leaves are pure, applying is exact, state goes in and out in place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from danaus.collectives.folding import LeafFolder
from danaus.collectives.tree import assign, plan_reduction
from danaus.core.errors import ConfigError, InternalError
from danaus.model.config import LlamaConfig
from danaus.train.checkpoint import Checkpoints, Writer
from danaus.train.config import DataConfig, OptimConfig, ParallelConfig, StepConfig, TrainConfig
from danaus.train.plain import plain_step, run_plain
from danaus.train.trainer import Trainer


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_bytes(bytes(range(32, 127)) * 60)
    return path


def small(text: Path, *, microbatches: int = 6, leaf: int = 2, clip: float = 1.0) -> TrainConfig:
    return TrainConfig(
        model=LlamaConfig(dim=16, num_layers=1, num_heads=2, num_kv_heads=1, ffn_dim=24),
        data=DataConfig(path=str(text)),
        optim=OptimConfig(lr=1e-2, warmup_steps=2, clip_norm=clip),
        step=StepConfig(
            num_microbatches=microbatches,
            leaf_size=leaf,
            microbatch_size=2,
            seq_len=16,
            num_steps=10,
        ),
    )


def trainer(config: TrainConfig) -> Trainer:
    return Trainer(config)


def shared_step(replicas: list[Trainer]) -> None:
    """Take one step shared by several trainers, each adding up its own run of leaves."""
    step, num_leaves = replicas[0].step + 1, replicas[0].num_leaves
    runs = assign(num_leaves, len(replicas))
    partials: list[list[Tensor]] = []
    for replica, run in zip(replicas, runs, strict=True):
        folder = LeafFolder(replica.num_elements)
        folder.begin(run, num_leaves)
        for leaf in run:
            folder.add(leaf, replica.compute_leaf(step, replica.leaf_microbatches(leaf)))
        partials.append(folder.partials())
    plan = plan_reduction(num_leaves, runs)
    slots = [partials[who][k] for who, k in plan.slots]
    for add in plan.adds:
        slots[add.into].add_(slots[add.of])
    for replica in replicas:
        assert replica.check(slots[0]) is None
        replica.apply(step, slots[0].clone(), [replica.measure(slots[0])])


@pytest.mark.parametrize(("microbatches", "leaf"), [(8, 1), (6, 2), (7, 1), (12, 4)])
def test_who_computes_a_leaf_leaves_no_trace(text: Path, microbatches: int, leaf: int) -> None:
    config = small(text, microbatches=microbatches, leaf=leaf)
    expected = run_plain(trainer(config), 4)
    replicas = [trainer(config) for _ in range(4)]
    for members in (3, 1, 4, 2):  # the membership changes at every step (T-4)
        shared_step(replicas[:members])
        for late in replicas[members:]:
            late.load(replicas[0].state())
    assert {each.sha256() for each in replicas} == {expected}
    assert len({each.fingerprint() for each in replicas}) == 1


def filled(trainer_: Trainer, value: float = 1.0) -> Tensor:
    """Return a flat gradient with the tokens of a whole step."""
    flat = torch.full((trainer_.num_elements,), value)
    flat[-1] = trainer_.config.step.num_tokens
    return flat


class WithDropout(nn.Module):
    """A network that draws random numbers in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, 8)
        self.drop = nn.Dropout(0.5)
        self.output = nn.Linear(8, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.output(self.drop(self.embedding(tokens)))
        return logits


class Counting(WithDropout):
    """A network whose forward changes a buffer, in place or by another in its place."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.seen: Tensor
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, tokens: Tensor) -> Tensor:
        if self.how == "changed":
            self.seen += 1
        else:
            self.seen = self.seen + 1
        return super().forward(tokens)


def test_a_leaf_is_a_function_of_state_step_and_microbatches(text: Path) -> None:
    a, b = trainer(small(text)), trainer(small(text))
    before = a.sha256()
    first = a.compute_leaf(1, [2, 3]).clone()
    assert not torch.equal(first, a.compute_leaf(1, [4, 5]))
    assert torch.equal(first, a.compute_leaf(1, [2, 3]))
    assert torch.equal(first, b.compute_leaf(1, range(2, 4)))
    assert a.sha256() == before == b.sha256()
    assert all(parameter.grad is None for parameter in a.network.parameters())


def test_a_leaf_adds_its_microbatches_left_to_right(text: Path) -> None:
    a = trainer(small(text, clip=0.0))
    each = [a.compute_leaf(1, [m]).clone() for m in (0, 1, 2)]
    together = a.compute_leaf(1, [0, 1, 2])
    torch.testing.assert_close(together, each[0] + each[1] + each[2])
    assert float(together[-1]) == 3 * 2 * 16


def test_a_leaf_is_written_where_it_is_asked_for(text: Path) -> None:
    a = trainer(small(text))
    out = torch.full((a.num_elements,), float("nan"))
    assert a.compute_leaf(1, [0], out=out) is out
    assert torch.equal(out, a.compute_leaf(1, [0]))


def test_gradients_are_those_of_the_summed_loss(text: Path) -> None:
    a = trainer(small(text))
    flat = a.compute_leaf(1, [0])
    tokens, targets, _ = a.data.batch(1, 0)
    loss = nn.functional.cross_entropy(
        a.network(tokens).flatten(0, 1), targets.flatten(), reduction="sum"
    )
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(flat[-2]) == pytest.approx(loss.item())
    for name, parameter in a.network.named_parameters():
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, a.layout.views(flat)[name])


def test_a_random_forward_is_a_function_of_seed_step_and_microbatch(text: Path) -> None:
    def build() -> Trainer:
        return Trainer(small(text), make_network=WithDropout)

    a, b = build(), build()
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first = a.compute_leaf(1, [0, 1]).clone()
    assert torch.equal(torch.get_rng_state(), state)  # T-2: no draw remains
    torch.rand(7)
    b.compute_leaf(1, [2])
    assert torch.equal(first, b.compute_leaf(1, [0, 1]))
    assert run_plain(a, 3) == run_plain(b, 3)


@pytest.mark.parametrize("how", ["changed", "replaced"])
def test_a_forward_that_changes_a_buffer_is_refused(text: Path, how: str) -> None:
    a = Trainer(small(text), make_network=lambda: Counting(how))
    with pytest.raises(ConfigError, match=f"buffer seen was {how} during a forward"):
        a.compute_leaf(1, [0])
    assert all(parameter.grad is None for parameter in a.network.parameters())


def test_a_declared_buffer_may_change(text: Path) -> None:
    a = Trainer(
        small(text),
        make_network=lambda: Counting("changed"),
        scratch_buffers=frozenset({"seen"}),
    )
    before = a.sha256()
    a.compute_leaf(1, [0])
    assert a.sha256() == before


def test_a_declared_buffer_must_exist(text: Path) -> None:
    with pytest.raises(ConfigError, match="'nothing' is not in the network"):
        Trainer(
            small(text),
            scratch_buffers=frozenset({"nothing"}),
        )


def test_applying_divides_by_the_tokens_of_the_step_once(text: Path) -> None:
    a = trainer(small(text, clip=0.0))
    flat = filled(a, 96.0)
    result = a.apply(1, flat, [a.measure(flat)])
    tokens = a.config.step.num_tokens
    assert result.num_tokens == tokens
    assert result.loss == pytest.approx(96.0 / tokens)
    count = a.num_elements - 2
    assert result.grad_norm == pytest.approx(96.0 / tokens * count**0.5)
    assert result.lr == pytest.approx(0.005)
    assert a.step == 1


def test_a_long_gradient_is_clipped(text: Path) -> None:
    a = trainer(small(text, clip=0.5))
    flat = filled(a, 1e6)
    a.apply(1, flat, [a.measure(flat)])
    assert float(torch.linalg.vector_norm(flat[:-2])) == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_gradient_that_is_not_finite_is_refused_by_name(text: Path, bad: float) -> None:
    a = trainer(small(text))
    flat = filled(a)
    assert a.check(flat) is None
    a.layout.views(flat)["norm.weight"][3] = bad
    before = a.sha256()
    assert a.check(flat) == "the gradient is not finite in norm.weight"
    assert a.sha256() == before


def test_a_loss_that_is_not_finite_and_missing_tokens_are_refused(text: Path) -> None:
    a = trainer(small(text))
    flat = filled(a)
    flat[-2] = float("nan")
    assert a.check(flat) == "the gradient is not finite in the loss"
    flat = filled(a)
    flat[-1] -= 16
    assert a.check(flat) == "176 tokens of 192 were summed"


def test_steps_come_one_after_the_other(text: Path) -> None:
    a = trainer(small(text))
    with pytest.raises(InternalError, match="T-2"):
        a.compute_leaf(2, [0])
    with pytest.raises(InternalError, match="T-1"):
        a.apply(2, filled(a), [1.0])


def test_state_is_loaded_in_place(text: Path) -> None:
    a, b = trainer(small(text)), trainer(small(text))
    mine = b.state()
    places = {name: tensor.data_ptr() for name, tensor in mine.items()}
    run_plain(a, 2)
    b.load({name: tensor.clone() for name, tensor in a.state().items()})
    assert (b.step, b.sha256(), b.fingerprint()) == (2, a.sha256(), a.fingerprint())
    assert {name: tensor.data_ptr() for name, tensor in b.state().items()} == places
    assert run_plain(a, 2) == run_plain(b, 2)


def test_state_written_from_outside_is_state(text: Path) -> None:
    a, b = trainer(small(text)), trainer(small(text))
    run_plain(a, 1)
    for name, tensor in b.state().items():
        tensor.copy_(a.state()[name])
    assert b.step == 1
    assert run_plain(a, 2) == run_plain(b, 2)


def test_the_state_names_all_that_a_step_changes(text: Path) -> None:
    a = trainer(small(text))
    names = list(a.state())
    parameters = [name for name, _ in a.network.named_parameters()]
    kinds = ("model", "optim.exp_avg", "optim.exp_avg_sq")
    assert names == [f"{k}.{n}" for k in kinds for n in parameters] + ["progress.step"]
    before = {name: tensor.clone() for name, tensor in a.state().items()}
    run_plain(a, 1)
    assert all(not torch.equal(tensor, before[name]) for name, tensor in a.state().items())


def test_a_state_that_does_not_fit_changes_nothing(text: Path) -> None:
    a = trainer(small(text))
    before = a.sha256()
    wrong = {name: tensor.clone() + 1 for name, tensor in a.state().items()}
    wrong["model.norm.weight"] = torch.zeros(3)
    with pytest.raises(ConfigError, match=r"model\.norm\.weight to load is \(3,\)"):
        a.load(wrong)
    del wrong["model.norm.weight"]
    with pytest.raises(ConfigError, match=r"differs in model\.norm\.weight"):
        a.load(wrong)
    assert a.sha256() == before


def test_resetting_is_starting_anew(text: Path) -> None:
    a = trainer(small(text))
    start = a.sha256()
    end = run_plain(a, 3)
    a.reset()
    assert (a.step, a.sha256()) == (0, start)
    assert run_plain(a, 3) == end


def test_another_seed_is_another_start(text: Path) -> None:
    config = small(text)
    other = replace(config, step=replace(config.step, seed=2))
    assert trainer(config).sha256() != trainer(other).sha256()
    assert trainer(config).identity != trainer(other).identity


def test_one_flipped_bit_changes_fingerprint_and_digest(text: Path) -> None:
    a = trainer(small(text))
    before = (a.fingerprint(), a.sha256())
    a.state()["optim.exp_avg.norm.weight"].view(torch.int32)[2] ^= 1
    assert a.fingerprint() != before[0]
    assert a.sha256() != before[1]


def test_the_run_ends_after_its_last_step(text: Path) -> None:
    a = trainer(small(text))
    run_plain(a, 9)
    assert not a.done
    run_plain(a, 1)
    assert a.done


def test_a_run_alone_says_why_it_cannot_go_on(text: Path) -> None:
    a = trainer(small(text))
    a.state()["model.norm.weight"].fill_(float("inf"))
    with pytest.raises(ConfigError, match="step 1: the gradient is not finite"):
        plain_step(a, LeafFolder(a.num_elements))


def test_a_place_must_fit_the_configuration(text: Path) -> None:
    config = replace(small(text), parallel=ParallelConfig(shard=2))
    with pytest.raises(ConfigError, match=r"parallel\.shard is 2"):
        trainer(config)


def test_training_learns_and_a_checkpoint_goes_on_with_the_same_bits(
    text: Path, tmp_path: Path
) -> None:
    a, b = trainer(small(text)), trainer(small(text))
    losses: list[float] = []
    run_plain(a, 5, lambda result: losses.append(result.loss))
    checkpoints = Checkpoints(tmp_path / "checkpoints", identity=a.identity)
    assert checkpoints.write(5, a.state(), Writer("r0", (1, 1))).complete
    end = run_plain(a, 5, lambda result: losses.append(result.loss))
    assert losses[-1] < losses[0] - 0.5
    b.load(checkpoints.read(checkpoints.latest_valid())[0])
    assert run_plain(b, 5) == end

"""Averages, bucket by bucket (T-5, T-6), and the numbers of ``cases/recovery.json``."""

import functools
import json
from pathlib import Path

import pytest
import torch

from danaus.collectives.folding import LeafFolder
from danaus.collectives.reductions import Averager, fill_buckets, plan_contributions
from danaus.collectives.tree import assign, plan_reduction
from danaus.core.errors import ConfigError
from danaus.testing.groups import member_names, soon, together
from danaus.testing.memory_group import MemoryHub

CASES = {
    case["name"]: case
    for case in json.loads((Path(__file__).parent / "cases" / "recovery.json").read_text())[
        "numerics"
    ]
}


def expected(start):
    """Return what the one case whose name begins with ``start`` expects."""
    (name,) = [name for name in CASES if name.startswith(start)]
    return CASES[name].get("expect", CASES[name].get("expect_error"))


def averaged(per_member, contributors=None, bucket_bytes=1 << 20, operation="avg", kind=None):
    """Average each member's list of tensors; return member 0's and check the others'."""
    hub = MemoryHub(member_names(len(per_member)))
    names = hub.names
    chosen = None if contributors is None else [names[i] for i in contributors]
    calls = []
    for name, tensors in zip(names, per_member, strict=True):
        averager = Averager(hub.group(name), names, bucket_bytes=bucket_bytes)
        calls.append(
            functools.partial(
                averager.average,
                tensors,
                deadline=soon(),
                contributors=chosen,
                operation=operation,
                kind=kind,
            )
        )
    together(*calls)
    for tensors in per_member:
        assert all(torch.equal(a, b) for a, b in zip(tensors, per_member[0], strict=True))
    return per_member[0]


def test_every_case_is_tested():
    starts = ("first step", "a learner", "average of 10", "average of int", "bucketed average, 4")
    starts += ("bucketed average, cap", "constant batch", "token weighting")
    assert len(CASES) == len(starts)
    assert all(expected(start) is not None for start in starts)


def test_the_first_step():
    assert averaged([[torch.tensor([1.0])], [torch.tensor([3.0])]])[0].item() == expected("first")


@pytest.mark.parametrize("kind", ["int8", "fp8"])
@pytest.mark.parametrize("operation", ["avg", "sum"])
@pytest.mark.parametrize("bucket_bytes", [400, 1 << 20])
def test_quantised_results_are_near_the_exact_ones_and_equal_everywhere(
    kind, operation, bucket_bytes
):
    draw = torch.Generator().manual_seed(4)
    shapes = ((3, 5), (), (701,), (0,))
    given = [[torch.randn(shape, generator=draw) for shape in shapes] for _ in range(4)]
    exact = averaged([[t.clone() for t in each] for each in given], [0, 1, 3], operation=operation)
    sent = [[t.clone() for t in each] for each in given]
    got = averaged(sent, [0, 1, 3], bucket_bytes, operation, kind)
    largest = max(float(t.abs().max()) for each in given for t in each if t.numel())
    # Each of three is off by half a step of its block at most: an 8th of the largest in fp8.
    allowed = 3 * largest * {"int8": 1 / 250, "fp8": 1 / 15}[kind]
    allowed = allowed / 3 if operation == "avg" else allowed
    for ours, theirs in zip(got, exact, strict=True):
        assert ours.shape == theirs.shape
        assert torch.all((ours - theirs).abs() <= allowed)
    assert not all(torch.equal(a, b) for a, b in zip(got, exact, strict=True))


def test_what_cannot_be_quantised_is_refused_with_words():
    for tensor, operation in ((torch.ones(3), "max"), (torch.ones(3, dtype=torch.int64), "sum")):
        with pytest.raises(ConfigError, match="quantised"):
            averaged([[tensor]], operation=operation, kind="int8")


def test_a_learner_is_not_divided_by():
    got = averaged([[torch.tensor([4.0])], [torch.tensor([77.0])]], contributors=[0])
    assert got[0].item() == expected("a learner")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_halves_are_averaged_without_loss(dtype):
    got = averaged([[torch.full((3,), 10.0, dtype=dtype)] for _ in range(5)])
    assert got[0].dtype == dtype
    assert got[0].tolist() == [expected("average of 10")] * 3


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_an_average_of_whole_numbers_is_refused(dtype):
    assert expected("average of int") == "ConfigError"
    with pytest.raises(ConfigError, match="cannot average"):
        averaged([[torch.ones(3, dtype=dtype)]])


def test_what_is_no_number_is_refused():
    with pytest.raises(ConfigError, match=r"cannot reduce torch\.bool"):
        averaged([[torch.ones(3, dtype=torch.bool)]], operation="sum")
    with pytest.raises(ConfigError, match="by max"):
        averaged([[torch.ones(3, dtype=torch.complex64)]], operation="max")


@pytest.mark.parametrize(
    ("dtype", "operation", "expect"),
    [
        (torch.float64, "avg", 1 + 2**-40),
        (torch.float64, "sum", 3 + 3 * 2**-40),
        (torch.complex64, "avg", 1 + 0j),
        (torch.complex128, "sum", 3 + 3 * 2**-40),
        (torch.int64, "sum", 3 * 2**53),
        (torch.uint8, "sum", 0),
        (torch.int32, "max", 2**31 - 1),
        (torch.float32, "min", 1.0),
        (torch.float32, "sum", 3.0),
        (torch.bfloat16, "product", 1.0),
    ],
)
def test_each_kind_of_number_by_its_own_arithmetic(dtype, operation, expect):
    """What fp32 cannot hold is not summed in it."""
    one = {torch.int64: 2**53, torch.int32: 2**31 - 1, torch.uint8: 256 // 3 + 1}.get(
        dtype, 1 + 2**-40 if dtype in (torch.float64, torch.complex128) else 1
    )
    wrapped = one % 256 if dtype == torch.uint8 else one
    got = averaged([[torch.full((2, 2), wrapped, dtype=dtype)] for _ in range(3)],
                   operation=operation, bucket_bytes=12)[0]  # fmt: skip
    assert got.dtype == dtype
    assert got.tolist() == [[(3 * one) % 256 if dtype == torch.uint8 else expect] * 2] * 2


def test_a_tensor_that_is_not_contiguous_is_reduced_in_place():
    whole = [torch.arange(6.0).view(2, 3), torch.ones(2, 3)]
    averaged([[each.t()] for each in whole], bucket_bytes=8)
    assert whole[0].tolist() == [[0.5, 1.0, 1.5], [2.0, 2.5, 3.0]]
    assert torch.equal(whole[0], whole[1])


@pytest.mark.parametrize("size", [1, 7, 8, 1000])
def test_a_tensor_larger_than_a_bucket_is_cut(size):
    draw = torch.Generator().manual_seed(size)
    given = [torch.randn(size, generator=draw) for _ in range(3)]
    expect = ((given[0] + given[1]) + given[2]) / 3
    assert torch.equal(averaged([[each] for each in given], bucket_bytes=28)[0], expect)


@pytest.mark.parametrize(
    ("start", "num_fitting"), [("bucketed average, 4", 2), ("bucketed average, cap", 0.5)]
)
def test_buckets(start, num_fitting):
    size = 6
    mine = [torch.full((2, 3), float(i + 1)) for i in range(4)]
    theirs = [2 * tensor for tensor in mine]
    got = averaged([mine, theirs], bucket_bytes=int(size * 4 * num_fitting))
    assert [tensor[1, 2].item() for tensor in got] == expected(start)


def updates(num_replicas, leaves):
    """Return what each replica's step comes to; a leaf is its gradient and its tokens, summed."""
    hub = MemoryHub(member_names(num_replicas))
    runs = assign(len(leaves), num_replicas)
    plan = plan_reduction(len(leaves), runs)

    def replica(place):
        folder = LeafFolder(2)
        folder.begin(runs[place], len(leaves))
        for leaf in runs[place]:
            folder.add(leaf, torch.tensor(leaves[leaf]))
        total = torch.empty(2)
        hub.group(hub.names[place]).reduce_tree(
            folder.partials(), total, plan=plan, subset=hub.names, deadline=soon()
        )
        return (total[0] / total[1]).item()

    return together(*(functools.partial(replica, place) for place in range(num_replicas)))


@pytest.mark.parametrize("num_alive", [4, 3, 2, 1])
def test_the_constant_batch(num_alive):
    """Gradients of microbatch m are m + 1, learning rate 1, a token each."""
    leaves = [(leaf + 1.0, 1.0) for leaf in range(8)]
    assert updates(num_alive, leaves) == [expected("constant batch")] * num_alive


def test_tokens_weigh():
    leaves = [(3 * 1.0, 3.0), (1 * 5.0, 1.0)]
    assert updates(2, leaves) == [expected("token weighting")] * 2


def test_nobody_is_no_average():
    hub = MemoryHub(member_names(1))
    averager = Averager(hub.group(hub.names[0]), hub.names)
    with pytest.raises(ConfigError, match="nobody"):
        averager.average([torch.ones(1)], contributors=(), deadline=soon())


def test_parameters_that_need_gradients_are_averaged_in_place():
    parameter = torch.nn.Parameter(torch.ones(2, 2))
    assert averaged([[parameter]])[0] is parameter


@pytest.mark.parametrize(
    ("sizes", "cap", "buckets"),
    [
        ([], 4, ()),
        ([1, 2, 3], 3, (((0, 0, 1), (1, 0, 2)), ((2, 0, 3),))),
        ([5, 1, 3], 3, (((0, 0, 3),), ((0, 3, 5), (1, 0, 1)), ((2, 0, 3),))),
        ([0, 0], 1, (((0, 0, 0), (1, 0, 0)),)),
    ],
)
def test_buckets_are_filled_in_order(sizes, cap, buckets):
    assert fill_buckets(sizes, cap) == buckets


def test_contributors_bring_one_leaf_each():
    plan = plan_contributions(["a", "b", "c"], ["a", "c"])
    assert [len(nodes) for nodes in plan.nodes] == [1, 0, 1]

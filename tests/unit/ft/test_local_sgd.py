"""LocalSGD over a manager in memory."""

import pytest
import torch
from tests.unit.ft.apart import Net, Scalar, each_apart, hand_over, managers, train, weights

from danaus.core.errors import ConfigError
from danaus.ft import LocalSGD


def test_weights_are_averaged_every_so_many_steps():
    def run(manager, replica):
        net, seen = Scalar(), []
        optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
        with LocalSGD(manager, net, optimizer, sync_every=2):
            for _ in range(5):
                net.w.grad = torch.tensor(float(2 * replica))
                optimizer.step()
                seen.append(net.w.item())
        return seen

    assert each_apart(2, run) == [[1.0, -1.0, -1.0, -3.0, -3.0], [-1.0, -1.0, -3.0, -3.0, -5.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_every_tensor_is_the_mean(dtype):
    def run(manager, replica):
        net, alone = Net(dtype=dtype), Net(dtype=dtype)
        train(alone, torch.optim.SGD(alone.parameters(), lr=0.05), range(4), replica)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        with LocalSGD(manager, net, optimizer, sync_every=4):
            train(net, optimizer, range(4), replica)
        return net, alone

    found = each_apart(3, run)
    for at, parameters in enumerate(zip(*[alone.parameters() for _, alone in found], strict=True)):
        wide = [each.detach().to(torch.promote_types(dtype, torch.float32)) for each in parameters]
        mean = ((wide[0] + wide[1]) + wide[2]) / 3
        for net, _ in found:
            torch.testing.assert_close(list(net.parameters())[at].detach(), mean.to(dtype))
            assert torch.equal(weights(net), weights(found[0][0]))


def test_one_replica_trains_plainly_to_the_bit():
    plain, apart = Net(), Net()
    train(plain, torch.optim.AdamW(plain.parameters(), lr=0.05), range(7))
    optimizer = torch.optim.AdamW(apart.parameters(), lr=0.05)
    with LocalSGD(managers(1)[0], apart, optimizer, sync_every=2):
        train(apart, optimizer, range(7))
    assert torch.equal(weights(plain), weights(apart))


def test_a_vote_against_it_loses_no_step():
    def run(manager, replica, num_refused):
        net = Net()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
        vote, votes = manager.should_commit, iter(range(1000))

        def should_commit():
            if next(votes) < num_refused and replica == 0:
                manager.report_error(ValueError("no"))
            return vote()

        manager.should_commit = should_commit
        with LocalSGD(manager, net, optimizer, sync_every=3):
            train(net, optimizer, range(6), replica)
        assert manager.current_step() == 2
        return weights(net)

    ends = [each_apart(2, lambda m, r, n=n: run(m, r, n)) for n in (0, 3)]
    assert all(torch.equal(each, ends[0][0]) for end in ends for each in end)


def test_a_state_goes_over_whole():
    def built(seed):
        net = Net(seed=seed)
        (manager,) = managers(1)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
        return net, optimizer, manager, LocalSGD(manager, net, optimizer, 3)

    donor, learner = built(0), built(1)
    with donor[3]:
        train(*donor[:2], range(4))
        hand_over(donor[2], learner[2])
        with learner[3]:
            train(*donor[:2], range(4, 9))
            train(*learner[:2], range(4, 9))
    assert torch.equal(weights(donor[0]), weights(learner[0]))
    shared = [each[2].state_fns["outer"][1]()["fragments"] for each in (donor, learner)]
    agreed = [fragments[0]["weights"] for fragments in shared]
    assert all(torch.equal(one, other) for one, other in zip(*agreed, strict=True))


def test_what_does_not_fit_is_refused():
    (manager,) = managers(1)
    net = Scalar()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    with pytest.raises(ConfigError, match="sync_every is 0"):
        LocalSGD(manager, net, optimizer, 0)
    with pytest.raises(ConfigError, match="without a parameter to train"):
        LocalSGD(manager, Scalar().requires_grad_(False), optimizer, 1)

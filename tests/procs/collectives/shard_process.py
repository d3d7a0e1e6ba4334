"""One rank of a sharded replica as a process of its own; a test exchanges its sibling.

Usage: shard_process.py SECRET_FILE STORE_ADDRESS RANK   It reads one command per line:
``meet GENERATION``, ``gradient`` (forward and backward), ``apply``; it answers with one line each.
"""

import sys

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

from danaus.collectives.fingerprint import fingerprint
from danaus.collectives.shard_group import ShardGroup, install, uninstall
from danaus.collectives.store import WireStore
from danaus.core.errors import DanausError
from danaus.wire.address import Address
from danaus.wire.secret import Secret
from danaus.wire.store_client import StoreClient

SIZE = 2


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 6))


def batch(rank):
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(rank))


def sharded(mesh):
    net = network()
    fully_shard(net[0], mesh=mesh)
    fully_shard(net, mesh=mesh)
    for module in (net[0], net):
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)
    return net


def main():
    torch.set_num_threads(1)
    secret_path, address, rank = sys.argv[1:]
    client = StoreClient(Address.parse(address), Secret.load(secret_path))
    store = WireStore(client, prefix="a/")
    group = ShardGroup(int(rank), SIZE)
    mesh = install(group)
    net = sharded(mesh)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)

    def gradient():
        optimizer.zero_grad()
        net(batch(int(rank))).square().sum().backward()

    def apply():
        optimizer.step()
        return fingerprint(dict(net.named_parameters()))

    commands = {
        "meet": lambda generation: group.configure(store, generation, limit_s=20.0),
        "gradient": gradient,
        "norm": lambda: nn.utils.get_total_norm([p.grad for p in net.parameters()]).full_tensor(),
        "apply": apply,
    }
    print("ready", flush=True)
    for line in sys.stdin:
        name, *arguments = line.split()
        try:
            print(name, commands[name](*arguments), flush=True)
        except DanausError as error:
            print(name, type(error).__name__, flush=True)
    uninstall()
    client.close()


if __name__ == "__main__":
    main()

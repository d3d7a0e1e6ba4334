"""A state, donors of it, and what may stand between a donor and a learner."""

import socket
import threading

import torch

from danaus.ft.manifest import Wanted
from danaus.ft.state_server import StateServer
from danaus.ft.transfer import Fetch
from danaus.wire.address import Address
from danaus.wire.blocking import PeerListener

MIB = 1 << 20


def state(num_mib=1, seed=1):
    draw = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(num_mib << 18, generator=draw),
        "bias": torch.randn(5, generator=draw),
        "step": torch.tensor(3.0),
    }


def empty_like(named):
    return {name: torch.full_like(tensor, -1) for name, tensor in named.items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def num_bytes(named):
    return sum(tensor.numel() * tensor.element_size() for tensor in named.values())


class DonorSite:
    """A donor in this process."""

    def __init__(self, address, secret, **options):
        self.listener = PeerListener(address, secret)
        self.server = StateServer(self.listener, **options)
        self.address = self.listener.address

    def close(self):
        self.server.close()
        self.listener.close()


def fetch(donors, secret, step, *, into, deadline, on_bytes=None):
    """Overwrite ``into`` with a committed step's state."""
    return Fetch(donors, secret, Wanted(step), into=into, on_bytes=on_bytes).run(deadline)


def addresses(sites):
    return {f"d{i}": site.address for i, site in enumerate(sites)}


class Relay:
    """Stands between a learner and a donor and damages or ends what comes back.

    It lets nothing through before ``opened`` is set.
    """

    def __init__(self, target, *, flip_at=(), end_at=None, is_open=True):
        self._target, self._flip_at, self._end_at = target, set(flip_at), end_at
        self.opened = threading.Event()
        if is_open:
            self.opened.set()
        # Beside the donor: what is said on this machine alone would be plain.
        host = target.host or "127.0.0.1"
        self._bound = socket.create_server((host, 0))
        self.address = Address.tcp(host, self._bound.getsockname()[1])
        self.num_connections = 0
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self):
        while True:
            try:
                near, _ = self._bound.accept()
            except OSError:
                return
            self.num_connections += 1
            self.opened.wait(20)
            if self._target.scheme == "unix":
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._target.path)
            else:
                far = socket.create_connection((self._target.host, self._target.port))
            there = threading.Thread(target=self._carry, args=(near, far, False))
            back = threading.Thread(target=self._carry, args=(far, near, True))
            self._threads += [there, back]
            there.start()
            back.start()

    def _carry(self, source, sink, back):
        at = 0
        try:
            while data := bytearray(source.recv(65536)):
                for flip in [f for f in self._flip_at if back and at <= f < at + len(data)]:
                    data[flip - at] ^= 0x10
                    self._flip_at.discard(flip)
                at += len(data)
                if back and self._end_at is not None and at >= self._end_at:
                    break
                sink.sendall(data)
        except OSError:
            pass
        for sock in (source, sink):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        source.close()

    def close(self):
        self._bound.shutdown(socket.SHUT_RDWR)
        self._bound.close()
        for thread in self._threads:
            thread.join(10)

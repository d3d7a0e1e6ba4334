"""Groups of every kind."""

import contextlib

import pytest
import torch

from danaus.testing.addresses import own_host
from danaus.testing.groups import Site, form_all, member_names
from danaus.testing.memory_group import MemoryHub
from danaus.wire.secret import Secret


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def check_kind(kind):
    if kind == "tls" and not own_host():
        pytest.skip("this machine has no address but loopback")


@pytest.fixture(params=["unix", "tcp"])
def site_kind(request):
    check_kind(request.param)
    return request.param


@pytest.fixture
def secret():
    return Secret.generate()


@pytest.fixture
def sites(site_kind, tmp_path, secret):
    """Return a function that makes the listening ends of ``num`` members."""
    with contextlib.ExitStack() as stack:

        def make(num):
            made = [Site(site_kind, tmp_path, secret, index=i) for i in range(num)]
            for site in made:
                stack.callback(site.close)
            return made

        yield make


@pytest.fixture(params=["memory", "unix", "tcp", "tls"])
def group_of(request, tmp_path, secret):
    """Return a function that makes a formed group: a list with each member's side."""
    check_kind(request.param)
    with contextlib.ExitStack() as stack:

        def make(num, **options):
            names = member_names(num)
            if request.param == "memory":
                hub = MemoryHub(names)
                groups = [hub.group(name, **options) for name in names]
            else:
                sites = [Site(request.param, tmp_path, secret, index=i) for i in range(num)]
                for site in sites:
                    stack.callback(site.close)
                groups = form_all(sites, names, **options)
            for group in groups:
                stack.callback(group.close)
            return groups

        yield make

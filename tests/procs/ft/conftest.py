"""Donors over each kind of address."""

import pytest
from tests.procs.ft.transfer_parts import DonorSite

from danaus.testing.addresses import own_host
from danaus.wire.address import Address
from danaus.wire.secret import Secret


@pytest.fixture
def secret():
    return Secret.generate()


@pytest.fixture(params=["unix", "tcp", "tls"])
def kind(request):
    if request.param == "tls" and not own_host():
        pytest.skip("this machine has no address but loopback")
    return request.param


@pytest.fixture
def donors(kind, tmp_path, secret):
    """Return a function that makes ``num`` donors without a state."""
    made = []

    def make(num, **options):
        for _ in range(num):
            host = own_host() if kind == "tls" else "127.0.0.1"
            place = f"unix:{tmp_path}/{len(made)}" if kind == "unix" else f"tcp:{host}:0"
            made.append(DonorSite(Address.parse(place), secret, **options))
        return made[-num:]

    yield make
    for donor in made:
        donor.close()

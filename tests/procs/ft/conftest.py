"""Donors over each kind of address."""

import pytest
from tests.procs.ft.transfer_parts import DonorSite

from danaus.wire.address import Address
from danaus.wire.secret import Secret


@pytest.fixture
def secret():
    return Secret.generate()


@pytest.fixture(params=["unix", "tcp"])
def kind(request):
    return request.param


@pytest.fixture
def donors(kind, tmp_path, secret):
    """Return a function that makes ``num`` donors without a state."""
    made = []

    def make(num, **options):
        for _ in range(num):
            place = f"unix:{tmp_path}/{len(made)}" if kind == "unix" else "tcp:127.0.0.1:0"
            made.append(DonorSite(Address.parse(place), secret, **options))
        return made[-num:]

    yield make
    for donor in made:
        donor.close()

"""Hosts with two networks: all that is advertised can be dialled by who needs it (W-4)."""

from __future__ import annotations

import json

import pytest
from tests.faults.lab_runs import LabRun, run_over

from danaus.app.events import Event
from danaus.app.lab import host_agent
from danaus.testing.lab import CONTROLLER, Lab, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def advertised(run: LabRun) -> dict[str, str]:
    """Return where the members of the standing quorum were told to dial each other."""
    state = json.loads((run.going.run.folder.path / "quorum" / "state.json").read_text())
    seats = state["saved"]["announcement"]["members"]
    return {seat["member"][0]: seat["data_address"] for seat in seats}


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("network", "by_name"), [(1, False), pytest.param(0, True, marks=pytest.mark.slow)]
)
def test_hosts_that_listen_on_all_networks_are_dialled_where_they_were_joined(
    tmp_path, undisturbed, network, by_name
):
    agent = tuple("tcp:0.0.0.0:{port}" if part == "{listen}" else part for part in host_agent())
    with Lab(hosts=2, folder=tmp_path / "labs", networks=2, agent=agent) as lab:
        listening = tuple(f"tcp:{lab.address(h, network)}:{lab.plan.port}" for h in lab.hosts)
        bind = lab.plan.device_of(CONTROLLER, network) if by_name else ""
        with run_over(lab, tmp_path, listening, steps=10, bind=bind) as run:
            run.full()
            service = run.watch.events(Event.SERVICE_STARTED)[0]["address"]
            assert service.startswith(f"tcp:{lab.address(CONTROLLER, network)}:")
            for name, host in zip(("replica-0", "replica-1"), lab.hosts, strict=True):
                assert advertised(run)[name].startswith(f"tcp:{lab.address(host, network)}:")
            assert run.finish().sha256 == undisturbed(run.going.run)

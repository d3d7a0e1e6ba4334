"""``danaus lighthouse`` as a person has it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from tests.procs.cli.terminal import LIMIT_S, SOURCE, Command, called

from danaus.quorum.http_face import access_token
from danaus.wire.secret import Secret


def test_it_leads_shows_a_page_and_ends_when_told(tmp_path):
    words = ("lighthouse", "--run=run", "--expected-replicas=3", "--http=127.0.0.1:0")
    with Command(tmp_path, *words) as lighthouse:
        lighthouse.wait_for(r"lighthouse page: http://127\.0\.0\.1:\d+/")
        lighthouse.wait_for(r"lighthouse leads at unix:\S+/run/quorum\.sock, in term 1")
        lighthouse.signal(signal.SIGTERM)
        assert lighthouse.wait() == 0
    assert "lighthouse ended" in lighthouse.text
    printed = said(tmp_path, "lighthouse", "token", "--run=run").stdout
    assert printed == access_token(Secret.load(tmp_path / "run" / "secret")) + "\n"


def test_a_standby_waits_and_leads_once_the_other_has_ended(tmp_path):
    with Command(tmp_path, "lighthouse", "--run=run") as first:
        first.wait_for("leads at")
        words = ("lighthouse", "--run=run", "--standby", f"--listen=unix:{tmp_path}/standby")
        with Command(tmp_path, *words) as second:
            second.wait_for(r"stands by at unix:\S+/standby: unix:\S+/quorum\.sock leads")
            first.signal(signal.SIGINT)
            assert first.wait() == 0
            second.wait_for(r"leads at unix:\S+/standby, in term 2")
            second.signal(signal.SIGINT)
            assert second.wait() == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "as in: danaus lighthouse --run run"),
        (("--run=run", "--lease=zookeeper"), "there is no lease 'zookeeper'"),
        (("--run=run", "--lease-s=0"), "--lease-s 0: must be above 0"),
        (("--run=run", "--standby", "--lease=none"), "name the lease that both share"),
        (("--run=run", "--standby", "--resume"), "leave one out"),
        (("--run=run", "--min-replica=2"), "did you mean --min-replicas?"),
        (("--run=run", "again"), "'again' is one argument too many"),
        (("token",), "name it by --secret, or a folder by --run"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, words, why):
    done = called(tmp_path, "lighthouse", *words)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert why in done.stderr


def said(folder, *words):
    return subprocess.run(
        [sys.executable, "-m", "danaus.cli.main", *words],
        cwd=folder, env={"PYTHONPATH": str(SOURCE), "COLUMNS": "100"}, capture_output=True,
        text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip

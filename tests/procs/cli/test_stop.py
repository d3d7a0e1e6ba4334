"""``danaus stop`` where the controller does not answer."""

from __future__ import annotations

import os
import socket

from danaus.app.run_folder import RunFolder
from danaus.app.settings import RunConfig
from danaus.cli.main import main


def test_who_cannot_stop_a_controller_that_does_not_answer_is_told_what_to_do(tmp_path, capsys):
    with (
        RunFolder.create(tmp_path / "run", RunConfig()) as folder,
        socket.socket(socket.AF_UNIX) as door,
    ):
        door.bind(str(tmp_path / "door"))
        door.listen()  # as the kernel does for a process that is stopped
        folder.save_addresses(door=f"unix:{tmp_path / 'door'}")
        assert main(["stop", str(folder.path)]) == 2
    said = capsys.readouterr().err
    assert f"(pid {os.getpid()}) does not answer" in said
    assert f"kill -CONT {os.getpid()}" in said
    assert "--take-over" in said

"""Folders of code by content: what is sent, what is laid down, what is executed again."""

from __future__ import annotations

import importlib
import sys

import pytest

from danaus.actor import workspace as workspace_module
from danaus.actor.workspace import Store, Workspace, digest_of, read_workspace, take_up
from danaus.core.errors import ConfigError


@pytest.fixture
def code(tmp_path):
    """A folder of code, and a way to write into it."""
    folder = tmp_path / "code"

    def write(**files: str):
        for name, text in files.items():
            path = folder / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return folder

    return write


@pytest.fixture
def _imports():
    """What a test imports is forgotten after it."""
    before, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]
    sys.path[:] = path
    workspace_module._tree.clear()
    workspace_module._executed.clear()


def test_a_folder_is_known_by_what_its_files_hold(code):
    folder = code(a="x = 1", pkg__b="y = 2")
    for left_out in (".git/config", "__pycache__/a.pyc", "c.pyc", ".env"):
        path = folder / left_out
        path.parent.mkdir(exist_ok=True)
        path.write_text("left out")
    found = read_workspace(folder)
    assert found.files == {"a.py": digest_of(b"x = 1"), "pkg/b.py": digest_of(b"y = 2")}
    assert found.contents[digest_of(b"y = 2")] == b"y = 2"
    code(a="x = 2")
    assert read_workspace(folder).digest != found.digest
    code(a="x = 1")
    assert read_workspace(folder).digest == found.digest


def test_what_is_no_folder_of_code_is_refused(tmp_path, code, monkeypatch):
    with pytest.raises(ConfigError, match="is no folder"):
        read_workspace(tmp_path / "nowhere")
    monkeypatch.setattr(workspace_module, "MOST_BYTES", 3)
    with pytest.raises(ConfigError, match="holds more than"):
        read_workspace(code(a="1234"))


def test_a_store_lacks_what_it_was_never_sent(tmp_path, code):
    folder = code(a="x = 1", b="y = 2")
    first, store = read_workspace(folder), Store(tmp_path / "store")
    assert store.missing(set(first.contents)) == set(first.contents)
    store.add(first.contents)
    assert store.missing(set(first.contents)) == set()
    code(a="x = 3")
    assert store.missing(set(read_workspace(folder).contents)) == {digest_of(b"x = 3")}
    tree = store.lay_down(first)
    assert (tree / "a.py").read_text() == "x = 1"
    assert store.lay_down(first) == tree
    assert [path.name for path in tree.parent.iterdir()] == [first.digest]  # nothing half done


def test_a_store_keeps_nothing_that_is_not_whole(tmp_path):
    store = Store(tmp_path / "store")
    with pytest.raises(ValueError, match="has another digest"):
        store.add({digest_of(b"x"): b"y"})
    incomplete = Workspace({"a.py": digest_of(b"x")}, {})
    with pytest.raises(OSError, match="No such file"):
        store.lay_down(incomplete)
    outside = Workspace({"../a.py": digest_of(b"x")}, {})
    store.add({digest_of(b"x"): b"x"})
    with pytest.raises(ValueError, match="leads out of the workspace"):
        store.lay_down(outside)
    assert list((tmp_path / "store" / "trees").iterdir()) == []


@pytest.mark.usefixtures("_imports")
def test_changed_modules_are_executed_again_what_they_use_first(tmp_path, code):
    store = Store(tmp_path / "store")

    def taken_up(**files: str) -> list[str]:
        found = read_workspace(code(**files))
        store.add(found.contents)
        return take_up(store.lay_down(found), reload=True)

    top = "from wsk_low import value\nimport wsk_pkg.inner"
    assert taken_up(wsk_top=top, wsk_low="value = 1") == []
    assert taken_up(wsk_pkg____init__="", wsk_pkg__inner="word = 'a'", wsk_same="z = 0") == []
    module, same = importlib.import_module("wsk_top"), importlib.import_module("wsk_same")
    same.z = 5
    changed = taken_up(wsk_top=f"{top}\n", wsk_low="value = 2")
    assert changed == ["wsk_low", "wsk_top"]
    assert module.value == 2
    assert same.z == 5  # unchanged, and left as it is
    assert taken_up(wsk_pkg__inner="word = 'b'") == ["wsk_pkg.inner"]
    assert sys.modules["wsk_pkg.inner"].word == "b"
    assert len([entry for entry in sys.path if "trees" in entry]) == 1

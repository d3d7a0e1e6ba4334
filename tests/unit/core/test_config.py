"""Settings come from defaults, a file and overrides; what is not legal is refused in a sentence."""

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from danaus.core.config import describe, dump, load, names, toml_text
from danaus.core.errors import ConfigError


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Data:
    path: Path | None = None
    seq_len: int = 64
    mix: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Train:
    learning_rate: float = 1e-3
    batch: Literal["constant", "elastic"] = "constant"
    betas: tuple[float, float] = (0.9, 0.95)
    kill_at: tuple[int, ...] = ()
    compile: bool = field(default=False, metadata={"why": "steps are short"})
    colour: Colour = Colour.RED
    name: str = "run"

    def __post_init__(self):
        if self.learning_rate <= 0:
            raise ValueError("learning_rate must be above 0")


@dataclass(frozen=True)
class Settings:
    replicas: int = 3
    data: Data = Data()
    train: Train = Train()


def refusal(**overrides):
    with pytest.raises(ConfigError) as caught:
        load(Settings, overrides=overrides)
    return str(caught.value)


def test_defaults_then_file_then_overrides(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('replicas = 4\n[data]\nseq_len = 128\npath = "corpus"\n')
    settings = load(Settings, toml=file, overrides={"data.seq-len": "32", "train.compile": "yes"})
    assert settings.replicas == 4
    assert settings.data == Data(Path("corpus"), 32)
    assert settings.train.compile is True
    assert load(Settings) == Settings()


@pytest.mark.parametrize(
    ("name", "given_value", "value"),
    [
        ("replicas", "1_000", 1000),
        ("replicas", "0x10", 16),
        ("train.learning_rate", "3e-4", 3e-4),
        ("train.learning_rate", 1, 1.0),
        ("train.betas", "0.8, 0.9", (0.8, 0.9)),
        ("train.kill_at", "3,5,8", (3, 5, 8)),
        ("train.kill_at", [1, 2], (1, 2)),
        ("train.colour", "blue", Colour.BLUE),
        ("train.colour", "RED", Colour.RED),
        ("train.batch", "elastic", "elastic"),
        ("train.compile", False, False),
        ("data.path", "none", None),
        ("data.mix.code", "0.5", {"code": 0.5}),
    ],
)
def test_text_and_plain_values_become_the_settings_type(name, given_value, value):
    found = load(Settings, overrides={name: given_value})
    key = name.removesuffix(".code")
    assert {each.name: each.value for each in describe(found)}[key] == value


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"train.lerning_rate": 1}, "did you mean 'train.learning_rate'?"),
        ({"seq_len": 1}, "did you mean 'data.seq_len'?"),
        ({"data": "corpus"}, "'data' is a section, not a value"),
        ({"replicas": "three"}, "'replicas' cannot be 'three': it needs a whole number"),
        ({"replicas": 2.0}, "it needs a whole number"),
        ({"replicas": True}, "it needs a whole number"),
        ({"train.learning_rate": "nan"}, "it needs a number"),
        ({"train.learning_rate": "-1"}, "settings of train: learning_rate must be above 0"),
        ({"train.batch": "constent"}, "did you mean 'constant'?"),
        ({"train.colour": "green"}, "it needs one of red, blue"),
        ({"train.betas": "0.9"}, "it needs exactly 2 values"),
        ({"train.compile": "perhaps"}, "it needs true or false"),
        ({"data.path": 3}, "it needs a path or none"),
        ({"data.mix": "half"}, "it needs a table"),
        ({"train.name": 3}, "it needs text"),
    ],
)
def test_what_is_not_legal_is_refused_in_a_sentence(overrides, sentence):
    assert sentence in refusal(**overrides)


def test_a_value_and_a_section_of_one_name_contradict():
    assert "set twice" in refusal(**{"data": "corpus", "data.path": "corpus"})


def test_an_unknown_name_in_a_file_names_the_file(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("[data]\nseqlen = 1\n")
    with pytest.raises(ConfigError, match=r"unknown setting 'data.seqlen' in .*run\.toml; did you"):
        load(Settings, toml=file)


def test_files_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        load(Settings, toml=tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("replicas = = 3")
    with pytest.raises(ConfigError, match="is not a TOML file"):
        load(Settings, toml=tmp_path / "bad.toml")


def test_a_setting_without_default_is_asked_for():
    @dataclass(frozen=True)
    class Needs:
        path: Path

    with pytest.raises(ConfigError, match="'path' is missing"):
        load(Needs)


def test_every_setting_is_described_with_its_reason():
    settings = load(Settings, overrides={"replicas": 5})
    described = {each.name: each for each in describe(settings)}
    assert tuple(described) == names(Settings)
    assert described["replicas"].reason == "given"
    assert (described["replicas"].default, described["replicas"].is_default) == (3, False)
    assert described["train.compile"].reason == "steps are short"
    assert described["data.seq_len"].reason == "default"


def test_dump_holds_plain_values():
    assert dump(Settings())["data"] == {"path": None, "seq_len": 64, "mix": {}}
    assert dump(Settings())["train"]["colour"] == "red"


@settings(max_examples=25)
@given(
    st.builds(
        Settings,
        replicas=st.integers(1, 10**12),
        data=st.builds(
            Data,
            path=st.one_of(st.none(), st.just(Path("a b/ü"))),
            mix=st.dictionaries(st.text(min_size=1), st.floats(allow_nan=False)),
        ),
        train=st.builds(
            Train,
            learning_rate=st.floats(1e-300, allow_nan=False, exclude_min=True),
            kill_at=st.lists(st.integers()).map(tuple),
            colour=st.sampled_from(Colour),
            name=st.text(),
        ),
    )
)
def test_what_is_written_is_read_back_equal(tmp_path_factory, written):
    file = tmp_path_factory.getbasetemp() / "settings.toml"
    file.write_text(toml_text(written), encoding="utf-8")
    assert load(Settings, toml=file) == written

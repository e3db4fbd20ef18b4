"""Tests of `--config FILE`: precedence of command line, file and defaults."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import tyro

from scripts.cli.config_file import expand_config_file, tri_state_fields
from tests.scripts.fake_command import Config, Nested

SETTINGS = {
    "ending": "failed",
    "sizes": [3, 4],
    "out": None,
    "loud": False,
    "nested": {"rate": 5e-4, "exact": True},
}


def parse(*argv: str) -> Config:
    return tyro.cli(Config, args=expand_config_file(argv))


@pytest.fixture(params=["json", "yaml", "run"])
def config_file(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path = tmp_path / f"options.{request.param}"
    if request.param == "json":
        path.write_text(json.dumps(SETTINGS))
    elif request.param == "run":
        path.write_text(json.dumps({"schema": 1, "config": SETTINGS}))
    else:
        path.write_text(
            "ending: failed\nsizes: [3, 4]\nout: null\nloud: false\n"
            "nested:\n  rate: 5e-4\n  exact: true\n"
        )
    return str(path)


def test_file_wins_over_defaults(config_file: str) -> None:
    expected = Config(
        ending="failed", sizes=(3, 4), loud=False, nested=Nested(rate=5e-4, exact=True)
    )
    assert parse("--config", config_file) == expected
    assert parse(f"--config={config_file}") == expected


@pytest.mark.parametrize("config_is_last", [False, True])
def test_command_line_wins_over_file(config_file: str, config_is_last: bool) -> None:
    own = ["--ending=done", "--sizes", "9", "--out", "x", "--loud", "--nested.no-exact"]
    config = ["--config", config_file]
    parsed = parse(*own, *config) if config_is_last else parse(*config, *own)
    assert parsed == Config(sizes=(9,), out=Path("x"), nested=Nested(rate=5e-4))


@pytest.mark.parametrize("key", ["no-loud", "no_loud"])
def test_negated_switches_of_a_file(key: str, tmp_path: Path) -> None:
    path = tmp_path / "options.yaml"
    for value, is_loud in (("true", False), ("false", True)):
        path.write_text(f"{key}: {value}\n")
        assert parse("--config", str(path)).loud is is_loud
        for own in ("--loud", "--no-loud"):
            assert parse("--config", str(path), own).loud is (own == "--loud")


def test_without_the_option_nothing_changes() -> None:
    argv = ["--sizes", "1", "--", "--config", "x"]
    assert expand_config_file(argv) == argv


def test_options_go_before_the_bare_dashes(config_file: str) -> None:
    expanded = expand_config_file(["a", "--config", config_file, "--", "-b"])
    assert expanded[0] == "a"
    assert expanded[-2:] == ["--", "-b"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--config"], "--config: got no file, allowed is one file"),
        (["--config", "a", "--config=b"], "--config: got a b, allowed is one file"),
    ],
)
def test_wrong_use_is_refused(argv: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        expand_config_file(argv)


@pytest.mark.parametrize("text", ["[1, 2]", "just words", "", "a: [1"])
def test_file_without_a_mapping_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"broken\.yaml: "):
        expand_config_file(["--config", str(path)])


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"weights\.bin: 'utf-8' codec"):
        expand_config_file(["--config", str(path)])


@pytest.mark.parametrize("text", ["4:00:00", "0012", "2026-11-28", "1e-3", "+5", "12_000"])
def test_numbers_and_times_stay_as_they_are_written(text: str, tmp_path: Path) -> None:
    path = tmp_path / "options.yaml"
    path.write_text(f"time: {text}\nsizes: [{text}]\n")
    assert expand_config_file(["--config", str(path)]) == [f"--time={text}", "--sizes", text]


@dataclass(frozen=True, kw_only=True, slots=True)
class WithTriStates:
    """A config as that of `train run`."""

    compile: bool | None = None
    """Decided by the device if not given."""
    nested: Nested | None = None
    """A group."""


@pytest.mark.parametrize("value", [True, False, None])
def test_a_switch_that_may_be_open_has_a_value(value: bool | None, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"config": {"compile": value}}))
    tri_states = tri_state_fields(WithTriStates)
    assert tri_states == {"compile"}
    argv = expand_config_file(["--config", str(path)], tri_states=tri_states)
    assert tyro.cli(WithTriStates, args=argv) == WithTriStates(compile=value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.yaml"):
        expand_config_file(["--config", str(tmp_path / "absent.yaml")])


def test_unknown_key_is_refused_by_the_parser(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "options.yaml"
    path.write_text("endings: done")
    with pytest.raises(SystemExit):
        parse("--config", str(path))
    assert "--endings" in capsys.readouterr().err

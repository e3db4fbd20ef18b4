"""Tests of curves drawn from metrics files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data.runtime.options import split_named_folder
from training.commands.plot import Config, main
from training.reporting.metrics import METRICS_FILE, MetricsLog
from training.reporting.plots import Curve, _band, draw_curves, read_curves, tokens_to_reach


def write_run(folder: Path, *, scale: float = 1.0, evaluations: bool = True) -> Path:
    folder.mkdir()
    with MetricsLog(folder / METRICS_FILE) as log:
        log.write("start", step=0)
        for step in range(1, 6):
            tokens = 1000 * step
            log.write("train", step=step, num_tokens=tokens, loss=scale / step)
            if evaluations:
                log.write("eval", step=step, train_tokens=tokens, solve_rate=step / 10)
    return folder


def test_curves_equal_the_metrics(tmp_path: Path) -> None:
    curves = read_curves(write_run(tmp_path / "run"))
    assert curves.loss.tokens.tolist() == [1000, 2000, 3000, 4000, 5000]
    assert curves.loss.values.tolist() == [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5]
    assert curves.solve_rate.values.tolist() == [0.1, 0.2, 0.3, 0.4, 0.5]


def test_means_cover_the_tokens_of_all_curves() -> None:
    early = Curve(tokens=np.array([1.0, 2, 3, 4]), values=np.array([8.0, 4, 2, 1]))
    late = Curve(tokens=np.array([2.0, 3]), values=np.array([2.0, 0]))
    tokens, low, mean, high = _band([early, late])
    assert tokens.tolist() == [2, 3]
    assert low.tolist() == [2, 0]
    assert mean.tolist() == [3, 1]
    assert high.tolist() == [4, 2]


def test_first_tokens_at_a_level() -> None:
    curve = Curve(tokens=np.array([1.0, 2, 3]), values=np.array([0.9, 0.4, 0.5]))
    assert tokens_to_reach(curve, 0.5, from_above=True) == 2
    assert tokens_to_reach(curve, 0.9, from_above=False) == 1
    assert tokens_to_reach(curve, 0.1, from_above=True) is None


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_command_draws_groups(
    tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = write_run(tmp_path / "a", scale=1.0)
    second = write_run(tmp_path / "b", scale=2.0, evaluations=False)
    out = tmp_path / f"plot.{ending}"
    runs = (f"seeds={first}", f"seeds={second}", str(second))
    assert main(Config(runs=runs, out=out, loss=0.5, solve_rate=0.25)) == 0
    assert out.stat().st_size > 5000
    table = capsys.readouterr().out
    assert [word for word in ("2,000", "3,000", "4,000") if word not in table] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", out.name]


def test_folders_may_have_an_equals_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lr=0.1").mkdir()
    assert split_named_folder(f"{tmp_path}/lr=0.1") == (None, tmp_path / "lr=0.1")
    assert split_named_folder(f"a={tmp_path}/lr=0.1") == ("a", tmp_path / "lr=0.1")
    monkeypatch.chdir(tmp_path / "lr=0.1")
    assert split_named_folder(".") == (None, Path())


def test_nothing_to_draw_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one run"):
        Config(runs=(), out=tmp_path / "x.svg")
    run = write_run(tmp_path / "run")
    with pytest.raises(ValueError, match=r"got ending 'txt', allowed are .*svg"):
        draw_curves({"run": [read_curves(run)]}, tmp_path / "x.txt", title="t")
    (run / METRICS_FILE).write_text("")
    with pytest.raises(ValueError, match="no step of training"):
        read_curves(run)
    with pytest.raises(OSError, match="missing"):
        read_curves(tmp_path / "missing")


def test_names_and_titles_are_drawn_as_they_are(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    groups = {name: [read_curves(run)] for name in ("_x", "$a_b$", "$x^$", "\u6570\u72ec")}
    files = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for file in files:
        draw_curves(groups, file, title="$x^$")  # as mathematics it is an error
    assert files[0].read_bytes() == files[1].read_bytes()
    drawn = files[0].read_text()
    for name in ("_x (n = 1)", "$a_b$ (n = 1)"):
        assert f"<!-- {name} -->" in drawn.replace("\\$", "$")

"""Tests of imported predictions: formats and validation of rows."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from eval.engines.contract import FinishReason
from eval.predictions.read import read_predictions
from eval.results.folder import EvaluationFolder
from eval.text_protocol.prompt import format_rows
from scripts.cli.main import main
from solver.boards import Grid
from solver.mrv.tracer import trace
from solver.puzzle_io.cells import read_grid
from solver.puzzles import format_grid
from tests.data.puzzle_files import make_puzzles
from tests.eval.fake_engine import BOARD

GIVENS = [read_grid(BOARD, puzzle) for puzzle, _ in make_puzzles("4x4", 20)]


def planned_grid(index: int) -> Grid:
    """Of the first 20 answers, 2 are wrong, 1 changes a given, 1 is incomplete."""
    solution = trace(BOARD, GIVENS[index]).solution
    assert solution is not None
    grid = solution.copy()
    blank = np.flatnonzero(GIVENS[index] == 0)[0]
    given = np.flatnonzero(GIVENS[index])[0]
    if index in (3, 7):
        grid[blank] = grid[blank] % 4 + 1
    elif index == 5:
        grid[given] = grid[given] % 4 + 1
    elif index == 9:
        grid[blank] = 0
    return grid


ANSWERS = [planned_grid(index) for index in range(20)]
EXPECTED = {
    FinishReason.SOLVED: 16,
    FinishReason.WRONG: 2,
    FinishReason.CHANGED_GIVENS: 1,
    FinishReason.MALFORMED: 1,
}


def as_rows() -> list[dict[str, Any]]:
    return [
        {
            "question": format_grid(BOARD, puzzle),
            "Prediction": format_grid(BOARD, answer),
            "seconds": 0.5,
            "tokens": 16,
            "cost": 0.25,
        }
        for puzzle, answer in zip(GIVENS, ANSWERS, strict=True)
    ]


def write_jsonl(path: Path) -> Path:
    path = path.with_suffix(".jsonl")
    path.write_text("".join(f"{json.dumps(row)}\n" for row in as_rows()))
    return path


def write_lists(path: Path) -> Path:
    path = path.with_suffix(".jsonl")
    rows = [
        {**row, "question": puzzle.reshape(4, 4).tolist(), "Prediction": answer.tolist()}
        for row, puzzle, answer in zip(as_rows(), GIVENS, ANSWERS, strict=True)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n\n" for row in rows))
    return path


def write_csv(path: Path) -> Path:
    path = path.with_suffix(".csv")
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(as_rows()[0]))
        writer.writeheader()
        writer.writerows(as_rows())
    return path


def write_tsv(path: Path) -> Path:
    path = path.with_suffix(".tsv")
    path.write_text(write_csv(path).read_text().replace(",", "\t"))
    return path


def write_parquet(path: Path) -> Path:
    path = path.with_suffix(".parquet")
    pq.write_table(pa.Table.from_pylist(as_rows()), path)
    return path


def write_npy(path: Path) -> Path:
    path = path.with_suffix(".npy")
    np.save(path, np.stack([np.array(GIVENS), np.array(ANSWERS)], axis=1))
    return path


def write_npy_swapped(path: Path) -> Path:
    path = path.with_suffix(".npy")
    np.save(path, np.stack([np.array(GIVENS), np.array(ANSWERS)]).reshape(2, 20, 4, 4))
    return path


def write_npz(path: Path) -> Path:
    path = path.with_suffix(".npz")
    np.savez(path, puzzles=np.array(GIVENS), answers=np.array(ANSWERS))
    return path


def dump(*, has_logits: bool) -> dict[str, torch.Tensor]:
    """As HRM and TRM: ids are digits plus 1, and zeros fill the last batch."""
    inputs = torch.tensor(np.array(GIVENS)).long() + 1
    preds = torch.tensor(np.array(ANSWERS)).long() + 1
    inputs = torch.cat([inputs, torch.zeros(4, 16, dtype=torch.long)])
    preds = torch.cat([preds, torch.full((4, 16), 3)])
    labels = {"labels": preds, "puzzle_identifiers": torch.zeros(24)}
    if not has_logits:
        return {"inputs": inputs.int(), "preds": preds.int(), **labels}
    logits = torch.nn.functional.one_hot(preds, 6).to(torch.bfloat16)
    return {"inputs": inputs.int(), "logits": logits, **labels}


def write_dump(path: Path) -> Path:
    path = path.with_name("step_39060_all_preds.0")
    torch.save(dump(has_logits=True), path)
    return path


def write_preds_dump(path: Path) -> Path:
    path = path.with_suffix(".pt")
    torch.save(dump(has_logits=False), path)
    return path


def write_converted_dump(path: Path) -> Path:
    path = path.with_suffix(".npz")
    arrays: dict[str, Any] = {k: v.float().numpy() for k, v in dump(has_logits=True).items()}
    np.savez(path, **arrays)
    return path


WRITERS = [
    write_jsonl, write_lists, write_csv, write_tsv, write_parquet, write_npy, write_npy_swapped,
    write_npz, write_dump, write_preds_dump, write_converted_dump,
]  # fmt: skip


@pytest.mark.parametrize("write", WRITERS)
def test_every_format_gives_the_same_predictions(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    read = read_predictions([write(tmp_path / "file")])
    assert read.board is BOARD
    assert read.errors == []
    for row, puzzle, answer in zip(read.predictions, GIVENS, ANSWERS, strict=True):
        np.testing.assert_array_equal(row.givens, puzzle)
        if answer.min() == 0:
            assert row.answer is None
        else:
            np.testing.assert_array_equal(row.answer, answer)
    if write in (write_jsonl, write_lists, write_csv, write_tsv, write_parquet):
        assert {(row.seconds, row.num_new_tokens, row.usd) for row in read.predictions} == {
            (0.5, 16, 0.25)
        }
    assert read.num_padding == (4 if "dump" in write.__name__ else 0)


def write_texts(path: Path, form: str) -> Path:
    """Answers in the notations of language models, and a column with the solutions."""
    path = path.with_suffix(".jsonl")
    rows = []
    for puzzle, answer in zip(GIVENS, ANSWERS, strict=True):
        cells = answer.reshape(4, 4)
        text: Any = {
            "fenced": f"So:\n```\n{format_rows(BOARD, answer)}\n```",
            "object": {"grid": cells.tolist()},
            "rows": ["".join(map(str, row)) for row in cells],
            "characters": list(map(str, answer.tolist())),
            "number": int("".join(map(str, answer.tolist()))),
        }[form]
        solution = trace(BOARD, puzzle).solution
        assert solution is not None
        rows.append(
            {
                "puzzle": format_grid(BOARD, puzzle),
                "answer": format_grid(BOARD, solution),
                "prediction": text,
            }
        )
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8-sig")
    return path


@pytest.mark.parametrize("form", ["fenced", "object", "rows", "characters", "number"])
def test_answers_as_texts_and_lists_beside_a_column_of_solutions(
    form: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read = read_predictions([write_texts(tmp_path / "p", form)])
    for row, answer in zip(read.predictions, ANSWERS, strict=True):
        if answer.min() == 0:
            assert row.answer is None
        else:
            np.testing.assert_array_equal(row.answer, answer)
    num_unread = sum(answer.min() == 0 for answer in ANSWERS)
    assert f"answers without a complete grid: {num_unread}, the first is " in caplog.text


def test_columns_can_be_named_and_json_can_be_an_array(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = write_texts(tmp_path / "p", "fenced").read_text(encoding="utf-8-sig").splitlines()
    path = tmp_path / "p.json"
    path.write_text(f"[{','.join(lines)}]")
    command = ["eval", "import", str(path), "--name", "m", "--out"]
    columns = ["--puzzle-column", "Puzzle", "--answer-column", "answer"]
    assert main([*command, str(tmp_path / "e"), *columns]) == 0
    assert EvaluationFolder.open(tmp_path / "e").summary.accuracy.accuracy == 1
    path.write_text("[1]")
    assert main([*command, str(tmp_path / "f")]) == 2
    assert "p.json:1: got int, allowed is an object" in capsys.readouterr().err


def test_costs_that_only_some_rows_state_have_no_mean(tmp_path: Path) -> None:
    rows = as_rows()
    for row in rows[1:]:
        del row["seconds"], row["tokens"], row["cost"]
    path = tmp_path / "p.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert main(["eval", "import", str(path), "--name", "m", "--out", str(tmp_path / "e")]) == 0
    summary = EvaluationFolder.open(tmp_path / "e").summary
    assert (summary.mean_seconds, summary.mean_new_tokens) == (None, None)
    assert summary.cost.usd == 0


def test_rows_without_the_column_of_predictions_have_no_answer(tmp_path: Path) -> None:
    """Their column `answer` is the solution of the data set, not an answer of the model."""
    rows = [
        {"puzzle": format_grid(BOARD, givens), "answer": format_grid(BOARD, answer)}
        for givens, answer in zip(GIVENS, ANSWERS, strict=True)
    ]
    rows[0]["prediction"] = "I do not know"
    path = tmp_path / "p.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(ValueError, match=r"p\.jsonl:2: no answer: got puzzle, answer, allowed are"):
        read_predictions([path])


def test_puzzles_with_several_solutions_only_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"puzzle": "1" + "." * 15, "answer": "1234341221434321"}))
    assert main(["eval", "import", str(path), "--name", "m", "--out", str(tmp_path / "e")]) == 2
    assert "p.jsonl: got 1 puzzles without a unique solution" in capsys.readouterr().err


def test_imports_with_one_name_are_no_engines_of_one_model(tmp_path: Path) -> None:
    for seed in range(2):
        file, answers = tmp_path / f"{seed}.npy", np.array(ANSWERS)
        answers[: 5 * seed] = 1
        np.save(file, np.stack([np.array(GIVENS), answers], axis=1))
        out = str(tmp_path / f"e{seed}")
        assert main(["eval", "import", str(file), "--name", "m", "--out", out]) == 0
    runs = [f"s{seed}={tmp_path / f'e{seed}'}" for seed in range(2)]
    assert main(["report", *runs, "--out", str(tmp_path / "report")]) == 0
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    rows = report["sections"][0]["rows"]
    assert [row["lead"] for row in rows] == [None, None]


@pytest.mark.parametrize("write", [write_jsonl, write_csv, write_tsv, write_parquet, write_npz])
def test_extensions_may_be_upper_case(write: Callable[[Path], Path], tmp_path: Path) -> None:
    path = write(tmp_path / "file")
    path = path.rename(path.with_suffix(path.suffix.upper()))
    read = read_predictions([path])
    assert read.errors == []
    assert read.predictions[0].where.startswith(str(path))
    assert len(read.predictions) == len(GIVENS)


def test_predictions_become_an_evaluation_that_is_scored_compared_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = write_jsonl(tmp_path / "frm"), tmp_path / "e"
    command = ["eval", "import", str(file), "--name", "FRM", "--out", str(out)]
    assert main([*command, "--num-parameters", "7000000"]) == 0
    printed = capsys.readouterr().out
    assert "20 rows: 20 results, 0 duplicates, 0 outside" in printed
    folder = EvaluationFolder.open(out)
    counts = {FinishReason(k): v for k, v in folder.summary.finish_reasons.items() if v}
    assert counts == EXPECTED
    assert (folder.config.mode, folder.config.engine) == ("grid", "import")
    assert folder.summary.answers is not None
    assert folder.summary.answers.right_cells is not None
    assert 0.9 < folder.summary.answers.right_cells < 1
    assert folder.summary.cost.usd == pytest.approx(5)
    names = ("results.jsonl", "summary.json", "evaluation.json")
    before = [(out / name).read_bytes() for name in names]
    assert main(["eval", "score", str(out)]) == 0
    assert [(out / name).read_bytes() for name in names] == before
    assert main(command) == 2  # the folder exists
    # Another model on a part of the puzzles of the first.
    part = tmp_path / "part.npy"
    solutions = [trace(BOARD, givens).solution for givens in GIVENS]
    np.save(part, np.stack([np.array(GIVENS), np.array(solutions)], axis=1)[:8])
    other = tmp_path / "other"
    assert main(["eval", "import", str(part), "--name", "best", "--out", str(other)]) == 0
    capsys.readouterr()
    assert main(["eval", "compare", str(out), str(other)]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"puzzles with a result in both\W+8\b", shown)
    assert "not significant at 0.05" in shown
    assert main(["eval", "cohorts", str(out), str(other)]) == 0
    assert "all-20" in capsys.readouterr().out
    # Different cohorts are different sections of a report.
    assert main(["report", str(out), str(other), "--out", str(tmp_path / "report")]) == 0
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert [s["sample"]["cohort"] for s in report["sections"]] == ["all-20", "all-8"]
    # And the same puzzles are one, whatever file they came from.
    again = tmp_path / "again"
    like = ["--like", str(other)]
    assert main(["eval", "import", str(file), "--name", "FRM", "--out", str(again), *like]) == 0
    assert "8 results, 0 duplicates, 12 outside" in capsys.readouterr().out
    assert main(["report", str(again), str(other), "--out", str(tmp_path / "report")]) == 0
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    [section] = report["sections"]
    assert [row["rank"] for row in section["rows"]] == [1, 1]  # 5 and 8 of 8: p = 0.25
    # What a file does not state is unknown, and not zero.
    by_label = {row["label"]: row for row in section["rows"]}
    names = ("mean_seconds", "mean_new_tokens", "max_new_tokens")
    assert [by_label["FRM"][name] for name in names] == [0.5, 16, None]
    assert [by_label["best"][name] for name in names] == [None, None, None]
    assert section["comparisons"][0]["has_equal_caps"]
    missing = ["eval", "import", str(part), "--name", "x", "--out", str(tmp_path / "x")]
    assert main([*missing, "--like", str(out)]) == 2
    assert "no prediction for 12 of 20 puzzles" in capsys.readouterr().err


def test_rows_that_cannot_be_read_are_counted_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    rows = as_rows()
    rows[1]["question"] = "1234"
    rows[2]["seconds"] = "soon"
    rows[4] = rows[0]
    rows[6]["question"] = "." * 16  # not unique
    path = tmp_path / "preds.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert main(["eval", "import", str(path), "--name", "m", "--out", str(tmp_path / "e")]) == 0
    assert (
        "20 rows: 16 results, 1 duplicates, 1 outside the cohort or not unique, 2 without"
        in capsys.readouterr().out
    )
    assert f"{path}:2: " in caplog.text
    assert f"{path}:3: seconds: got 'soon'" in caplog.text


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"{", "a.jsonl: "),
        (
            "b.jsonl",
            b'{"puzzle": "1234"}\n',
            "b.jsonl:1: no answer: got puzzle, allowed are prediction, pred",
        ),
        ("c.jsonl", b"[1]\n", "c.jsonl:1: got list"),
        ("d.csv", b"", "d.csv: no rows"),
        ("e.csv", b"puzzle,answer\n12,34\n", "e.csv: no readable puzzle"),
        ("f.parquet", b"PAR1", "f.parquet: damaged"),
        ("g.npy", b"\x93NUMPY", "g.npy: not an array file"),
        ("h.npz", b"PK", "h.npz: not an array file"),
        ("i.pt", b"\x80\x04", "i.pt: not a dump of tensors"),
        ("j.eval", b"PK", "j.eval: not a log of inspect_ai"),
        ("k.txt", b"", "k.txt: unknown format, allowed are .jsonl"),
        ("l.csv", b"\xff\xfe\x00", "l.csv: not text in UTF-8"),
        ("m.json", b'{"eval": 1, "samples": [{}]}', "not a sample of a task of sudocot"),
        ("n.json", b'{"eval": 1, "samples": 3}', "n.json: samples: got int, allowed is a list"),
        ("o.json", b"[" * 100_000, "o.json: brackets nested too deep"),
        (
            "p.csv",
            b'puzzle,answer\n"' + b"." * 200_000 + b"\n",
            "p.csv:2: field larger than field limit",
        ),
        (
            "q.jsonl",
            b'{"puzzle": "%s", "answer": "", "time": 1%s}' % (b"." * 16, b"0" * 400),
            "q.jsonl:1: time: got 1000",
        ),
    ],
)
def test_files_that_cannot_be_read_are_one_line(
    name: str, content: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert main(["eval", "import", str(path), "--name", "m", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_damaged_compressed_arrays_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.npz"
    np.savez_compressed(path, puzzles=np.array(GIVENS), answers=np.array(ANSWERS))
    content = bytearray(path.read_bytes())
    content[60:120] = b"\xff" * 60
    path.write_bytes(content)
    assert main(["eval", "import", str(path), "--name", "m", "--out", str(tmp_path / "out")]) == 2
    assert f"{path}: not an array file: " in capsys.readouterr().err


def test_a_single_array_with_the_extension_of_named_arrays_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_npy(tmp_path / "p").rename(tmp_path / "p.npz")
    assert main(["eval", "import", str(path), "--name", "m", "--out", str(tmp_path / "out")]) == 2
    assert f"{path}: got a single array, allowed are named arrays" in capsys.readouterr().err


def test_a_pickle_is_not_executed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, mark = tmp_path / "x.pt", tmp_path / "mark"

    class Attack:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (mark,)

    torch.save({"inputs": Attack()}, path)
    assert main(["eval", "import", str(path), "--name", "m", "--out", str(tmp_path / "o")]) == 2
    assert "not a dump of tensors" in capsys.readouterr().err
    assert not mark.exists()


def test_another_answer_to_the_same_puzzle_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.npy"
    np.save(path, np.array([[GIVENS[0], ANSWERS[0]], [GIVENS[0], ANSWERS[1]]]))
    assert main(["eval", "import", str(path), "--name", "m", "--out", str(tmp_path / "o")]) == 2
    assert f"{path}:2: another answer to the puzzle of {path}:1" in capsys.readouterr().err

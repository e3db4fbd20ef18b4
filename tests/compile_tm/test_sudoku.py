"""Tests of the compiled solver: the solver's tokens, and ablations of its parts."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from compile_tm.constructions.vocabulary import Mode
from compile_tm.measure.checks import check_trace, margin_problems, trace_margins
from compile_tm.program.neurons import select
from compile_tm.program.program import Layer, Program
from compile_tm.runtime.sparse import SparseError, SparseTransformer
from compile_tm.runtime.trace import trace_program
from compile_tm.sudoku.board import BOARDS, Special
from compile_tm.sudoku.compiled import (
    CompiledSudoku,
    generate_segments,
    next_prompt,
)
from compile_tm.sudoku.schedule import Schedule
from compile_tm.sudoku.sizes import sudoku_sizes
from data.segments import cut_segment
from solver.boards import get_board
from solver.jit import IS_JIT
from solver.mrv.tracer import resume, trace
from solver.vocabulary import END_INPUT, Vocabulary
from tests.compile_tm.sudoku_runs import (
    Ids,
    Segment,
    compiled_with_model,
    jit_only,
    searching_puzzles,
    solver_segments,
    unsolvable,
)


def random_puzzles(name: str, num: int, *, seed: int) -> list[npt.NDArray[np.uint8]]:
    """A solved grid with digits renamed and cells blanked; the first is empty, the second full."""
    board, rng = get_board(name), np.random.default_rng(seed)
    empty = np.zeros(board.num_cells, dtype=np.uint8)
    solution = trace(board, empty).solution
    assert solution is not None
    puzzles = [empty, solution]
    while len(puzzles) < num:
        digits = np.concatenate([[0], rng.permutation(board.side) + 1]).astype(np.uint8)
        blank = rng.random(board.num_cells) < rng.uniform(0.4, 0.9)
        puzzles.append(np.where(blank, 0, digits[solution]).astype(np.uint8))
    return puzzles


def check_puzzles(
    name: str, mode: Mode, bits: int, segment_tokens: int, puzzles: list[npt.NDArray[np.uint8]]
) -> None:
    """Decode puzzles from the input on, and compare every token."""
    compiled, model = compiled_with_model(name, mode, bits, segment_tokens)
    for givens in puzzles:
        length = segment_tokens if mode == "scot" else 1 << 30
        expected = [ids.tolist() for ids, _ in solver_segments(name, givens, length)]
        generated = [ids.tolist() for ids in generate_segments(model, compiled, givens)]
        assert generated == expected
    assert model.stats.least_gap == 2
    assert model.stats.greatest_hidden <= compiled.board.side


@pytest.mark.parametrize("name", BOARDS)
def test_boards_are_the_solvers(name: str) -> None:
    ours, theirs = BOARDS[name], get_board(name)
    vocabulary = Vocabulary(theirs)
    assert ours.texts == vocabulary.tokens
    assert ours.vocab_size == vocabulary.size
    assert (ours.is_peer == theirs.is_peer).all()
    givens = random_puzzles(name, 3, seed=0)[2]
    prompt = trace(theirs, givens).tokens
    end = int(np.flatnonzero(prompt == END_INPUT)[0]) + 1
    assert ours.input_ids(givens).tolist() == prompt[:end].tolist()
    with pytest.raises(ValueError, match=f"a {name} board has"):
        ours.input_ids(givens[1:])


@pytest.mark.parametrize(
    ("name", "mode", "segment_tokens", "expected"),
    [
        ("4x4", "cot", 512, (14, 3, 191, 75, 193, 196)),
        ("4x4", "scot", 8, (14, 3, 207, 75, 193, 245)),
        ("9x9", "cot", 512, (17, 3, 223, 740, 2188, 880)),
        ("9x9", "scot", 512, (17, 3, 255, 740, 2188, 939)),
        ("9x9", "scot", 63, (17, 4, 255, 740, 2188, 939)),
    ],
)
def test_sizes(name: str, mode: Mode, segment_tokens: int, expected: tuple[int, ...]) -> None:
    """By formula; two of the programs are compiled, which compares their sizes with it."""
    at = Schedule(BOARDS[name], bits=11, with_summaries=mode == "scot")
    sizes = sudoku_sizes(at, segment_tokens=segment_tokens)
    if (name, mode, segment_tokens) in (("4x4", "cot", 512), ("9x9", "scot", 512)):
        assert compiled_with_model(name, mode, 11, segment_tokens)[0].program.sizes == sizes
    assert (sizes.L, sizes.H, sizes.d_k, sizes.d_v, sizes.d_ff, sizes.d) == expected


def test_bounds_on_stacks_hold() -> None:
    """No search, on boards from empty to full, has more candidates at a choice than the bound."""
    assert [board.longest_stack for board in BOARDS.values()] == [51, 162, 512]
    for name, ours in BOARDS.items():
        board = get_board(name)
        for givens in random_puzzles(name, 30 if IS_JIT else 3, seed=3):
            ids = trace(board, givens).tokens.astype(np.int64)
            num_empty, run = int((givens == 0).sum()), 0
            for token in ids[2 + 2 * (ours.num_cells - num_empty) : -2 - 2 * ours.num_cells]:
                if token == Special.NONE:
                    break  # From here on the stack is not just the lines so far.
                run = run + 1 if token >= ours.digit_ids[0] else 0
                num_empty -= run == 1
                assert run <= ours.most_candidates(num_empty + 1)


@jit_only
@pytest.mark.parametrize("segment_tokens", [1, 8, 13, 64])
def test_4x4_scot(segment_tokens: int) -> None:
    check_puzzles("4x4", "scot", 8, segment_tokens, random_puzzles("4x4", 120, seed=1))


@jit_only
def test_4x4_cot() -> None:
    check_puzzles("4x4", "cot", 9, 512, random_puzzles("4x4", 120, seed=2))


@jit_only
def test_6x6() -> None:
    puzzles = random_puzzles("6x6", 12, seed=4) + searching_puzzles("6x6", 12, seed=4)
    check_puzzles("6x6", "cot", 13, 512, puzzles)
    check_puzzles("6x6", "scot", 10, 40, puzzles)


@jit_only
def test_9x9() -> None:
    puzzles = random_puzzles("9x9", 6, seed=5)[:5]
    check_puzzles("9x9", "scot", 11, 100, puzzles)
    check_puzzles("9x9", "cot", 14, 512, puzzles[:2])


@jit_only
def test_golden_records(shared_dir: Path) -> None:
    """The first golden puzzle decoded, and of the others some segments predicted."""
    records = json.loads((shared_dir / "golden" / "sudoku_traces.json").read_text())
    compiled, model = compiled_with_model("9x9", "scot", 11)
    for number, record in enumerate(records[:12]):
        givens = np.array([int(char) for char in record["puzzle"].replace(".", "0")], np.uint8)
        segments = solver_segments("9x9", givens, 512)
        wanted = [segment["sha256"] for segment in record["scot_segments"]]
        if number == 0:
            generated = list(generate_segments(model, compiled, givens))
            digests = [hashlib.sha256(ids.astype(np.uint8).tobytes()) for ids in generated]
            assert [digest.hexdigest() for digest in digests] == wanted
        for ids, prompt_length in segments[:: max(1, len(segments) - 1)]:
            predicted = model.predict(ids[:-1], prompt_length=prompt_length)
            assert predicted[prompt_length - 1 :].tolist() == ids[prompt_length:].tolist()


@jit_only
def test_prompts_from_the_middle_of_a_search() -> None:
    """Summaries after any line: of other lengths, and with a dead end as the last line."""
    board = get_board("6x6")
    compiled, model = compiled_with_model("6x6", "scot", 10, 40)
    num_dead_ends = 0
    for givens in searching_puzzles("6x6", 5, seed=6):
        for number, (ids, prompt_length) in enumerate(solver_segments("6x6", givens, 1)[1:]):
            prompt = ids[:prompt_length].astype(np.uint8)
            is_dead_end = bool(prompt[-2] == Special.NONE)
            if is_dead_end or number % 5 == 0:
                continuation = resume(board, prompt).tokens
                expected = cut_segment(board, prompt, continuation, num_givens=0, segment_tokens=40)
                generated = model.generate([prompt], stop=compiled.stop_ids)[0]
                assert generated[prompt_length:].tolist() == expected.tolist()
                num_dead_ends += is_dead_end
    assert num_dead_ends >= 5


@jit_only
def test_without_a_solution_pad_follows() -> None:
    compiled, model = compiled_with_model("6x6", "cot", 13)
    ids, prompt_length = unsolvable()
    generated = model.generate([ids[:prompt_length]], stop=compiled.stop_ids)[0]
    assert generated.tolist() == ids.tolist()
    assert next_prompt(generated, prompt_length=prompt_length) is None


@pytest.mark.parametrize("mode", ["cot", "scot"])
def test_registers_are_ternary_and_heads_decided(mode: Mode) -> None:
    """All of the paper's assumptions but that hidden values are 0 or 1: counts go up to D."""
    compiled, _ = compiled_with_model("4x4", mode, 8, 12)
    for givens in random_puzzles("4x4", 8, seed=7)[2:]:
        length = 12 if mode == "scot" else 1 << 30
        for ids, prompt_length in solver_segments("4x4", givens, length)[:2]:
            facts = trace_program(compiled.program, ids[:-1])
            problems = check_trace(facts, prompt_length=prompt_length)
            assert all("hidden neuron" in problem.reason for problem in problems), problems
            assert margin_problems(trace_margins(facts)) == []
            predicted = facts.predicted[prompt_length - 1 :]
            assert predicted.tolist() == ids[prompt_length:].tolist()
            # To all tokens of the last block, the stack is that of the trace's last token.
            parent = facts.streams[-1][:, compiled.program.find("parent").index] > 0
            starts = np.isin(ids[prompt_length:-1], [Special.OUTPUT, Special.SUMMARY])
            start = prompt_length + int(np.flatnonzero(starts)[0])
            assert set((parent[start:] @ (1 << np.arange(8))).tolist()) == {start - 1}


def without_head(layer: Layer, number: int) -> Layer:
    heads = layer.heads[:number] + layer.heads[number + 1 :]
    return dataclasses.replace(layer, heads=heads)


def without_gadget(layer: Layer, number: int) -> Layer:
    """Neurons of a gadget never write."""
    span = layer.spans[number]
    kept = (layer.down.neuron < span.start) | (layer.down.neuron >= span.stop)
    return dataclasses.replace(layer, down=select(layer.down, kept))


def mutants(program: Program) -> list[tuple[str, Program]]:
    """The program without each of its heads and gadgets."""
    found = []
    for place, layer in enumerate(program.layers):
        changed = [
            *((f"head {h.name}", without_head(layer, n)) for n, h in enumerate(layer.heads)),
            *((f"gadget {s.name}", without_gadget(layer, n)) for n, s in enumerate(layer.spans)),
        ]
        for what, other in changed:
            layers = (*program.layers[:place], other, *program.layers[place + 1 :])
            name = f"layer {place + 1}: {what}"
            found.append((name, dataclasses.replace(program, layers=layers)))
    return found


def crafted_summaries(compiled: CompiledSudoku) -> list[Ids]:
    """Prompts with all cells but the last assigned, in an order that the solver does not choose.

    The first has as many tokens as a stack can have; in the others all lines but one, which is
    further and further back, have no alternative, and the last is a dead end.
    """
    board = compiled.board
    solution = trace(get_board(board.name), np.zeros(board.num_cells, dtype=np.uint8)).solution
    assert solution is not None
    last, side = board.num_cells - 1, board.side

    def summary(nums_digits: list[int], *tail: int) -> Ids:
        ids: list[int] = [Special.SUMMARY]
        for cell, num in enumerate(nums_digits):
            digits = (solution[cell] - 1 + np.arange(num)) % side
            ids += [board.coordinate_ids[cell], *board.digit_ids[digits]]
        return np.array([*ids, *tail, Special.END_SUMMARY], dtype=np.int32)

    dead_end = (int(board.coordinate_ids[last]), Special.NONE)
    longest = [board.most_candidates(board.num_cells - cell) for cell in range(last)]
    far = [[2 if cell == place else 1 for cell in range(last)] for place in range(0, last, 3)]
    return [summary(longest), *(summary(nums, *dead_end) for nums in far)]


def registers_are_right(program: Program, segments: list[Segment]) -> bool:
    """Digits know their lines; to all tokens of the last block, the stack is the trace's."""
    for ids, n in segments:
        stream = trace_program(program, ids[:-1]).streams[-1]
        line, parent = (
            (stream[:, register.index] > 0) @ (1 << np.arange(len(register)))
            for register in (program.find("line"), program.find("parent"))
        )
        starts = np.isin(ids[n:-1], [Special.OUTPUT, Special.SUMMARY])
        start = n + int(np.flatnonzero(starts)[0])
        is_coordinate = (ids[:-1] > Special.NONE) & (ids[:-1] < BOARDS["6x6"].digit_ids[0])
        is_digit = ids[:-1] >= BOARDS["6x6"].digit_ids[0]
        latest = np.maximum.accumulate(np.where(is_coordinate, np.arange(len(ids) - 1), 0))
        if (line != ids[latest])[is_digit].any() or (parent[start:] != start - 1).any():
            return False
    return True


@pytest.mark.slow
@jit_only
def test_every_head_and_gadget_is_needed() -> None:
    compiled, model = compiled_with_model("6x6", "scot", 10, 40)
    segments = [unsolvable()]
    for givens in [*searching_puzzles("6x6", 8, seed=8), np.zeros(36, dtype=np.uint8)]:
        segments += solver_segments("6x6", givens, 40)
    for ids, n in solver_segments("6x6", searching_puzzles("6x6", 1, seed=8)[0], 1)[1:]:
        if ids[n - 2] == Special.NONE:
            prompt = ids[:n].astype(np.uint8)
            rest = resume(get_board("6x6"), prompt).tokens
            rest = cut_segment(get_board("6x6"), prompt, rest, num_givens=0, segment_tokens=40)
            segments.append((np.concatenate([ids[:n], rest]).astype(np.int32), n))

    for summary in crafted_summaries(compiled):
        ids = model.generate([summary], stop=(), max_positions=len(summary) + 4)[0]
        segments.append((ids, len(summary)))
    empty = solver_segments("6x6", np.zeros(36, dtype=np.uint8), 40)

    def is_right(program: Program) -> bool:
        model = SparseTransformer.from_program(program)
        try:
            for ids, n in segments:
                if (model.predict(ids[:-1], prompt_length=n)[n - 1 :] != ids[n:]).any():
                    return False
        except SparseError:
            return False
        return model.stats.least_gap == 2 and registers_are_right(program, [empty[0], empty[-1]])

    assert is_right(compiled.program)
    assert [name for name, program in mutants(compiled.program) if is_right(program)] == []

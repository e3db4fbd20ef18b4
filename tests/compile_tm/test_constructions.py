"""Tests of compiled machines against the definitions, by teacher forcing and generation."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from compile_tm.constructions.compiled import CompiledMachine, compile_machine, read_output
from compile_tm.constructions.dfa import DfaVocabulary, dfa_program
from compile_tm.constructions.sequences import cot_ids, min_bits, scot_segments
from compile_tm.constructions.sizes import MachineNumbers, dfa_sizes, tm_dimensions
from compile_tm.constructions.tokens import Answer, Delimiter, Symbol, Token
from compile_tm.constructions.vocabulary import Mode
from compile_tm.machines.dfa import Dfa
from compile_tm.machines.examples import multiples, parity
from compile_tm.machines.files import machine_from_data
from compile_tm.machines.interpreter import Run
from compile_tm.machines.random_machines import random_word
from compile_tm.machines.regex import regex_dfa
from compile_tm.machines.turing import TuringMachine
from compile_tm.program.compiled import Decoder
from compile_tm.runtime.generation import generate_words
from compile_tm.runtime.sparse import SparseTransformer
from compile_tm.runtime.transformer import TorchTransformer
from solver.jit import IS_JIT
from tests.compile_tm import naive_program
from tests.compile_tm.machine_cases import example_runs, random_dfa, random_runs
from tests.compile_tm.test_sequences import golden_records, golden_token

MODES: tuple[Mode, ...] = ("cot", "scot")
Segments = list[tuple["np.ndarray[tuple[int], np.dtype[np.int32]]", int]]


def expected_segments(compiled: CompiledMachine, run: Run) -> Segments:
    if compiled.mode == "scot":
        return list(scot_segments(compiled.vocabulary, run, bits=compiled.bits))
    return [(cot_ids(compiled.vocabulary, run, bits=compiled.bits), len(run.word) + 2)]


def check_run(run: Run, mode: Mode, *, extra_bits: int = 0, is_small: bool = True) -> None:
    bits = min_bits(run, mode=mode) + extra_bits
    compiled = compile_machine(run.machine, mode=mode, bits=bits, reachable_only=is_small)
    model = TorchTransformer(compiled.program)
    expected = expected_segments(compiled, run)
    for ids, prompt_length in expected:
        predicted = model.predict(ids[:-1])[prompt_length - 1 :]
        assert predicted.tolist() == ids[prompt_length:].tolist(), (run.machine, run.word, bits)
    generation = generate_words(model, compiled, [run.word])[0]
    assert generation.output == run.output
    assert [ids.tolist() for ids in generation.segments] == [ids.tolist() for ids, _ in expected]


@pytest.mark.parametrize("mode", ["cot", "scot"])
def test_example_machines(mode: Mode) -> None:
    for number, run in enumerate(example_runs()):
        check_run(run, mode, extra_bits=2 * (number % 2), is_small=number % 3 > 0)


@pytest.mark.parametrize("mode", ["cot", "scot"])
def test_random_machines(mode: Mode) -> None:
    for number, run in enumerate(random_runs(20, seed=6)):
        check_run(run, mode, extra_bits=2 * (number % 3))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["cot", "scot"])
def test_many_random_machines(mode: Mode) -> None:
    for run in random_runs(300, seed=7, max_steps=400):
        check_run(run, mode)


def test_golden_machines_token_for_token(shared_dir: Path) -> None:
    """Both runtimes generate the golden tokens; the dense one also with the whole vocabulary."""
    for number, record in enumerate(golden_records(shared_dir)):
        machine, bits = machine_from_data(record["machine"]), record["r"]
        assert isinstance(machine, TuringMachine)
        for mode, golden in zip(MODES, ([record["cot"]], record["scot"]), strict=True):
            is_small = number % 8 > 0
            compiled = compile_machine(machine, mode=mode, bits=bits, reachable_only=is_small)
            expected = [[golden_token(token) for token in segment] for segment in golden]
            if not is_small:
                dense = TorchTransformer(compiled.program)
                check_generation(dense, compiled, record["input"], expected)
            if IS_JIT:
                sparse = SparseTransformer.from_program(compiled.program)
                check_generation(sparse, compiled, record["input"], expected)


def check_generation(
    decoder: Decoder, compiled: CompiledMachine, word: str, expected: list[list[Token]]
) -> None:
    generation = generate_words(decoder, compiled, [word])[0]
    tokens = [list(compiled.vocabulary.tokens(ids)) for ids in generation.segments]
    assert tokens == expected


def test_exact_arithmetic_agrees_with_tensors_on_a_whole_machine() -> None:
    run = next(example_runs())
    for mode in ("cot", "scot"):
        compiled = compile_machine(run.machine, mode=mode, bits=4, reachable_only=True)
        ids, prompt_length = expected_segments(compiled, run)[0]
        predicted = naive_program.predict(compiled.program, ids[:-1].tolist())
        assert predicted[prompt_length - 1 :] == ids[prompt_length:].tolist()


def test_words_of_a_batch_do_not_disturb_each_other() -> None:
    machine = next(run for run in example_runs() if run.machine.name == "sorting").machine
    compiled = compile_machine(machine, mode="scot", bits=8, reachable_only=True)
    model = TorchTransformer(compiled.program)
    words = ["", "b", "cab", "abca", "ccbbaa"]
    for word, generation in zip(words, generate_words(model, compiled, words), strict=True):
        assert generation.output == tuple(sorted(word))
        assert generation.num_tokens == sum(len(ids) for ids in generation.segments)
    stopped = generate_words(model, compiled, ["cba"], max_segments=1)[0]
    assert stopped.output is None


def test_too_few_bits_give_no_output() -> None:
    machine = next(run for run in example_runs() if run.machine.name == "sorting").machine
    compiled = compile_machine(machine, mode="cot", bits=4)
    model = TorchTransformer(compiled.program)
    assert generate_words(model, compiled, ["cba"])[0].output is None
    with pytest.raises(ValueError, match="bits: got 5"):
        compile_machine(machine, mode="cot", bits=5)


def test_outputs_need_the_form_of_the_definition() -> None:
    first, last, a = Delimiter.OUTP, Delimiter.EOUTP, Symbol("a")
    assert read_output([a, first, a, a, last]) == ("a", "a")
    assert read_output([first, last]) == ()
    wrongs: list[list[Token]] = [[a], [a, last], [first, first, last], [first, a]]
    wrongs.append([first, Delimiter.POS, last])
    for wrong in wrongs:
        assert read_output(wrong) is None


DFAS = [parity(), multiples(3), multiples(5, base=3), regex_dfa("(a|b)*abb", alphabet="ab")]


@pytest.mark.parametrize("dfa", DFAS, ids=lambda dfa: dfa.name)
def test_automata_on_all_short_words(dfa: Dfa) -> None:
    bits = 3
    vocabulary, program = DfaVocabulary(dfa=dfa), dfa_program(dfa, bits=bits)
    model = TorchTransformer(program)
    for word in product(dfa.alphabet, repeat=4):
        answers = model.predict(vocabulary.input_ids(word))
        for length, answer in enumerate(answers):
            expected = Answer.TRUE if dfa.accepts(word[:length]) else Answer.FALSE
            assert vocabulary.token(int(answer)) is expected


def test_random_automata_on_the_longest_words() -> None:
    rng = np.random.default_rng(8)
    for _ in range(25):
        dfa, bits = random_dfa(rng), int(rng.integers(1, 7))
        program = dfa_program(dfa, bits=bits)
        assert program.sizes == dfa_sizes(dfa, bits=bits)
        assert len(program.layers) == bits + 2
        vocabulary = DfaVocabulary(dfa=dfa)
        word = random_word(rng, dfa, max_length=40)
        word = tuple((word * 64 + dfa.alphabet * 64)[: 2**bits - 1])
        answer = TorchTransformer(program).predict(vocabulary.input_ids(word))[-1]
        assert (vocabulary.token(int(answer)) is Answer.TRUE) == dfa.accepts(word)


def test_bad_automaton_calls_are_refused() -> None:
    vocabulary = DfaVocabulary(dfa=parity())
    with pytest.raises(ValueError, match="bits: got 0"):
        dfa_program(parity(), bits=0)
    with pytest.raises(ValueError, match="symbol '2' at index 0"):
        vocabulary.input_ids("2")
    with pytest.raises(ValueError, match="token id: got 9"):
        vocabulary.token(9)
    assert vocabulary.token(1) == Symbol("1")


def test_width_of_the_authors_code_at_four_bits() -> None:
    """Layer 4 is a layer of head propagation for r = 4 alone, which adds a neuron."""
    numbers = MachineNumbers(num_tapes=2, num_states=2, num_symbols=2, num_inputs=1)
    widths = [tm_dimensions(numbers, mode="scot", bits=bits).d_ff for bits in (4, 6)]
    assert widths == [18 * 2 * 4 + 2 * 4 + 1, 18 * 2 * 6 + 2 * 6]

"""Tests of exported machines with rotary embeddings: against the runtime, and their checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compile_tm.constructions.compiled import Compiled, compile_dfa, compile_machine
from compile_tm.constructions.sequences import min_bits
from compile_tm.constructions.vocabulary import Mode
from compile_tm.conversion.convert import Kind, convert
from compile_tm.conversion.rope.blueprint import make_blueprint
from compile_tm.conversion.rope.rotation import rotate
from compile_tm.conversion.settings import Conversion, RoundingPoints
from compile_tm.formats.floats import BF16, FloatFormat
from compile_tm.hf import CompiledTransformerConfig, CompiledTransformerForCausalLM
from compile_tm.hf.decoder import CompiledDecoder
from compile_tm.hf.export import export_model, hf_model
from compile_tm.hf.folder_check import check_folder
from compile_tm.hf.modeling_compiled import rotated
from compile_tm.hf.source import load_model
from compile_tm.machines.examples import binary_increment
from compile_tm.machines.interpreter import Run, run_machine
from compile_tm.machines.random_machines import RandomMachineConfig, random_machine, random_word
from compile_tm.machines.regex import regex_dfa
from compile_tm.runtime.generation import generate_words
from compile_tm.runtime.trace import trace_program
from compile_tm.runtime.transformer import TorchTransformer
from compile_tm.sudoku.board import BOARDS
from compile_tm.sudoku.compiled import compile_sudoku
from tests.compile_tm.test_hf import generated, run_fresh

BF16_BOTH = RoundingPoints(activations=BF16, attention=BF16)
FORMS: tuple[tuple[Kind | None, RoundingPoints], ...] = (
    (None, RoundingPoints()),
    ("exact", RoundingPoints()),
    ("exact", RoundingPoints(activations=BF16)),
    ("denoise", BF16_BOTH),
)
"""Hardmax, and conversions with what they round."""


def automaton() -> Compiled:
    return compile_dfa(regex_dfa("(a|b)*abb", alphabet="ab"), bits=3)


def check_twins(compiled: Compiled, word: tuple[str, ...], form: int) -> None:
    """The definition's tokens, by one batch of all segments; and logits equal to our runtime's."""
    kind, points = FORMS[form]
    blueprint = make_blueprint(compiled, "rope")
    conversion = None if kind is None else convert(blueprint, kind, points=points)
    model = TorchTransformer(blueprint.program, conversion, rope=blueprint.rope, points=points)
    exported = hf_model(compiled, conversion, positions="rope", points=points)
    parts = compiled.expected_segments(word)
    sequences = generated(exported, compiled, [ids[:length] for ids, length in parts])
    assert sequences == [ids.tolist() for ids, _ in parts]
    for ids, _ in parts[:2]:
        tokens = torch.from_numpy(ids[None, :-1].astype(np.int64))
        assert torch.allclose(exported(tokens).logits, model(tokens), rtol=0, atol=1e-5)


def random_run(seed: int) -> Run:
    """A short run with an output, and two segments where summaries are written."""
    rng = np.random.default_rng(seed)
    machines = RandomMachineConfig(max_tapes=2, max_states=3, max_word=3)
    while True:
        machine = random_machine(rng, machines)
        run = run_machine(machine, random_word(rng, machine, max_length=3), max_steps=12)
        if run.output is not None and min_bits(run, mode="scot") <= 6:
            return run


@given(seed=st.integers(0, 10_000), mode=st.sampled_from(["cot", "scot"]), form=st.integers(0, 3))
@settings(max_examples=8, deadline=None)
def test_random_machines_have_twins(seed: int, mode: Mode, form: int) -> None:
    run = random_run(seed)
    bits = min_bits(run, mode=mode)
    compiled = compile_machine(run.machine, mode=mode, bits=bits, reachable_only=True)
    check_twins(compiled, run.word, form)


@pytest.mark.parametrize("form", range(len(FORMS)))
def test_automata_have_twins(form: int) -> None:
    for word in ("", "abb", "aabbabb"):
        check_twins(automaton(), tuple(word), form)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Denoised, in formats as narrow as may be."""
    path = tmp_path_factory.mktemp("rope") / "model"
    compiled = compile_machine(binary_increment(), mode="scot", bits=4, reachable_only=True)
    points = RoundingPoints(
        activations=FloatFormat(mantissa_bits=6, exponent_bits=5), attention=BF16
    )
    conversion = convert(make_blueprint(compiled, "rope"), "denoise", points=points)
    export_model(
        compiled, path, conversion=conversion, positions="rope", points=points, words=["1", "0", ""]
    )
    return path


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rotations_are_those_of_the_definition(dtype: torch.dtype) -> None:
    """The tables are float32 or wider, whatever the dtype; and each row has its own positions."""
    model: Any = hf_model(automaton(), positions="rope")
    model.to(dtype)
    periods = model.config.rotary_periods
    positions = torch.tensor([[0, 1, 2, 3, 5], [0, 0, 0, 1, 7]])
    cos, sin = turns = model.turns(positions)
    assert cos.dtype == sin.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    x = torch.randn(2, 3, 5, 2 * len(periods) + 3, dtype=dtype)
    found = rotated(x, turns)
    assert found.dtype == dtype
    assert torch.equal(found[..., 2 * len(periods) :], x[..., 2 * len(periods) :])
    for row, own in enumerate(positions):
        wanted = rotate(x[row].to(cos.dtype), own, periods).to(dtype)
        assert torch.allclose(found[row], wanted, rtol=1e-6, atol=1e-6)
    assert hf_model(automaton()).turns(positions) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", [None, "denoise"])
def test_real_narrow_dtypes_give_the_same_tokens(
    dtype: torch.dtype, kind: Literal["denoise"] | None
) -> None:
    compiled = automaton()
    blueprint, points = make_blueprint(compiled, "rope"), RoundingPoints(activations=BF16)
    conversion = kind and convert(blueprint, kind, points=points)
    model: Any = hf_model(compiled, conversion, positions="rope")
    model.to(dtype)
    parts = [compiled.expected_segments(word)[0] for word in ("abb", "a", "babbabb", "")]
    sequences = generated(model, compiled, [ids[:length] for ids, length in parts])
    assert sequences == [ids.tolist() for ids, _ in parts]


def test_padding_caches_and_chunks_make_no_difference(folder: Path) -> None:
    model = load_model(folder)
    ids = torch.tensor(
        [json.loads((folder / "self_test.json").read_text())[0]["segments"][0]["ids"]]
    )
    logits = model(ids, use_cache=False).logits
    first = model(ids[:, :4])
    second = model(ids[:, 4:], past_key_values=first.past_key_values)
    assert torch.equal(torch.cat([first.logits, second.logits], dim=1), logits)
    for left, right in ((3, 0), (0, 4), (2, 5)):
        padded = torch.nn.functional.pad(ids, (left, right))
        mask = torch.nn.functional.pad(torch.ones_like(ids), (left, right))
        shifted = model(padded, attention_mask=mask).logits[:, left : left + ids.shape[1]]
        assert torch.equal(shifted, logits)
    with pytest.raises(ValueError, match="positions: got 17, allowed are 16"):
        model(torch.zeros(1, 17, dtype=torch.long))


def test_a_fresh_process_writes_the_interpreters_tokens(folder: Path, tmp_path: Path) -> None:
    test = (
        "import json, sys, torch, transformers\n"
        "model = transformers.AutoModelForCausalLM.from_pretrained('.', trust_remote_code=True)\n"
        "for row in json.load(open('self_test.json')):\n"
        "    for part in row['segments']:\n"
        "        prompt = torch.tensor([part['ids'][: part['prompt_length']]])\n"
        "        assert model.generate(prompt)[0].tolist() == part['ids']\n"
        "assert not any(name.startswith('compile_tm') for name in sys.modules)\n"
        "print(model.config.rotary_periods, model.config.position_coordinates)\n"
    )
    printed = run_fresh(test, folder=folder, home=tmp_path)
    assert printed == "[2, 4, 8, 16, 32, 64] []\n"


def test_a_sound_folder_passes_and_decodes(folder: Path) -> None:
    found = check_folder(folder)
    assert found.problems == ()
    assert found.source.positions == "rope"
    assert found.source.points.activations == FloatFormat(mantissa_bits=6, exponent_bits=5)
    decoder = CompiledDecoder(folder)
    compiled: Any = decoder.source.compiled
    generations = generate_words(decoder, compiled, ["1", "", "0"])
    assert [generation.output for generation in generations] == [("1", "0"), ("1",), ("1",)]
    card = (folder / "README.md").read_text()
    assert "16, by rotary embeddings" in card
    assert "activations are rounded to F(6, 5) and attention weights are rounded to F(7, 8)" in card


def changed_config(folder: Path, target: Path, **fields: object) -> Path:
    """A copy of the folder whose config has other fields."""
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    config = json.loads((target / "config.json").read_text()) | fields
    (target / "config.json").write_text(json.dumps(config))
    return target


def test_other_rotations_are_found(folder: Path, tmp_path: Path) -> None:
    """The config is compared; and the first wrong activation after one period is wrong is told."""
    config = CompiledTransformerConfig.from_pretrained(folder)
    periods: list[int] = [2, 8, 8, 16, 32, 64]
    path = changed_config(folder, tmp_path / "periods", rotary_periods=periods)
    texts = [str(problem) for problem in check_folder(path).problems]
    assert texts[0] == (
        "config, rotary_periods: is [2, 8, 8, 16, 32, 64], must be [2, 4, 8, 16, 32, 64]"
    )
    index = next(place for place, text in enumerate(texts) if "the model predicts" in text)
    assert texts[index + 1].startswith(
        "the same word: layer 3 after the denoising, head 0 (position), position 2: "
        "multiple of 2^2 is 0.1719, expected 0 +- 0; first wrong token after position "
    )
    path = changed_config(folder, tmp_path / "heads", rotary_heads=[[]] * config.num_hidden_layers)
    assert any("rotary_heads" in str(problem) for problem in check_folder(path).problems)


def test_a_c_that_is_too_small_is_found_with_its_place(tmp_path: Path) -> None:
    compiled = compile_dfa(regex_dfa("(a|b)*abb", alphabet="ab"), bits=4)
    layers = make_blueprint(compiled, "rope").sizes.L
    conversion = Conversion(c=2.0, denoised=frozenset(range(1, layers + 1)))
    export_model(
        compiled,
        tmp_path / "m",
        conversion=conversion,
        positions="rope",
        points=BF16_BOTH,
        words=["abaabbababbaabb"],
    )
    texts = [str(problem) for problem in check_folder(tmp_path / "m").problems]
    assert "the model predicts" in texts[0]
    assert texts[1].startswith("the same word: layer 1 after the denoising, head 0 (position), ")


def test_folders_from_before_open(tmp_path: Path) -> None:
    """They name neither rotations nor positions."""
    compiled = automaton()
    export_model(compiled, tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    config = json.loads(path.read_text())
    for name in ("rotary_periods", "rotary_heads"):
        config.pop(name)
    del config["source"]["positions"]
    path.write_text(json.dumps(config))
    found = check_folder(tmp_path / "m")
    assert found.problems == ()
    assert found.source.positions == "embedding"


def test_rotations_that_cannot_be_are_refused() -> None:
    sizes: dict[str, Any] = {"key_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2}
    good: dict[str, Any] = {"rotary_periods": [4, 8], "rotary_heads": [[0, 1], []]}
    config = CompiledTransformerConfig(**sizes, **good)
    assert config.max_position_embeddings == 2
    assert config.position_coordinates == []
    CompiledTransformerForCausalLM(config)
    for wrong, message in (
        ({"rotary_periods": [4, 8, 16]}, r"rotary_periods: got \[4, 8, 16\], allowed are 1 to 2"),
        ({"rotary_periods": [4, 0]}, "rotary_periods: got"),
        ({"rotary_periods": [2]}, "the longest 4 or more"),
        ({"rotary_periods": None}, "rotary_heads: must be None without rotary_periods"),
        ({"rotary_heads": None}, "rotary_heads: allowed are 2 rows of numbers below 2"),
        ({"rotary_heads": [[0]]}, "rotary_heads: allowed are 2 rows"),
        ({"rotary_heads": [[2], []]}, "rotary_heads: allowed are 2 rows"),
        ({"position_coordinates": [0]}, "position_coordinates: must be empty with rotary_periods"),
    ):
        with pytest.raises(ValueError, match=message):
            CompiledTransformerConfig(**sizes, **(good | wrong))


def test_boards_have_rotary_encodings_too() -> None:
    solver = compile_sudoku(BOARDS["4x4"], mode="scot", bits=6, segment_tokens=12)
    ids = solver.board.input_ids([1, 2, 3, 4] + [0] * 12)
    logits = hf_model(solver, positions="rope")(torch.from_numpy(ids[None].astype(np.int64))).logits
    expected = trace_program(solver.program, ids).predicted
    assert logits[0].argmax(dim=-1).tolist() == expected.tolist()

"""Tests of compiled programs as plain Llama and GPT-NeoX models."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from compile_tm.constructions.compiled import CompiledMachine, compile_dfa, compile_machine
from compile_tm.hf.decoder import StockDecoder
from compile_tm.hf.folder import write_evaluation_facts
from compile_tm.hf.self_test import read_cases
from compile_tm.machines.examples import binary_increment, parity, sorting
from compile_tm.program.compiled import CompiledProgram
from compile_tm.stock.attention import (
    GAP,
    LEAST_MARGIN,
    MAX_ROW_WEIGHT,
    attention_error_exponent,
    score_rows,
)
from compile_tm.stock.check import check_stock_folder
from compile_tm.stock.feed_forward import BETA
from compile_tm.stock.folder import export_stock, stock_tensors
from compile_tm.stock.llama import llama_config, query_scale
from compile_tm.stock.positions import bit_layer
from compile_tm.stock.self_test import expected_case
from compile_tm.stock.shape import Architecture
from compile_tm.stock.source import make_source
from data.model_format.facts import FACTS_FILE
from data.model_format.weights import weights_digest
from solver.jit import IS_JIT
from tests.compile_tm.self_test_checks import assert_words_that_cannot_be_run_are_problems
from tests.compile_tm.sudoku_runs import compiled_with_model

if not IS_JIT:
    pytest.skip("the sparse runtime is slow without the JIT", allow_module_level=True)

ARCHITECTURES: tuple[Architecture, ...] = ("llama", "gpt-neox")
DTYPES = (torch.float32, torch.bfloat16)


@functools.cache
def compiled_case(name: str) -> CompiledProgram:
    match name:
        case "parity":
            return compile_dfa(parity(), bits=4)
        case "increment":
            return compile_machine(binary_increment(), mode="cot", bits=6, reachable_only=True)
        case "sorting":
            return compile_machine(sorting(), mode="scot", bits=8, reachable_only=True)
        case "sudoku-cot":
            return compiled_with_model("4x4", "cot", 8)[0]
        case "sudoku":
            return compiled_with_model("4x4", "scot", 8, 12)[0]
    raise ValueError(name)


WORDS = {"parity": "1101", "increment": "1011", "sorting": "cab"}
CASES = ("parity", "increment", "sorting", "sudoku-cot", "sudoku")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stock")


def folder(root: Path, name: str, architecture: Architecture) -> Path:
    """A folder that is written once."""
    path = root / f"{name}-{architecture}"
    if not path.exists():
        words = [WORDS[name]] if name in WORDS else []
        export_stock(make_source(compiled_case(name), architecture), path, words=words)
    return path


@pytest.mark.parametrize(
    ("name", "architecture"),
    [(name, architecture) for name in CASES for architecture in ARCHITECTURES],
)
def test_folders_compute_the_program(root: Path, name: str, architecture: Architecture) -> None:
    path = folder(root, name, architecture)
    for dtype in DTYPES:
        found = check_stock_folder(path, dtype=dtype)
        assert found.problems == ()
        assert found.num_tokens > 0
        assert found.deviation < (1e-3 if architecture == "llama" else 1 / 16)
        assert min(margin.margin for margin in found.margins) > 15 / 16
        # Powers of two and a constant of 2^18: the identity to the bit, but for fp32 noise.
        assert found.norm_delta < (1e-30 if architecture == "llama" else 2**-14)


def test_files_have_the_permissions_of_the_umask(root: Path) -> None:
    path = folder(root, "parity", "llama")
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.iterdir()}
    assert set(modes.values()) == {path.stat().st_mode & 0o666}, modes


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_sizes_by_formula_are_those_of_the_tensors(root: Path, architecture: Architecture) -> None:
    for name in CASES:
        source = make_source(compiled_case(name), architecture)
        tensors = dict(stock_tensors(source))
        assert source.shape.num_parameters == sum(t.numel() for t in tensors.values())
        nonzero = sum(int(t.count_nonzero()) for t in tensors.values())
        assert source.shape.num_nonzero == nonzero, name
        if architecture == "llama":
            assert all(torch.equal(t, t.bfloat16().float()) for t in tensors.values())
    path = folder(root, "parity", architecture)
    stored = load_file(path / "model.safetensors")
    assert {n: tuple(t.shape) for n, t in stored.items()} == {
        n: tuple(t.shape)
        for n, t in stock_tensors(make_source(compiled_case("parity"), architecture))
    }


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_opens_by_the_auto_classes_alone(root: Path, attention: str) -> None:
    path = folder(root, "sudoku", "llama")
    assert not list(path.glob("*.py"))
    assert json.loads((path / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    tokenizer: Any = AutoTokenizer.from_pretrained(path)
    model: Any = AutoModelForCausalLM.from_pretrained(path, attn_implementation=attention)
    cases = read_cases(path)
    parts = [segment for case in cases for segment in case.segments]
    for dtype in DTYPES:
        model = model.to(dtype)
        texts = [tokenizer.decode(ids[:length]) for ids, length in parts]
        batch = tokenizer(texts, return_tensors="pt", padding=True)
        assert batch["input_ids"].shape[1] > min(length for _, length in parts)  # it is padded
        rows = model.generate(**batch, max_length=400)[:, batch["input_ids"].shape[1] :]
        for (ids, length), row in zip(parts, rows.tolist(), strict=True):
            assert row[: len(ids) - length] == list(ids[length:])


def test_generation_fills_all_positions_and_no_more(root: Path) -> None:
    """Prompts of other lengths beside a sequence do not shorten it: padding is no position."""
    decoder = StockDecoder(folder(root, "increment", "llama"))
    compiled = decoder.source.compiled
    assert isinstance(compiled, CompiledMachine)
    vocabulary = compiled.vocabulary
    short, long = (vocabulary.input_ids(word) for word in ("1", "1" * 40))
    alone = decoder.generate([short], stop=())[0]
    assert len(alone) == 1 + decoder.source.program.max_positions
    together = decoder.generate([long, short], stop=())
    assert np.array_equal(together[1], alone)
    assert len(together[0]) == len(alone)


def test_positions_are_exact_everywhere() -> None:
    """Scores of the position heads at all positions to 2^15, rounded as transformers does."""
    bits = 15
    source = make_source(compile_dfa(parity(), bits=bits), "llama")
    config = llama_config(source.shape, bits=bits, dtype="float32")
    layer = bit_layer(tuple(range(bits)), first=100, constant=101)
    size = source.shape.head_size
    positions = torch.arange(1 << bits)
    for dtype in DTYPES:
        q, k = torch.zeros(1, bits, len(positions), size), torch.zeros(1, bits, 1, size)
        for head in range(bits):
            (row,) = layer.heads[head].rotary_rows
            assert row.pair == head
            q[0, head, :, row.pair] = row.query[101]
            for dim, form in zip((row.pair, row.pair + size // 2), row.key, strict=True):
                k[0, head, 0, dim] = form[100]
        cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1, dtype=dtype), positions[None])
        turned, _ = apply_rotary_pos_emb(q.to(dtype), k.to(dtype), cos, sin)
        scores = (turned.float() @ k.to(dtype).float().transpose(-1, -2))[0, :, :, 0]
        is_one = (positions >> torch.arange(bits)[:, None] & 1) == 1
        assert torch.equal(scores < 0, is_one)
        assert scores.abs().min() > 15 / 16


def test_repeated_wires_become_weights() -> None:
    program = compiled_case("sudoku").program
    rng = np.random.default_rng(0)
    x, y = rng.integers(-1, 2, size=(2, program.sizes.d))
    widest = 0
    for head in (head for layer in program.layers for head in layer.heads):
        rows = score_rows(head)
        assert all(sum(row.key.values()) <= MAX_ROW_WEIGHT for row in rows)
        widest = max(widest, len(head.queries) // len(rows))
        expected = x[head.queries.index] @ y[head.keys.index]
        forms = [
            tuple(
                sum(w * v[c] for c, w in form.items()) for v, form in ((x, row.query), (y, row.key))
            )
            for row in rows
        ]
        assert sum(q * k for q, k in forms) == expected
    assert widest >= 10


def test_swiglu_is_relu() -> None:
    for dtype in DTYPES:
        whole = torch.arange(-200, 201).to(dtype)
        value = torch.nn.functional.silu(BETA * whole) * torch.tensor(1 / BETA, dtype=dtype)
        assert torch.equal(value, whole.relu())
    z = torch.linspace(-1, 1, 100_001, dtype=torch.float64)
    error = (torch.nn.functional.silu(BETA * z) / BETA - z.relu()).abs().max()
    bound = 0.2785 / BETA
    assert 0.99 * bound < error <= bound
    assert query_scale(64) == 512


def test_words_that_cannot_be_run_are_problems(root: Path, tmp_path: Path) -> None:
    source = folder(root, "parity", "llama")
    assert_words_that_cannot_be_run_are_problems(check_stock_folder, source, tmp_path / "copy")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_recorded_digest_is_that_of_the_weights(
    tmp_path: Path, architecture: Architecture, dtype: torch.dtype
) -> None:
    source = make_source(compiled_case("sudoku"), architecture)
    tensors = {name: tensor.to(dtype).clone() for name, tensor in stock_tensors(source)}
    write_evaluation_facts(source.compiled, tensors, tmp_path, indent=1)
    save_file(tensors, tmp_path / "w.safetensors")
    recorded = json.loads((tmp_path / FACTS_FILE).read_text())["weights_digest"]
    assert recorded == weights_digest(load_file(tmp_path / "w.safetensors"))


def test_the_bound_on_attention_of_lower_scores(root: Path) -> None:
    """The card has the bound for its number of positions."""
    for bits in range(1, 21):
        margin = GAP * (LEAST_MARGIN - 2.0**bits * 2**-22)
        share, bound = 2**bits * math.exp(-margin), 2.0 ** -attention_error_exponent(bits)
        assert bound / 2 <= share < bound
    card = (folder(root, "parity", "llama") / "README.md").read_text()
    assert "less than 2^-76 of the\nattention. Hidden" in card


def test_puzzles_of_a_self_test_are_parsed_strictly() -> None:
    compiled = compiled_case("sudoku")
    with pytest.raises(ValueError, match=r"^puzzle: got '5' in cell 1, allowed are 1 to 4, and"):
        expected_case(compiled, "5" + "." * 15)
    case = expected_case(compiled, "1" + "0" * 15)
    assert case.word == tuple("1" + "0" * 15)
    assert case.segments == expected_case(compiled, "1" + "." * 15).segments


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_check_names_what_is_wrong(root: Path, tmp_path: Path, architecture: Architecture) -> None:
    path = folder(root, "sudoku", architecture)
    tensors = load_file(path / "model.safetensors")
    is_llama = architecture == "llama"
    name = (
        "model.layers.6.mlp.down_proj.weight"
        if is_llama
        else "gpt_neox.layers.6.mlp.dense_4h_to_h.weight"
    )
    damaged = tensors[name].clone()
    coordinate, neuron = damaged.nonzero()[0].tolist()
    damaged[coordinate] = 0
    for file in path.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    save_file({**tensors, name: damaged}, tmp_path / "model.safetensors", {"format": "pt"})
    found = [str(problem) for problem in check_stock_folder(tmp_path).problems]
    register = make_source(compiled_case("sudoku"), architecture).wire_at(coordinate)
    assert found[0].startswith(f"layer 7, {name.split('.')[-2]}, neuron {neuron}, {register}: is 0")
    assert any("layer 7, gadget" in line and f": {register} is" in line for line in found[1:])
    if not is_llama:
        for module, n in (("attention.dense", 4), ("mlp.dense_4h_to_h", 5)):
            bias = f"gpt_neox.layers.2.{module}.bias"
            wrong = tensors[bias].clone()
            wrong[n] = 1
            save_file({**tensors, bias: wrong}, tmp_path / "model.safetensors", {"format": "pt"})
            register = make_source(compiled_case("sudoku"), architecture).wire_at(n)
            (problem, *_) = check_stock_folder(tmp_path).problems
            layer = module.split(".")[1]
            assert str(problem) == f"layer 3, {layer}, bias, {register}: is 1, must be 0"
    head = "model.layers.1.self_attn.k_proj.weight"
    if is_llama:
        weaker = {**tensors, head: tensors[head] / 2}
        save_file(weaker, tmp_path / "model.safetensors", {"format": "pt"})
        found = [str(problem) for problem in check_stock_folder(tmp_path).problems]
        assert any("layer 2, head" in line and "its margin is 0.5 G" in line for line in found)

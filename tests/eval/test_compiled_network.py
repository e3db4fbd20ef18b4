"""Tests of the network of compiled transformers against the exported model and the solver."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from data.model_format.precision import PrecisionName, get_precision
from eval.engines.contract import Caps, FinishReason, Request
from eval.engines.factory import LOCAL_ENGINES, make_engine, make_network
from eval.engines.puzzle_run import input_prompt
from eval.network.compiled.network import CompiledNetwork
from eval.network.model_folder import CONFIG_FILE, WEIGHTS_FILE, ModelFolder
from eval.network.network import Network
from eval.network.transformers_model import load_model
from eval.network.types import Span
from solver.boards import get_board
from solver.vocabulary import Tokens
from tests.eval.compiled_models import compile_solver, written_by_solver
from tests.eval.engine_cases import cache_bytes, describe, grid

CPU = torch.device("cpu")
FP32 = get_precision("fp32")
CAPS = Caps(max_new_tokens=2_000, max_segment_tokens=400)
BOARD = get_board("4x4")
PUZZLES = ("....1..2.3.1..2.", ".1..4..1.4....3.", ".13.3..21.......")
PUZZLES_6X6 = ("2..341..4....1....6.3....6.4.5.4.2.6", ".5634..............2.1..3624.5....3.")
MODELS = {
    "hardmax": ("4x4", "scot", "--bits", "8"),
    "exact": ("4x4", "scot", "--bits", "8", "--attention", "exact"),
    "denoise": ("4x4", "scot", "--bits", "8", "--attention", "denoise"),
    "cot": ("4x4", "cot", "--bits", "9"),
    "6x6": ("6x6", "scot", "--bits", "8"),
}


@pytest.fixture(scope="module", params=MODELS)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    board, mode, *options = MODELS[request.param]
    path = tmp_path_factory.mktemp("models") / request.param
    return ModelFolder.open(compile_solver(path, *options, board=board, mode=mode))


@pytest.fixture(scope="module")
def solver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with so few positions that a CoT does not fit."""
    return compile_solver(tmp_path_factory.mktemp("few") / "solver", "--bits", "6", mode="cot")


@pytest.fixture
def path(solver: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(solver, tmp_path / "model"))


def edit_config(path: Path, **values: object) -> None:
    config = json.loads((path / CONFIG_FILE).read_text())
    (path / CONFIG_FILE).write_text(json.dumps(config | values))


def texts(folder: ModelFolder, *lengths: int) -> list[Tokens]:
    rng = np.random.default_rng(7)
    return [rng.integers(0, folder.vocabulary.size, n).astype(np.uint8) for n in lengths]


@torch.no_grad()
def reference(model: PreTrainedModel, tokens: Tokens, *, is_bf16: bool = False) -> Tensor:
    ids = torch.from_numpy(tokens.astype(np.int64))[None]
    with torch.autocast("cpu", torch.bfloat16, enabled=is_bf16):
        logits: Tensor = model(ids).logits[0].float()
    return logits


def compiled(folder: ModelFolder, precision: PrecisionName = "fp32") -> CompiledNetwork:
    network = make_network(folder, precision=get_precision(precision), device=CPU)
    assert isinstance(network, CompiledNetwork)
    return network


def assert_equal(got: Tensor, expected: Tensor, *, folder: ModelFolder) -> None:
    """Hardmax is exact; softmax sums in an order that depends on shapes."""
    assert torch.equal(got.argmax(dim=-1), expected.argmax(dim=-1))
    rtol = 0 if folder.config["attention"] == "hardmax" else 1e-5
    torch.testing.assert_close(got, expected, atol=1e-4 if rtol else 0, rtol=rtol)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_logits_are_those_of_the_exported_model(
    opened: ModelFolder, precision: PrecisionName
) -> None:
    """Of prefixes that mean nothing, in which many positions tie, in slots of several lengths."""
    model, network = load_model(opened), compiled(opened, precision)
    written = texts(opened, 60, 1, 120, 7)
    spans = [Span(slot=3 - i, start=0, tokens=tokens) for i, tokens in enumerate(written)]
    cache = network.new_cache(num_slots=5, capacity=128)
    together = network.prefill(cache, spans)
    expected = [reference(model, tokens, is_bf16=precision == "bf16") for tokens in written]
    assert together.shape == (188, opened.vocabulary.size)
    assert_equal(together, torch.cat(expected), folder=opened)
    last = network.prefill(cache, spans, is_last_only=True)
    assert_equal(last, torch.stack([logits[-1] for logits in expected]), folder=opened)


def test_slots_are_stepped_truncated_grown_and_extended(opened: ModelFolder) -> None:
    model, network = load_model(opened), compiled(opened)
    first, second, other = texts(opened, 50, 30, 40)
    cache = network.new_cache(num_slots=3, capacity=64)
    network.prefill(cache, [Span(slot=2, start=0, tokens=first)])
    network.prefill(
        cache,
        [Span(slot=2, start=0, tokens=second[:20]), Span(slot=1, start=0, tokens=other[:5])],
    )
    size = cache_bytes(cache)
    cache.grow(96)
    assert cache_bytes(cache) * 64 == size * 96
    expected = [reference(model, tokens) for tokens in (second, other)]
    for slots in (None, torch.tensor([2, 1])):
        for ahead in range(5):
            positions = torch.tensor([20, 5]) + ahead
            tokens = torch.tensor([int(second[20 + ahead]), int(other[5 + ahead])])
            logits = torch.stack([expected[0][20 + ahead], expected[1][5 + ahead]])
            if slots is None:  # all three slots, in order; the first holds nothing
                tokens, positions = (
                    torch.cat((part[:1] * 0, part.flip(0))) for part in (tokens, positions)
                )
                got = network.decode_step(cache, tokens, positions, max_seq_len=25)[[2, 1]]
            else:
                got = network.decode_step(cache, tokens, positions, slots=slots, max_seq_len=25)
            assert_equal(got, logits, folder=opened)


@pytest.mark.parametrize("name", ["segment", "verify", "hf"])
def test_engines_write_what_the_solver_writes(opened: ModelFolder, name: str) -> None:
    board, mode = opened.board, opened.facts.mode
    if name == "hf" and opened.path.name not in ("hardmax", "exact"):
        pytest.skip("transformers is slow, and the logits are compared for all")
    puzzles = PUZZLES if board == BOARD else PUZZLES_6X6
    if name == "hf":
        puzzles = puzzles[:2]
    requests = [
        Request(key=text, board=board, givens=grid(text), mode=mode, caps=CAPS) for text in puzzles
    ]
    engine = make_engine(name, opened, precision=FP32, device=CPU, num_slots=2)
    results = {result.key: describe(result) for result in engine.decode(requests)}
    for request in requests:
        _, finish_reason, _, _, _, segments = results[request.key]
        assert finish_reason is FinishReason.SOLVED
        assert segments == written_by_solver(board, request.givens, mode=mode)
    assert engine.stats.num_accepted_tokens == engine.stats.num_drafted_tokens
    assert (engine.stats.num_accepted_tokens > 0) == (name == "verify")


@pytest.mark.parametrize("num_slots", [1, 3])
@pytest.mark.parametrize("name", ["hf", "segment", "verify"])
def test_traces_that_are_too_long_end_for_lack_of_positions(
    solver: Path, name: str, num_slots: int
) -> None:
    """Beside others, too, whose prompts are shorter."""
    folder = ModelFolder.open(solver)
    assert folder.max_positions == 64
    engine = make_engine(name, folder, precision=FP32, device=CPU, num_slots=num_slots)
    requests = [
        Request(key=text, board=BOARD, givens=grid(text), mode="cot", caps=CAPS)
        for text in (*PUZZLES, "1.....3..4.....2")
    ]
    assert len({np.count_nonzero(request.givens) for request in requests}) > 1
    results = {result.key: result for result in engine.decode(requests)}
    for request in requests:
        result = results[request.key]
        assert result.finish_reason is FinishReason.CONTEXT
        (written,) = written_by_solver(BOARD, request.givens, mode="cot")
        assert result.segments[0].tolist() == written[: result.num_new_tokens]
        assert result.num_new_tokens == 64 - len(input_prompt(request))
    network = compiled(folder)
    cache = network.new_cache(num_slots=1, capacity=1_000)
    assert cache.capacity == 64
    span = Span(slot=0, start=0, tokens=np.full(65, 3, dtype=np.uint8))
    with pytest.raises(ValueError, match="span: ends at 65, allowed is at most 64"):
        network.prefill(cache, [span])


def test_damaged_entries_are_named(path: Path) -> None:
    # Copied, since old versions of safetensors map the file, which is overwritten below.
    whole = {name: tensor.clone() for name, tensor in load_file(path / WEIGHTS_FILE).items()}

    def spoil(name: str, tensor: Tensor | None) -> None:
        tensors = {**whole, name: tensor} if tensor is not None else dict(whole)
        if tensor is None:
            del tensors[name]
        save_file({n: t for n, t in tensors.items() if t is not None}, path / WEIGHTS_FILE)

    places, values = whole["layers.1.W_Q.places"], whole["layers.1.W_Q.values"]
    for wrong in (places.flip(0), places - 1_000_000, places + 1_000_000, places * 0):
        spoil("layers.1.W_Q.places", wrong.contiguous())
        with pytest.raises(ValueError, match=r"layers\.1\.W_Q\.places: allowed are ascending"):
            ModelFolder.open(path)
    spoil("layers.1.W_Q.places", places.float())
    with pytest.raises(ValueError, match=r"layers\.1\.W_Q\.places: got torch\.float32"):
        ModelFolder.open(path)
    spoil("layers.1.W_Q.values", values / 0)
    with pytest.raises(ValueError, match=r"layers\.1\.W_Q\.values: allowed are finite numbers"):
        ModelFolder.open(path)
    spoil("layers.1.W_Q.values", values[1:].clone())
    with pytest.raises(ValueError, match=r"layers\.1\.W_Q\.values: got shape"):
        ModelFolder.open(path)
    spoil("unembedding.values", None)
    with pytest.raises(ValueError, match=r"1 missing weights, the first is unembedding\.values"):
        ModelFolder.open(path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("attention", "linear", "attention: got 'linear'"),
        ("key_size", None, "key_size: got None"),
        ("position_coordinates", [0, 0, 1], "position_coordinates: got"),
        ("max_position_embeddings", 128, "max_position_embeddings: got 128, allowed is 64"),
        ("num_entries", [[1, 2]], "num_entries: got"),
        ("num_embedding_entries", 0, "num_embedding_entries: got 0"),
    ],
)
def test_configs_that_make_no_sense_are_refused(
    path: Path, key: str, value: object, message: str
) -> None:
    edit_config(path, **{key: value})
    with pytest.raises(ValueError, match=message):
        ModelFolder.open(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("activation_format", [7, 8]),
        ("attention_format", [4, 5]),
        ("rotary_periods", [64]),
    ],
)
def test_what_transformers_alone_computes_is_for_the_engine_hf(
    path: Path, key: str, value: list[int]
) -> None:
    edit_config(path, **{key: value})
    folder = ModelFolder.open(path)
    assert folder.network_config is None
    for name in set(LOCAL_ENGINES) - {"hf"}:
        with pytest.raises(ValueError, match=rf"{key}: got \[.*only the engine hf supports it"):
            make_engine(name, folder, precision=FP32, device=CPU, num_slots=1)


def test_each_network_names_what_it_does_not_take(solver: Path) -> None:
    folder = ModelFolder.open(solver)
    with pytest.raises(ValueError, match="the engines hf, segment and verify support it"):
        make_engine("vllm", folder, precision=FP32, device=CPU, num_slots=1)
    with pytest.raises(ValueError, match="got 'compiled_transformer'"):
        Network(folder, precision=FP32, device=CPU)

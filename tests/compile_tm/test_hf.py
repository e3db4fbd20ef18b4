"""Tests of exported machines: tokens equal to both runtimes and the definitions."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, StaticCache

from compile_tm.constructions.compiled import Compiled, compile_dfa, compile_machine
from compile_tm.constructions.sequences import min_bits
from compile_tm.constructions.tokens import token_text
from compile_tm.constructions.vocabulary import Mode
from compile_tm.conversion.convert import convert
from compile_tm.conversion.rope.blueprint import Blueprint
from compile_tm.conversion.settings import Denoising, RoundingPoints
from compile_tm.formats.floats import FloatFormat
from compile_tm.hf import CompiledTransformerConfig, CompiledTransformerForCausalLM
from compile_tm.hf.export import export_model, hf_model
from compile_tm.hf.folder_check import check_folder
from compile_tm.hf.modeling_compiled import rounded
from compile_tm.hf.self_test import choose_cases, read_cases
from compile_tm.hf.source import load_model
from compile_tm.hf.tokenizer import build_tokenizer
from compile_tm.machines.examples import binary_increment, sorting
from compile_tm.machines.regex import regex_dfa
from compile_tm.machines.turing import Rule, TuringMachine
from compile_tm.runtime.sparse import SparseTransformer
from compile_tm.runtime.transformer import TorchTransformer
from eval.engines.hf import pad_left
from solver.jit import IS_JIT
from solver.vocabulary import PAD
from tests.compile_tm.machine_cases import colliding_machine, example_runs, random_runs
from tests.compile_tm.self_test_checks import assert_words_that_cannot_be_run_are_problems

WEIGHTS_FILE = "model.safetensors"


@functools.cache
def increment(mode: Mode = "cot") -> Compiled:
    return compile_machine(binary_increment(), mode=mode, bits=6, reachable_only=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hf") / "increment"
    export_model(increment(), path, words=["", "1011", "11"])
    return path


def generated(model: Any, compiled: Compiled, prompts: list[np.ndarray]) -> list[list[int]]:
    """Whole sequences of a batch that is padded on the left as the engine `hf` pads it."""
    ids, mask = pad_left([prompt.astype(np.uint16) for prompt in prompts], PAD, torch.device("cpu"))
    rows = model.generate(ids, attention_mask=mask).tolist()
    sequences = []
    for prompt, row in zip(prompts, rows, strict=True):
        new = row[ids.shape[1] :]
        stops = [place for place, token in enumerate(new) if token in compiled.stop_ids]
        sequences.append([*prompt.tolist(), *new[: stops[0] + 1 if stops else None]])
    return sequences


def check_equal(compiled: Compiled, words: list[tuple[str, ...]]) -> None:
    """Every segment, by definition, by `generate` in one batch, and by the runtimes."""
    parts = [part for word in words for part in compiled.expected_segments(word)]
    prompts = [ids[:length] for ids, length in parts]
    sequences = generated(hf_model(compiled), compiled, prompts)
    assert sequences == [ids.tolist() for ids, _ in parts]
    runtimes = [TorchTransformer(compiled.program)]
    runtimes += [SparseTransformer.from_program(compiled.program)] * IS_JIT  # type: ignore[list-item]
    for runtime in runtimes:
        for prompt, sequence in zip(prompts, sequences, strict=True):
            assert runtime.generate([prompt], stop=compiled.stop_ids)[0].tolist() == sequence


@pytest.mark.parametrize("mode", ["cot", "scot"])
def test_tokens_equal_runtimes_and_definitions(mode: Mode) -> None:
    runs = [run for run in example_runs() if run.machine.name in ("sorting", "collisions")]
    for run in (*runs, *random_runs(3, seed=5, max_steps=40)):
        bits = min_bits(run, mode=mode)
        check_equal(
            compile_machine(run.machine, mode=mode, bits=bits, reachable_only=True), [run.word]
        )


def test_automata_of_all_short_words() -> None:
    compiled = compile_dfa(regex_dfa("(a|b)*abb", alphabet="ab"), bits=4)
    words = [tuple(f"{n:05b}"[-length:]) for length in range(1, 6) for n in range(2**length)]
    check_equal(compiled, [tuple("ab"[int(bit)] for bit in word) for word in words])


def run_fresh(program: str, *, folder: Path, home: Path) -> str:
    """Run a program in a fresh process inside a model folder; what it printed."""
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=os.environ | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_fresh_process_needs_nothing_of_ours(folder: Path, tmp_path: Path) -> None:
    """The program of the model card, and the self-test, with the code in the folder alone."""
    (card,) = re.findall(
        r"^```python\n(.*?)^```$", (folder / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    test = (
        "import json, sys, torch\n"
        "for row in json.load(open('self_test.json')):\n"
        "    for part in row['segments']:\n"
        "        prompt = torch.tensor([part['ids'][: part['prompt_length']]])\n"
        "        assert model.generate(prompt)[0].tolist() == part['ids']\n"
        "assert not any(name.startswith('compile_tm') for name in sys.modules)\n"
    )
    printed = run_fresh(card + test, folder=folder, home=tmp_path)
    assert printed.split()[:5] == ["<inp>", "1", "1", "</inp>", "[right:b:R]"]
    assert printed.split()[-5:] == ["<outp>", "1", "0", "0", "</outp>"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_folder_opens_after_the_import_in_any_dtype(folder: Path, dtype: torch.dtype) -> None:
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    assert model.__class__.__module__ == "compile_tm.hf.modeling_compiled"
    assert model.dtype is dtype
    for case in read_cases(folder):
        for ids, length in case.segments:
            assert model.generate(torch.tensor([ids[:length]]))[0].tolist() == list(ids)


def test_a_saved_model_is_the_same_again(folder: Path, tmp_path: Path) -> None:
    load_model(folder).save_pretrained(tmp_path)
    ours, theirs = load_file(folder / WEIGHTS_FILE), load_file(tmp_path / WEIGHTS_FILE)
    assert ours.keys() == theirs.keys()
    assert all((ours[name] == theirs[name]).all() for name in ours)
    assert (tmp_path / "modeling_compiled.py").is_file()


def test_weights_are_stored_by_their_entries(folder: Path) -> None:
    model = load_model(folder)
    assert (folder / WEIGHTS_FILE).stat().st_size < 100_000
    assert increment().program.sizes.num_parameters * 4 > 40 * 100_000
    assert model.num_parameters() < 10_000
    matrix = model.layers[0].W_1
    before = matrix.dense()
    assert matrix.dense() is before
    with torch.no_grad():
        matrix.values *= 2
    assert torch.equal(matrix.dense(), 2 * before)


def test_padding_caches_and_chunks_make_no_difference(folder: Path) -> None:
    model = load_model(folder)
    ids = torch.tensor([read_cases(folder)[1].segments[0][0]])
    logits = model(ids, use_cache=False).logits
    first = model(ids[:, :7])
    second = model(ids[:, 7:], past_key_values=first.past_key_values, logits_to_keep=2)
    assert torch.equal(torch.cat([first.logits[:, -1:], second.logits], dim=1)[:, 0], logits[:, 6])
    assert torch.equal(second.logits, logits[:, -2:])
    for left, right in ((3, 0), (0, 4), (2, 5)):
        padded = torch.nn.functional.pad(ids, (left, right))
        mask = torch.nn.functional.pad(torch.ones_like(ids), (left, right))
        shifted = model(padded, attention_mask=mask).logits[:, left : left + ids.shape[1]]
        assert torch.equal(shifted, logits)


def test_softmax_of_unscaled_scores_is_another_model(folder: Path) -> None:
    """Without scaling, attention is smeared; padding must not make it nan."""
    config = CompiledTransformerConfig.from_pretrained(folder)
    config.attention = "softmax"
    model = CompiledTransformerForCausalLM.from_pretrained(folder, config=config)
    ids = torch.tensor([read_cases(folder)[1].segments[0][0]])
    padded, mask = (torch.nn.functional.pad(x, (3, 0)) for x in (ids, torch.ones_like(ids)))
    logits = model(ids).logits
    assert torch.allclose(model(padded, attention_mask=mask).logits[:, 3:], logits, atol=1e-4)
    assert not torch.allclose(logits, load_model(folder)(ids).logits, atol=0.1)


def test_a_fresh_process_emulates_formats(tmp_path: Path) -> None:
    """Formats that are enough give the tokens of the self-test; one that is too small does not."""
    compiled, path = increment(), tmp_path / "model"
    act = FloatFormat(mantissa_bits=2, exponent_bits=4)
    conversion = convert(
        Blueprint(program=compiled.program),
        "denoise",
        points=RoundingPoints(activations=act),
        where=Denoising.HEADS,
    )
    export_model(compiled, path, conversion=conversion, words=["1011"])
    test = (
        "import json, torch, transformers\n"
        "part = json.load(open('self_test.json'))[0]['segments'][0]\n"
        "prompt = torch.tensor([part['ids'][: part['prompt_length']]])\n"
        "def is_right(**formats):\n"
        "    model = transformers.AutoModelForCausalLM.from_pretrained(\n"
        "        '.', trust_remote_code=True, **formats)\n"
        "    return model.generate(prompt)[0].tolist() == part['ids']\n"
        "assert is_right(activation_format=[2, 4], attention_format=[4, 5])\n"
        "assert not is_right(activation_format=[1, 2], attention_format=[4, 5])\n"
    )
    run_fresh(test, folder=path, home=tmp_path)


@pytest.mark.parametrize("bits", [(7, 8), (10, 5), (1, 2), (3, 4), (23, 8)])
def test_emulated_formats_are_those_of_the_definition(bits: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    spread = rng.integers(0, 1 << 32, size=20_000, dtype=np.uint32).view(np.float32)
    halves = (rng.integers(-300, 301, size=2_000) / 64).astype(np.float32)
    values = torch.from_numpy(np.concatenate([spread[np.isfinite(spread)], halves]))
    to = FloatFormat(mantissa_bits=bits[0], exponent_bits=bits[1])
    assert torch.equal(rounded(values, list(bits)), to.round(values))
    with pytest.raises(ValueError, match="dtype: got"):
        rounded(values.bfloat16(), list(bits))


def test_formats_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="allowed for hardmax is None"):
        CompiledTransformerConfig(activation_format=[7, 8])
    for wrong in ([0, 8], [7, 9], [7]):
        with pytest.raises(ValueError, match="attention_format: got"):
            CompiledTransformerConfig(attention="softmax", attention_format=wrong)


def test_what_cannot_be_is_refused(folder: Path) -> None:
    model = load_model(folder)
    ids = torch.zeros(1, 3, dtype=torch.long)
    with pytest.raises(
        ValueError, match=r"attention_mask: got shape \(1, 2\), allowed is \(1, 3\)"
    ):
        model(ids, attention_mask=torch.ones(1, 2))
    with pytest.raises(ValueError, match="positions: got 65, allowed are 64; compile with more"):
        model(torch.zeros(1, 65, dtype=torch.long))
    with pytest.raises(ValueError, match="got StaticCache, allowed are caches that grow"):
        model(ids, past_key_values=StaticCache(config=model.config, max_cache_len=8))
    with pytest.raises(ValueError, match="return_dict: got False"):
        model(ids, return_dict=False)
    with pytest.raises(ValueError, match="attention: got 'mean', allowed are hardmax, softmax"):
        CompiledTransformerConfig(attention="mean")
    with pytest.raises(ValueError, match="num_entries: allowed are 2 rows of 7"):
        CompiledTransformerConfig(num_hidden_layers=2, num_entries=[[0] * 7])
    with pytest.raises(FileExistsError):
        export_model(increment(), folder)


def test_generation_ends_at_the_last_position() -> None:
    """A machine that does not halt: as the runtimes, one token more than there are positions."""
    rules = (Rule("q", ("_",), "q", ("_",), ("R",)), Rule("q", ("1",), "q", ("1",), ("R",)))
    machine = TuringMachine(
        states=("q", "halt"),
        input_alphabet=("1",),
        tape_alphabet=("_", "1"),
        blank="_",
        initial_state="q",
        halting_state="halt",
        rules=rules,
    )
    compiled = compile_machine(machine, mode="cot", bits=4, reachable_only=True)
    prompt = compiled.vocabulary.input_ids("1")
    expected = TorchTransformer(compiled.program).generate([prompt], stop=())[0]
    assert generated(hf_model(compiled), compiled, [prompt]) == [expected.tolist()]
    assert len(expected) == 17
    with pytest.raises(ValueError, match="words: no word was found"):
        choose_cases(compiled)


@pytest.mark.parametrize("mode", ["cot", "scot"])
def test_words_of_tokens_are_unique_and_come_back(mode: Mode) -> None:
    """Symbols of several characters, reserved names, and names with signs of our own."""
    names = ("<inp>", "a<inp>b", "%3C", "<", "%", "(", "[q:a:R]", "a,b", "|1|", "{q}")
    machine = TuringMachine(
        states=("q", "a b", "halt"),
        input_alphabet=names,
        tape_alphabet=("_", *names),
        blank="_",
        initial_state="q",
        halting_state="halt",
        rules=tuple(Rule("q", (name,), "a b", (name,), ("R",)) for name in names),
    )
    for one in (machine, colliding_machine()):
        compiled = compile_machine(one, mode=mode, bits=4)
        tokenizer: Any = build_tokenizer(compiled)
        ids = list(range(compiled.vocabulary.size))
        text = tokenizer.decode(ids)
        assert len(text.split()) == len(ids) == len(tokenizer)
        assert tokenizer(text).input_ids == ids
    assert token_text(compiled.vocabulary.token(0)) == "<inp>"
    with pytest.raises(Exception, match="WordLevel error"):
        tokenizer("alien")


def test_the_folders_tokenizer_pads_on_the_left(folder: Path) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(["<inp> 1 0 1 1 </inp>", "<inp> </inp>"], padding=True, return_tensors="pt")
    rows = load_model(folder).generate(**batch)
    texts = [tokenizer.decode(row).split("<outp>")[1].split("</outp>")[0] for row in rows]
    assert texts == [" 1 1 0 0 ", " 1 "]
    config = GenerationConfig.from_pretrained(folder)
    assert config.eos_token_id == list(increment().stop_ids)
    assert not config.do_sample


def test_a_sound_folder_passes(folder: Path, tmp_path: Path) -> None:
    found = check_folder(folder)
    assert found.problems == ()
    assert found.num_words == 3
    assert min(item.margin for item in found.margins) == 1
    export_model(compile_machine(sorting(), mode="scot", bits=8), tmp_path / "s", words=["ba"])
    assert check_folder(tmp_path / "s").problems == ()
    export_model(compile_dfa(regex_dfa("a*", alphabet="ab"), bits=2), tmp_path / "d")
    assert check_folder(tmp_path / "d").problems == ()


def test_a_short_word_that_fills_all_positions_is_checked_beside_a_long_one(
    tmp_path: Path,
) -> None:
    compiled = compile_machine(sorting(), mode="cot", bits=6, reachable_only=True)
    export_model(compiled, tmp_path / "m", words=["a" * 14, "cbacb"])
    assert check_folder(tmp_path / "m").problems == ()


def broken(folder: Path, target: Path, **tensors: np.ndarray | None) -> list[str]:
    """Problems of a copy of the folder with other tensors, None for none."""
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    weights: dict[str, Any] = load_file(target / WEIGHTS_FILE)
    for name, tensor in tensors.items():
        weights[name.replace("__", ".")] = tensor
    kept = {name: tensor for name, tensor in weights.items() if tensor is not None}
    save_file(kept, target / WEIGHTS_FILE, metadata={"format": "pt"})
    return [str(problem) for problem in check_folder(target).problems]


def test_corrupted_weights_are_found(folder: Path, tmp_path: Path) -> None:
    weights = load_file(folder / WEIGHTS_FILE)

    def changed(name: str, factor: float, *, count: int = 1) -> np.ndarray:
        values = weights[name].copy()
        values[:count] *= factor
        return values

    keys = "layers.0.W_K.values"
    texts = broken(folder, tmp_path / "a", layers__0__W_K__values=changed(keys, 0.25, count=99))
    assert re.match(r"layer 1, W_K, head 0, row 0, \S+.*: is 0.25, must be 1", texts[0])
    # The least gap is told by the layer's own scores.
    assert any(re.match(r"layer 1, head 0, position \d+: the best score is 0", t) for t in texts)
    name = next(n for n in weights if "W_2.values" in n and n.startswith("layers.20"))
    texts = broken(folder, tmp_path / "b", **{name: changed(name, -1, count=9999)})
    assert "W_2, neuron" in texts[0]
    assert any(
        re.match(r"word '.*', segment 1, position \d+: the model predicts", t) for t in texts
    )
    texts = broken(folder, tmp_path / "c", embedding__values=changed("embedding.values", -1))
    assert texts[0].startswith("embedding of <inp>, ")
    assert "is -1, must be 1" in texts[0]
    places = weights["layers.3.W_1.places"]
    for n, tensor in enumerate((places[::-1].copy(), places + 10**8)):
        texts = broken(folder, tmp_path / f"d{n}", layers__3__W_1__places=tensor)
        assert "layers.3.W_1.places: allowed are ascending numbers below" in texts[-1]
    assert broken(folder, tmp_path / "e", layers__3__W_1__places=None) == [
        "layers.3.W_1.places: is missing"
    ]
    assert broken(folder, tmp_path / "f", extra=places) == ["extra: is unknown"]
    assert (
        "layers.3.W_1.places: got shape"
        in broken(folder, tmp_path / "g", layers__3__W_1__places=places[:-1])[0]
    )
    path = tmp_path / "g" / WEIGHTS_FILE
    path.write_bytes(path.read_bytes()[:-100])
    (problem,) = check_folder(tmp_path / "g").problems
    assert str(problem).startswith("model.safetensors: is damaged")


def test_words_that_cannot_be_run_are_problems(folder: Path, tmp_path: Path) -> None:
    assert_words_that_cannot_be_run_are_problems(check_folder, folder, tmp_path / "copy")


def test_a_corrupted_self_test_or_tokenizer_is_found(folder: Path, tmp_path: Path) -> None:
    assert broken(folder, tmp_path / "a") == []
    path = tmp_path / "a" / "self_test.json"
    rows = json.loads(path.read_text())
    rows[1]["segments"][0]["ids"][-2] += 1
    path.write_text(json.dumps(rows))
    texts = [str(problem) for problem in check_folder(tmp_path / "a").problems]
    assert "self-test, word '1 0 1 1': its tokens differ from the definition" in texts
    for text, message in (
        ("[]", "holds no words"),
        ("[{}]", "no self-test: KeyError"),
        ("[1,", r"self_test\.json: .* line 1 column 4"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            check_folder(tmp_path / "a")
    path.write_bytes((folder / "self_test.json").read_bytes())
    path = tmp_path / "a" / "tokenizer.json"
    vocabulary = json.loads(path.read_text())
    ids = vocabulary["model"]["vocab"]
    ids["0"], ids["1"] = ids["1"], ids["0"]
    path.write_text(json.dumps(vocabulary))
    (problem,) = check_folder(tmp_path / "a").problems
    assert str(problem) == "tokenizer: '0' has id 7, must be 6"
    path = tmp_path / "a" / "config.json"
    config = json.loads(path.read_text())
    del config["source"]["bits"]
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"config\.json: bits: got None, allowed are 1 to 40"):
        check_folder(tmp_path / "a")

"""What would go wrong with a folder on the hub: every problem as one line, all of them at once."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import yaml
from huggingface_hub import RepoCard, parse_eval_result_entries
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import validate_repo_id

from solver.boards import Board

CARD_FILE = "README.md"
SUMS_FILE = "SHA256SUMS"
UNKNOWN_LICENCE = "unknown"
_LICENCE = re.compile(r"[a-z0-9][a-z0-9.-]*")
_NEEDED_BY_MODEL = (
    CARD_FILE,
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "sudocot.json",
)
_TEXT_SUFFIXES = (".json", ".md", ".txt", ".yaml", ".yml")
# Not the `/` of a URL, of a closing tag or within a relative path.
_ABSOLUTE_PATH = re.compile(r"(?<![\w.:/<~-])(?:/[\w.+-]+){2,}|\b[A-Z]:\\+\w[\w\\.-]*")
_SHORTEST_HOST = 5
"""Letters of a host name from which on its being in a text is no accident."""


def check_repo(repo: str) -> None:
    """Check the name of a repository.

    Raises:
        ValueError: the hub allows no such name, or it has no owner.
    """
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise ValueError(f"repo: {error}") from error
    if "/" not in repo:
        raise ValueError(f"repo: got {repo!r}, allowed is owner/name")


def read_card(path: Path) -> RepoCard:
    """Read a card, with its metadata.

    Raises:
        ValueError: the metadata is missing or malformed.
    """
    from huggingface_hub import ModelCard

    try:
        content = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name}: {error}") from error
    if not content.startswith("---\n"):
        raise ValueError(f"{path.name}: no metadata; it begins with a block between lines of ---")
    try:
        return ModelCard(content)
    except (ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise ValueError(f"{path.name}: its metadata is malformed: {_one_line(error)}") from error


def model_problems(folder: Path) -> list[str]:
    """Everything that keeps a prepared model folder from the hub, a line each."""
    problems = [f"{name}: missing" for name in _NEEDED_BY_MODEL if not (folder / name).exists()]
    problems += _card_problems(folder, may_be_unknown=True)
    problems += _results_problems(folder)
    problems += _private_words(folder)
    if not any(problem.startswith(("config.json", "sudocot.json")) for problem in problems):
        problems += _weights_problems(folder)
    return problems


def dataset_problems(folder: Path, *, licence: str | None) -> list[str]:
    """Everything that keeps a prepared data set from the hub, a line each.

    Args:
        folder: The folder.
        licence: The licence that was asked for: an unknown one must be meant.
    """
    problems = _card_problems(folder, may_be_unknown=licence is not None)
    problems += _private_words(folder)
    return problems or _loading_problems(folder)


def _card_problems(folder: Path, *, may_be_unknown: bool) -> list[str]:
    if not (folder / CARD_FILE).exists():
        return []
    try:
        card = read_card(folder / CARD_FILE)
    except ValueError as error:
        return [str(error)]
    licence = card.data.license
    if licence is None or (licence == UNKNOWN_LICENCE and not may_be_unknown):
        advice = f"--license names one, such as mit, or {UNKNOWN_LICENCE} if the question is open"
        return [f"{CARD_FILE}: states no licence; {advice}"]
    if not isinstance(licence, str) or not _LICENCE.fullmatch(licence):
        return [f"{CARD_FILE}: license: got {licence!r}, allowed is a name of the hub, such as mit"]
    return []


def _results_problems(folder: Path) -> Iterator[str]:
    """Evaluation results that the hub would not read."""
    for path in sorted(folder.glob(".eval_results/*.yaml")):
        try:
            parse_eval_result_entries(yaml.safe_load(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
            yield f"{path.relative_to(folder)}: no evaluation results: {_one_line(error)}"


def _private_words(folder: Path) -> Iterator[str]:
    """Paths and names of this machine, which nobody else should read."""
    host = socket.gethostname()
    names = {name for name in (host, host.partition(".")[0]) if len(name) >= _SHORTEST_HOST}
    pattern = "|".join(
        [_ABSOLUTE_PATH.pattern, *(rf"\b{re.escape(name)}\b" for name in sorted(names))]
    )
    for path in sorted(folder.rglob("*")):
        if path.suffix in _TEXT_SUFFIXES:
            text = path.read_text(encoding="utf-8", errors="replace")
            for number, line in enumerate(text.splitlines(), start=1):
                if found := re.search(pattern, line):
                    name = path.relative_to(folder)
                    yield f"{name}:{number}: names {found[0]!r} of this machine"


def _weights_problems(folder: Path) -> list[str]:
    """Weights, tokenizer and generation settings that do not belong together."""
    from data.model_format.facts import FACTS_FILE
    from data.runtime.documents import read_json
    from eval.network.model_folder import ModelFolder

    try:
        model = ModelFolder.open(folder)
        digest = read_json(folder / FACTS_FILE)["weights_digest"]
    except (ValueError, KeyError, OSError) as error:
        return [_without_folder(error, folder)]
    problems = []
    if digest != model.weights_digest:
        problems.append(f"{FACTS_FILE}: weights_digest: not that of the weights")
    return [*problems, *_stops_problems(folder), *_tokenizer_problems(folder, model.board)]


def _stops_problems(folder: Path) -> Iterator[str]:
    from data.runtime.documents import read_json
    from solver.vocabulary import STOP_TOKENS

    path = folder / "generation_config.json"
    if path.exists():
        try:
            stops = read_json(path).get("eos_token_id")
        except ValueError as error:
            yield _without_folder(error, folder)
            return
        if stops != list(STOP_TOKENS):
            yield f"{path.name}: eos_token_id: got {stops}, allowed is {list(STOP_TOKENS)}"


def _tokenizer_problems(folder: Path, board: Board) -> Iterator[str]:
    from tokenizers import Tokenizer

    from solver.vocabulary import Vocabulary

    path = folder / "tokenizer.json"
    if path.exists():
        try:
            words = Tokenizer.from_file(str(path)).get_vocab()
        except Exception as error:  # the library raises nothing more exact
            yield f"{path.name}: cannot be read: {_one_line(error)}"
            return
        if words != {word: token for token, word in enumerate(Vocabulary(board).tokens)}:
            yield f"{path.name}: not the vocabulary of {board.name}"


def _loading_problems(folder: Path) -> list[str]:
    """Read the first row of every split that the card names, as a user of the hub would."""
    from datasets import load_dataset

    problems = []
    for config in read_card(folder / CARD_FILE).data.to_dict()["configs"]:
        for item in config["data_files"]:
            name, split = config["config_name"], item["split"]
            try:
                next(iter(load_dataset(str(folder), name, split=split, streaming=True)))
            except (ValueError, OSError, StopIteration, HfHubHTTPError) as error:
                problems.append(f"{name} {split}: cannot be loaded: {_one_line(error)}")
    return problems


def _without_folder(error: BaseException, folder: Path) -> str:
    """Message of an error, without the path of the prepared folder, which is gone afterwards."""
    return _one_line(error).replace(f"{folder}/", "").replace(f"{folder}: ", "")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__

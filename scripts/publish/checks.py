"""Checks of a folder before it is uploaded to the hub; each problem is one line."""

from __future__ import annotations

import contextlib
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
UNKNOWN_LICENSE = "unknown"
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]*")
_NEEDED_BY_MODEL = (
    CARD_FILE,
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "sudocot.json",
)
_TEXT_SUFFIXES = (".json", ".md", ".txt", ".yaml", ".yml")
# Excludes the `/` of URLs, closing tags and relative paths.
_ABSOLUTE_PATH = re.compile(r"(?<![\w.:/<~-])(?:/[\w.+-]+){2,}|\b[A-Z]:\\+\w[\w\\.-]*")
_SHORTEST_HOST = 5
"""Minimum length of a host name to search for; shorter ones occur in texts by chance."""


def check_repo(repo: str) -> None:
    """Check the name of a repository.

    Raises:
        ValueError: the name is invalid on the hub, or has no owner.
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
        raise ValueError(f"{path.name}: no metadata block between --- lines at the beginning")
    try:
        return ModelCard(content)
    except (ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise ValueError(f"{path.name}: malformed metadata: {_one_line(error)}") from error


def model_problems(folder: Path) -> list[str]:
    """Return the problems of a prepared model folder, one line each."""
    problems = [f"{name}: missing" for name in _NEEDED_BY_MODEL if not (folder / name).exists()]
    problems += _card_problems(folder, may_be_unknown=True)
    problems += _results_problems(folder)
    problems += _private_words(folder)
    if not any(problem.startswith(("config.json", "sudocot.json")) for problem in problems):
        problems += _weights_problems(folder)
    return problems


def dataset_problems(folder: Path, *, license_id: str | None) -> list[str]:
    """Return the problems of a prepared data set, one line each.

    Args:
        folder: Prepared folder.
        license_id: License given by the user; an unknown license must be given explicitly.
    """
    problems = _card_problems(folder, may_be_unknown=license_id is not None)
    problems += _private_words(folder)
    return problems or _loading_problems(folder)


def _card_problems(folder: Path, *, may_be_unknown: bool) -> list[str]:
    if not (folder / CARD_FILE).exists():
        return []
    try:
        card = read_card(folder / CARD_FILE)
    except ValueError as error:
        return [str(error)]
    license_id = card.data.license
    if license_id is None or (license_id == UNKNOWN_LICENSE and not may_be_unknown):
        advice = f"set --license, such as mit, or {UNKNOWN_LICENSE} if it is not known"
        return [f"{CARD_FILE}: states no license; {advice}"]
    if not isinstance(license_id, str) or not _LICENSE.fullmatch(license_id):
        return [
            f"{CARD_FILE}: license: got {license_id!r}, allowed is an id of the hub, such as mit"
        ]
    return []


def _results_problems(folder: Path) -> Iterator[str]:
    """Yield the files of evaluation results that the hub cannot parse."""
    for path in sorted(folder.glob(".eval_results/*.yaml")):
        try:
            parse_eval_result_entries(yaml.safe_load(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
            yield f"{path.relative_to(folder)}: invalid evaluation results: {_one_line(error)}"


def _is_host(name: str) -> bool:
    return len(name) >= _SHORTEST_HOST and not name.isalpha()


def _private_words(folder: Path) -> Iterator[str]:
    """Yield occurrences of absolute paths and of the host name, which are private.

    A host name of letters only, such as `train`, may be an ordinary word of the card.
    """
    host = socket.gethostname()
    names = {name for name in (host, host.partition(".")[0]) if _is_host(name)}
    pattern = "|".join(
        [_ABSOLUTE_PATH.pattern, *(rf"\b{re.escape(name)}\b" for name in sorted(names))]
    )
    for path in sorted(folder.rglob("*")):
        if path.suffix in _TEXT_SUFFIXES:
            text = path.read_text(encoding="utf-8", errors="replace")
            for number, line in enumerate(text.splitlines(), start=1):
                if found := re.search(pattern, line):
                    name = path.relative_to(folder)
                    yield f"{name}:{number}: contains {found[0]!r}, a path or name of this machine"


def _weights_problems(folder: Path) -> list[str]:
    """Return inconsistencies between weights, tokenizer and generation settings."""
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
        problems.append(f"{FACTS_FILE}: weights_digest: differs from the digest of the weights")
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
        except Exception as error:  # the library raises no specific class
            yield f"{path.name}: cannot be read: {_one_line(error)}"
            return
        if words != {word: token for token, word in enumerate(Vocabulary(board).tokens)}:
            yield f"{path.name}: not the vocabulary of {board.name}"


def _loading_problems(folder: Path) -> list[str]:
    """Load the first row of every split in the card with `datasets.load_dataset`."""
    from datasets import load_dataset

    problems = []
    for config in read_card(folder / CARD_FILE).data.to_dict()["configs"]:
        for item in config["data_files"]:
            name, split = config["config_name"], item["split"]
            try:
                with _without_shared_memory():
                    next(iter(load_dataset(str(folder), name, split=split, streaming=True)))
            except (ValueError, OSError, StopIteration, HfHubHTTPError) as error:
                problems.append(f"{name} {split}: cannot be loaded: {_one_line(error)}")
    return problems


@contextlib.contextmanager
def _without_shared_memory() -> Iterator[None]:
    """Let `datasets` keep the epoch of a stream in the process, not in a shared tensor of torch.

    Containers may have no writable /dev/shm.
    """
    from datasets import config

    is_available = config.TORCH_AVAILABLE
    config.TORCH_AVAILABLE = False
    try:
        yield
    finally:
        config.TORCH_AVAILABLE = is_available


def _without_folder(error: BaseException, folder: Path) -> str:
    """Return the message of an error, without the path of the temporary folder."""
    return _one_line(error).replace(f"{folder}/", "").replace(f"{folder}: ", "")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__

"""Optional logging to Weights & Biases; a failure of W&B never ends the run.

The tracker is that of accelerate, in the main process. W&B runs offline without an API key or a
network, so a run on an isolated cluster waits neither for a login nor for a timeout. Offline files
can be uploaded later with `wandb sync`, or the whole run rebuilt with `sudocot train wandb-sync`.
A resumed run starts a new W&B run, since W&B rejects decreasing steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.model_format.facts import FACTS_FILE
from data.puzzle_sources.puzzle_sets import givens_of_prompts
from data.runtime.documents import read_json
from data.runtime.wandb_runs import choose_folder, choose_mode, log_folder
from data.store import MANIFEST_NAME, TokenStore
from data.text import tokens_to_lines
from solver.puzzles import format_board
from training.reporting.metrics import Row

if TYPE_CHECKING:
    from accelerate import Accelerator

SAMPLE_COLUMNS = ("puzzle", "trace")
NUM_SAMPLES = 4
"""Number of puzzles of the data set in the table `samples`."""
MIRRORED_KINDS = ("train", "eval")
"""Kinds of rows with metrics; the others mark starts and ends of sessions."""

logger = logging.getLogger(__name__)


class WandbMirror:
    """Logs rows to W&B; the first failure is logged as a warning and disables it."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._is_working = accelerator.is_main_process

    def start(self, *, project: str, name: str, folder: Path, config: dict[str, Any]) -> None:
        """Start a W&B run, with its local files in `folder`."""

        def init() -> None:
            options = {"name": name, "dir": choose_folder(folder), "mode": choose_mode()}
            self._accelerator.init_trackers(project, config, {"wandb": options})

        self._attempt(init)

    def log(self, row: Row) -> None:
        """Log a row of the metrics."""
        if row["kind"] in MIRRORED_KINDS:
            step, values = row_values(row)
            self._attempt(lambda: self._accelerator.log(values, step=step))

    def log_results(self, *, model: Path, data: Path, data_digest: str) -> None:
        """Log the exported model and its data set as artifacts."""
        for tracker in self._accelerator.trackers:
            log = partial(log_results, tracker.tracker, model=model)
            self._attempt(partial(log, data=data, data_digest=data_digest))

    def finish(self) -> None:
        """Finish the W&B run."""
        for tracker in self._accelerator.trackers:
            self._attempt(tracker.finish)
        self._accelerator.trackers = []

    def _attempt(self, action: Callable[[], None]) -> None:
        if not self._is_working:
            return
        try:
            action()
        except Exception as error:  # no failure of W&B may end the run
            self._is_working = False
            self._accelerator.trackers = []
            logger.warning("W&B failed and is disabled: %s", error)


def log_results(run: Any, *, model: Path, data: Path, data_digest: str) -> None:
    """Log an exported model and its data set as artifacts, each only if it exists.

    Args:
        run: W&B run.
        model: Folder of the exported model.
        data: Folder of the data set; one rebuilt since the training is not logged.
        data_digest: Digest of the data set in the training.
    """
    if (data / MANIFEST_NAME).exists():
        _log_data(run, TokenStore.open(data), folder=data, data_digest=data_digest)
    if (model / FACTS_FILE).exists():
        log_folder(run, model, kind="model", metadata=read_json(model / FACTS_FILE))


def _log_data(run: Any, store: TokenStore, *, folder: Path, data_digest: str) -> None:
    """Log a data set, and boards and traces of its first puzzles as the table `samples`."""
    manifest = store.manifest
    if manifest.digest != data_digest:
        logger.warning(
            "%s: not logged: got digest %s, the run was trained on %s",
            folder,
            manifest.digest,
            data_digest,
        )
        return
    run.log({"samples": _sample_table(store)})
    names = ("board", "mode", "trace_rule", "num_rows", "num_puzzles", "num_tokens", "digest")
    facts = {name: getattr(manifest, name) for name in names}
    log_folder(run, folder, kind="dataset", metadata=facts)


def _sample_table(store: TokenStore) -> Any:
    import wandb

    rows = []
    for row in store.first_rows[:NUM_SAMPLES].tolist():
        ids = store[row]
        prompt_length = store.prompt_lengths[row : row + 1].astype("int64")
        [grid] = givens_of_prompts(store.board, ids[: prompt_length[0]], prompt_length)
        rows.append([format_board(store.board, grid), tokens_to_lines(store.board, ids)])
    return wandb.Table(columns=list(SAMPLE_COLUMNS), data=rows)


def row_values(row: Row) -> tuple[int, dict[str, float]]:
    """Return the step of a metrics row and its numbers, prefixed by the kind: `train/loss`."""
    step, kind = row["step"], row["kind"]
    assert isinstance(step, int)
    numbers = {
        f"{kind}/{name}": value
        for name, value in row.items()
        if isinstance(value, int | float) and name not in ("schema", "step")
    }
    return step, numbers

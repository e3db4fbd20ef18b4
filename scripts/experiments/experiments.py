"""What was trained for each figure and table of the paper, and for the study on small boards.

An experiment is a list of trainings and the puzzles each is evaluated on. Nothing here knows of
folders, jobs or data: `scripts.experiments.worlds` says what the trainings are trained on.

A training that several experiments need has the same name in all of them, and runs once.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from data.stats import PAPER_TABLE
from scripts.experiments.trainings import STUDY_TOKENS, Training, cot, scot_large, scot_small, small


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """One figure or table."""

    name: str
    """Name on the command line."""
    title: str
    """What it is about."""
    place: str
    """Where the paper has it, or has it not."""
    finding: str
    """What the paper reports, or the question of the study."""
    trainings: tuple[Training, ...] = ()
    """Its models."""
    has_data_table: bool = False
    """Whether the sizes of the training sets are part of it."""
    world: Literal["paper", "study", "study-6x6"] = "paper"
    """Data and recipe of the full form."""

    def with_changes(self, *, tokens: int | None, seeds: int | None) -> Experiment:
        """Return the experiment with other tokens for all trainings, and more or fewer seeds.

        Args:
            tokens: Tokens of each training; None leaves them.
            seeds: Trainings of each arm, with seeds from 0; None leaves them.
        """
        trainings = self.trainings
        if seeds is not None:
            known = {t.name: t for t in trainings}
            first_of_arm: dict[str, Training] = {}
            for training in trainings:
                first_of_arm.setdefault(training.arm, training)
            # The paper's number is that of one run.
            repeats = (
                dataclasses.replace(t, seed=seed, published=None)
                for t in first_of_arm.values()
                for seed in range(seeds)
            )
            trainings = tuple(known.get(t.name, t) for t in repeats)
        if tokens is not None:
            trainings = tuple(dataclasses.replace(t, num_tokens=tokens) for t in trainings)
        return dataclasses.replace(self, trainings=trainings)


_ADAMW = ("--optimizer.name", "adamw")
_PLAIN = ("--board-state-weight", "0")
_NO_QK_NORM = ("--architecture.no-qk-norm",)
_STUDY = (
    small("small", "CoT L=4 (preset small)"),
    small("scot-l4", "SCoT L=4", mode="scot"),
    small("cot-l4-bf16", "CoT L=4, bf16 activations", precision="bf16"),
    small("cot-l2", "CoT L=2", num_layers=2),
    small("scot-l2", "SCoT L=2", mode="scot", num_layers=2),
    *(
        small(
            f"{optimizer}-2k",
            f"CoT L=4, {title}, no QK norm, no board-state loss",
            *options,
            *_PLAIN,
            *_NO_QK_NORM,
        )
        for optimizer, title, options in (("muon", "Muon", ()), ("adamw", "AdamW", _ADAMW))
    ),
)
_OPTIMIZERS = (
    # The paper's: AdamW at 5e-4 and 1e5 tokens an update.
    (
        "adamw-100k",
        "AdamW 5e-4, 100,000 tokens an update (the paper's)",
        (
            *_ADAMW,
            "--optimizer.peak-lr",
            "5e-4",
            "--tokens-per-update",
            "100000",
            *_PLAIN,
            *_NO_QK_NORM,
        ),
    ),
    ("adamw-2k", "AdamW 2e-3, 2,048 tokens an update", _ADAMW + _PLAIN + _NO_QK_NORM),
    ("muon-2k", "Muon 2e-3, 2,048 tokens an update", _PLAIN + _NO_QK_NORM),
    ("muon-2k-qk-norm", "the same, with QK norm", _PLAIN),
    ("muon-2k-board-state", "the same, with board-state loss", _NO_QK_NORM),
    ("small", "with QK norm and board-state loss (preset small)", ()),
)
_VARIATIONS = (
    ("small", "preset small: Muon 2e-3, 2,048 tokens an update", ()),
    ("muon-8k", "8,192 tokens an update", ("--tokens-per-update", "8192")),
    ("muon-1k", "1,024 tokens an update", ("--tokens-per-update", "1024")),
    ("muon-1e-3", "peak rate 1e-3", ("--optimizer.peak-lr", "1e-3")),
    ("muon-4e-3", "peak rate 4e-3", ("--optimizer.peak-lr", "4e-3")),
    ("adamw", "AdamW 2e-3", _ADAMW),
    ("adamw-5e-4", "AdamW 5e-4", (*_ADAMW, "--optimizer.peak-lr", "5e-4")),
    ("wsd", "schedule wsd", ("--optimizer.schedule", "wsd")),
    ("zero", "zero init", ("--architecture.init", "zero")),
    ("scaled", "scaled init", ("--architecture.init", "scaled")),
)

_PAPER = (
    Experiment(
        name="tables",
        title="Sizes of the training sets and of the models",
        place="Tables 3 and 4 (Appendix)",
        finding="Exact counts, which the solver's rule and the architecture decide.",
        has_data_table=True,
    ),
    Experiment(
        name="scot-depth",
        title="SCoT against depth",
        place="Section 5.2, table of accuracies",
        finding="Accuracy saturates at L = 6.",
        trainings=tuple(scot_small(layers) for layers in (4, 5, 6, 7, 8)),
    ),
    Experiment(
        name="scot-repeats",
        title="Repeats of SCoT at L = 6",
        place="Appendix, Additional Experiments",
        finding="All three runs do well: 99.38% to 99.70%.",
        trainings=tuple(scot_small(6, seed=seed) for seed in range(3)),
    ),
    Experiment(
        name="cot-l6",
        title="CoT at L = 6, by CoT length",
        place="Figure 5 (Section 5.2)",
        finding="For N = 2^14 accuracy falls well before the length N; the figure has no numbers.",
        trainings=tuple(cot(6, n) for n in PAPER_TABLE),
    ),
    Experiment(
        name="cot-l8",
        title="CoT at L = 8, by CoT length",
        place="Figure 6, left (Section 5.3)",
        finding="No failure up to the length N, also for N = 2^14; the figure has no numbers.",
        trainings=tuple(cot(8, n) for n in PAPER_TABLE),
    ),
    Experiment(
        name="cot-l6-fp32",
        title="CoT at L = 6 in fp32, by CoT length",
        place="Figure 6, right (Section 5.3)",
        finding="The same as in bf16: for N = 2^14 it still fails; the figure has no numbers.",
        trainings=tuple(cot(6, n, precision="fp32") for n in PAPER_TABLE),
    ),
    Experiment(
        name="cot-interventions",
        title="Remedies for CoT at L = 6, N = 2^14",
        place="Figure 8 (Appendix, Additional Experiments)",
        finding=(
            "50 billion tokens help at short lengths only, fp32 does not help, L = 8 does; "
            "the figure has no numbers."
        ),
        trainings=(cot(6), cot(6, num_tokens=50 * 10**9), cot(8), cot(6, precision="fp32")),
    ),
    Experiment(
        name="scot-generalization",
        title="SCoT at d = 768, L = 12, from easy puzzles to the hardest 100",
        place="Table 5 (Appendix, Constant-Space Generalization)",
        finding="Trained on CoTs of at most N tokens, it solves puzzles of over a million.",
        trainings=tuple(scot_large(n) for n in (2**11, 2**12, 2**13, 2**14)),
    ),
)
_SMALL = (
    Experiment(
        name="study",
        title="CoT and SCoT, depth, optimiser and precision on 4x4",
        place="not there; its questions, at a size that two CPU cores finish",
        finding=(
            "At equal tokens with a loss: does SCoT need fewer layers than CoT? What do "
            "bf16 activations, and AdamW in place of Muon, change?"
        ),
        trainings=_STUDY,
        world="study",
    ).with_changes(tokens=None, seeds=3),
    Experiment(
        name="optimizers",
        title="From the paper's recipe to preset small, on 4x4",
        place="not there; it takes its training recipe as given",
        finding="Which recipe reaches a loss and a solve rate with the fewest tokens?",
        trainings=tuple(small(arm, label, *options) for arm, label, options in _OPTIMIZERS),
        world="study",
    ).with_changes(tokens=None, seeds=3),
    Experiment(
        name="optimizers-6x6",
        title="From the paper's recipe to preset small, on 6x6",
        place="not there; it takes its training recipe as given",
        finding="Does what shortens the way on 4x4 do so on 6x6?",
        trainings=tuple(
            small(arm, label, *options, model="small-6x6")
            for arm, label, options in _OPTIMIZERS
            if arm != "muon-2k-board-state"
        ),
        world="study-6x6",
    ).with_changes(tokens=None, seeds=3),
    Experiment(
        name="optimizers-long",
        title="The paper's recipe with more tokens, on 4x4",
        place="not there; it takes its training recipe as given",
        finding=(
            "What does the paper's recipe reach with ten times the tokens of preset small "
            "(experiment optimizers)?"
        ),
        trainings=tuple(
            small(f"{arm}-long", label, *options) for arm, label, options in _OPTIMIZERS[:1]
        ),
        world="study",
    ).with_changes(tokens=10 * STUDY_TOKENS, seeds=3),
    Experiment(
        name="variations",
        title="Preset small with other rates, batch sizes, schedules and initial weights, on 4x4",
        place="not there",
        finding="Is preset small at its best?",
        trainings=tuple(small(arm, label, *options) for arm, label, options in _VARIATIONS),
        world="study",
    ).with_changes(tokens=None, seeds=3),
)


def _all_of_paper() -> Experiment:
    trainings = {t.name: t for experiment in _PAPER for t in experiment.trainings}
    return Experiment(
        name="all",
        title="All of the paper's experiments",
        place="Section 5 and its appendix",
        finding="See each experiment.",
        trainings=tuple(trainings.values()),
        has_data_table=True,
    )


EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (*_PAPER, _all_of_paper(), *_SMALL)
}


def get_experiment(name: str) -> Experiment:
    """Find an experiment.

    Raises:
        ValueError: there is none of that name.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"name: got {name!r}, allowed are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]

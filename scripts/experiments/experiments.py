"""The trainings of each figure and table of the paper, and of the studies on small boards.

An experiment lists trainings and the samples that each is evaluated on. Folders, jobs and data are
defined in `scripts.experiments.setups` and `scripts.experiments.recipe`.

A training that several experiments share has the same name in all of them, and runs once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from data.model_format.facts import Mode
from data.stats import PAPER_TABLE
from scripts.experiments.trainings import (
    STUDY_TOKENS,
    Training,
    cot,
    scot_large,
    scot_small,
    small,
    small_6x6,
)
from training.schedule import OptimizerConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """One figure or table."""

    name: str
    """Name on the command line."""
    title: str
    """Title of its page."""
    place: str
    """Where the paper reports it."""
    finding: str
    """Result of the paper, or the question of the study."""
    trainings: tuple[Training, ...] = ()
    """Its trainings."""
    has_data_table: bool = False
    """Whether it includes the sizes of the training sets and models."""
    setup: Literal["paper", "study", "study-6x6"] = "paper"
    """Data and base configuration at full scale."""

    def with_changes(self, *, tokens: int | None, seeds: int | None) -> Experiment:
        """Return the experiment with another token budget or number of seeds.

        Args:
            tokens: Budget of each training; None leaves it unchanged.
            seeds: Repeats of each arm, with seeds from 0; None leaves them unchanged.
        """
        trainings = self.trainings
        if seeds is not None:
            known = {t.name: t for t in trainings}
            first_of_arm: dict[str, Training] = {}
            for training in trainings:
                first_of_arm.setdefault(training.arm, training)
            repeats = (t.with_seed(seed) for t in first_of_arm.values() for seed in range(seeds))
            trainings = tuple(known.get(t.name, t) for t in repeats)
        if tokens is not None:
            trainings = tuple(t.with_config(budget=tokens) for t in trainings)
        return dataclasses.replace(self, trainings=trainings)


MUON = OptimizerConfig(name="muon", peak_lr=2e-3)
"""Optimizer of preset `small`."""
ADAMW = dataclasses.replace(MUON, name="adamw")
PAPER_ADAMW = dataclasses.replace(MUON, name="adamw", peak_lr=5e-4)
_NO_QK_NORM: dict[str, Any] = {"qk_norm": False}


def _study_trainings() -> tuple[Training, ...]:
    plain: dict[str, Any] = {"architecture": _NO_QK_NORM, "board_state_weight": 0.0}
    two_layers = {"num_layers": 2}
    return (
        small("small", "CoT L=4 (preset small)"),
        small("scot-l4", "SCoT L=4", mode="scot"),
        small("cot-l4-bf16", "CoT L=4, bf16 activations", precision="bf16"),
        small("cot-l2", "CoT L=2", architecture=two_layers),
        small("scot-l2", "SCoT L=2", mode="scot", architecture=two_layers),
        small("muon-2k", "CoT L=4, Muon, no QK norm, no board-state loss", **plain),
        small(
            "adamw-2k",
            "CoT L=4, AdamW, no QK norm, no board-state loss",
            optimizer=ADAMW,
            **plain,
        ),
    )


def _study_6x6_trainings() -> tuple[Training, ...]:
    modes: tuple[tuple[Mode, str], ...] = (("cot", "CoT"), ("scot", "SCoT"))
    by_depth = tuple(
        small_6x6(
            # The name under which the ablation of the optimizer shares the training.
            "small" if (mode, num_layers) == ("cot", 4) else f"{mode}-l{num_layers}",
            f"{title} L={num_layers}",
            mode=mode,
            architecture={"num_layers": num_layers},
        )
        for num_layers in (2, 4, 6, 8)
        for mode, title in modes
    )
    fp32 = tuple(
        small_6x6(f"{mode}-l4-fp32", f"{title} L=4, fp32", mode=mode, precision="fp32")
        for mode, title in modes
    )
    return by_depth + fp32


def _optimizer_trainings(
    training: Callable[..., Training] = small,
) -> tuple[Training, ...]:
    """Return the ablation from the paper's recipe to preset `small`.

    Args:
        training: `small` or `small_6x6`.
    """
    plain: dict[str, Any] = {"architecture": _NO_QK_NORM, "board_state_weight": 0.0}
    return (
        training(
            "adamw-100k",
            "AdamW 5e-4, 100,000 tokens per update (the paper's)",
            optimizer=PAPER_ADAMW,
            tokens_per_update=100_000,
            **plain,
        ),
        training(
            "adamw-2k",
            "AdamW 2e-3, 2,048 tokens per update",
            optimizer=ADAMW,
            **plain,
        ),
        training("muon-2k", "Muon 2e-3, 2,048 tokens per update", **plain),
        training("muon-2k-qk-norm", "muon-2k with QK norm", board_state_weight=0.0),
        training(
            "muon-2k-board-state",
            "muon-2k with board-state loss",
            architecture=_NO_QK_NORM,
        ),
        training("small", "muon-2k with QK norm and board-state loss (preset small)"),
    )


def _variation_trainings() -> tuple[Training, ...]:
    """Return preset `small` with one setting changed at a time."""

    def muon(**changes: Any) -> OptimizerConfig:
        return dataclasses.replace(MUON, **changes)

    return (
        small("small", "preset small: Muon 2e-3, 2,048 tokens per update"),
        small("muon-8k", "8,192 tokens per update", tokens_per_update=8_192),
        small("muon-1k", "1,024 tokens per update", tokens_per_update=1_024),
        small("muon-1e-3", "peak learning rate 1e-3", optimizer=muon(peak_lr=1e-3)),
        small("muon-4e-3", "peak learning rate 4e-3", optimizer=muon(peak_lr=4e-3)),
        small("adamw", "AdamW 2e-3", optimizer=ADAMW),
        small("adamw-5e-4", "AdamW 5e-4", optimizer=PAPER_ADAMW),
        small("wsd", "schedule wsd", optimizer=muon(schedule="wsd")),
        small("zero", "zero init", architecture={"init": "zero"}),
        small("scaled", "scaled init", architecture={"init": "scaled"}),
    )


_PAPER = (
    Experiment(
        name="tables",
        title="Sizes of the training sets and of the models",
        place="Tables 3 and 4 (Appendix)",
        finding="Exact counts, determined by the solver's rule and the architecture.",
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
        finding="All three runs reach 99.38% to 99.70%.",
        trainings=tuple(scot_small(6, seed=seed) for seed in range(3)),
    ),
    Experiment(
        name="cot-l6",
        title="CoT at L = 6, by CoT length",
        place="Figure 5 (Section 5.2)",
        finding="For N = 2^14 accuracy drops well before length N; the figure has no numbers.",
        trainings=tuple(cot(6, n) for n in PAPER_TABLE),
    ),
    Experiment(
        name="cot-l8",
        title="CoT at L = 8, by CoT length",
        place="Figure 6, left (Section 5.3)",
        finding="No failure up to length N, including N = 2^14; the figure has no numbers.",
        trainings=tuple(cot(8, n) for n in PAPER_TABLE),
    ),
    Experiment(
        name="cot-l6-fp32",
        title="CoT at L = 6 in fp32, by CoT length",
        place="Figure 6, right (Section 5.3)",
        finding="As in bf16, accuracy drops for N = 2^14; the figure has no numbers.",
        trainings=tuple(cot(6, n, precision="fp32") for n in PAPER_TABLE),
    ),
    Experiment(
        name="cot-interventions",
        title="Interventions for CoT at L = 6, N = 2^14",
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
        finding="Trained on CoTs of at most N tokens, models solve puzzles of over 1e6 tokens.",
        trainings=tuple(scot_large(n) for n in (2**11, 2**12, 2**13, 2**14)),
    ),
)
_SMALL = (
    Experiment(
        name="study",
        title="CoT and SCoT, depth, optimizer and precision on 4x4",
        place="not reported; the paper's questions at a size for two CPU cores",
        finding=(
            "At an equal number of loss tokens: does SCoT need fewer layers than CoT? What is the "
            "effect of bf16 activations, and of AdamW instead of Muon?"
        ),
        trainings=_study_trainings(),
        setup="study",
    ).with_changes(tokens=None, seeds=3),
    Experiment(
        name="optimizers",
        title="From the paper's recipe to preset small, on 4x4",
        place="not reported; the training recipe is fixed there",
        finding="Which recipe reaches a loss and a solve rate with the fewest tokens?",
        trainings=_optimizer_trainings(),
        setup="study",
    ).with_changes(tokens=None, seeds=3),
    Experiment(
        name="optimizers-6x6",
        title="From the paper's recipe to preset small, on 6x6",
        place="not reported; the training recipe is fixed there",
        finding="Do the changes that save tokens on 4x4 save them on 6x6?",
        trainings=_optimizer_trainings(small_6x6),
        setup="study-6x6",
    ).with_changes(tokens=None, seeds=2),
    Experiment(
        name="study-6x6",
        title="CoT and SCoT, depth and precision on 6x6",
        place="not reported; the paper's questions at a size for two CPU cores",
        finding=(
            "At an equal number of loss tokens, on puzzles that need search: does SCoT need fewer "
            "layers than CoT? What is the effect of fp32 instead of bf16?"
        ),
        trainings=_study_6x6_trainings(),
        setup="study-6x6",
    ).with_changes(tokens=None, seeds=2),
    Experiment(
        name="optimizers-long",
        title="The paper's recipe with more tokens, on 4x4",
        place="not reported; the training recipe is fixed there",
        finding=(
            "What does the paper's recipe reach with ten times the tokens of preset small "
            "(experiment optimizers)?"
        ),
        trainings=tuple(
            dataclasses.replace(training, arm=f"{training.arm}-long")
            for training in _optimizer_trainings()[:1]
        ),
        setup="study",
    ).with_changes(tokens=10 * STUDY_TOKENS, seeds=3),
    Experiment(
        name="variations",
        title="Preset small with other learning rates, batch sizes, schedules and inits, on 4x4",
        place="not reported",
        finding="Do other settings improve on preset small?",
        trainings=_variation_trainings(),
        setup="study",
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
    """Return an experiment by name.

    Raises:
        ValueError: the name is unknown.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"name: got {name!r}, allowed are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]

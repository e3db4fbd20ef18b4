"""Rates of the cost model, from a data file that states the source of each."""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib import resources
from typing import Annotated, Literal

import yaml
from annotated_types import Gt

from data.runtime.schema import parse_record

RATES_FILE = "rates.yaml"
Kind = Literal["measured", "others", "vendor", "assumed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """A value with its source."""

    name: str
    """Field of `Rates`."""
    value: Annotated[float, Gt(0)]
    """Value."""
    unit: str
    """Unit."""
    kind: Kind
    """Kind of source: measured here, published by others, a data sheet, or assumed."""
    source: str
    """Source or measurement."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """All rates by name; `rates.yaml` states their units and sources."""

    gpu_bf16_flops: float
    gpu_fp32_flops: float
    mfu: float
    launch_s_per_layer: float
    node_gpus: float
    nvlink_bytes_per_s: float
    network_bytes_per_s: float
    gpu_memory_bytes_per_s: float
    decode_efficiency: float
    decode_step_s_per_layer: float
    mean_test_cot: float
    build_tokens_per_core_s: float
    disk_write_bytes_per_s: float
    dataset_bytes_per_token: float
    cpu_train_tokens_per_s: float


def read_rates() -> list[Rate]:
    """Read the data file.

    Raises:
        ValueError: an entry is malformed; the message names it.
    """
    text = resources.files("scripts.experiments").joinpath(RATES_FILE).read_text(encoding="utf-8")
    return parse_record(list[Rate], yaml.safe_load(text), path=RATES_FILE)


def rates_by_name(entries: list[Rate]) -> Rates:
    """Return the rates by name.

    Raises:
        ValueError: a rate is missing, unknown or repeated.
    """
    names = [rate.name for rate in entries]
    expected = [field.name for field in fields(Rates)]
    if sorted(names) != sorted(expected):
        raise ValueError(f"{RATES_FILE}: got {', '.join(names)}, allowed are {', '.join(expected)}")
    return Rates(**{rate.name: float(rate.value) for rate in entries})

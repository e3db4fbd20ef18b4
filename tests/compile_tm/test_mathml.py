"""Formulas of the report as MathML."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from compile_tm.measure.report.mathml import with_mathml


def words_of(text: str) -> list[str]:
    """Return the formulas of a text, each as its tags and tokens in order."""
    found = []
    for formula in re.findall(r"<math>.*?</math>", with_mathml(text)):
        parts = []
        for element in ET.fromstring(formula).iter():
            if element.tag in ("msup", "msub", "msqrt"):
                parts.append(element.tag)
            elif element.text:
                parts.append(element.text)
        found.append(" ".join(parts))
    return found


@pytest.mark.parametrize(
    ("text", "formulas"),
    [
        ("steps within 2^32 tokens", ["msup 2 32"]),
        ("T (log T)^2", ["msup ( log T ) 2"]),
        ("2 d_k^(1/4) sqrt(log(96 N))", ["msup msub d k 1 / 4", "msqrt log ( 96 N )"]),
        ("phi_i and S^eps", ["msub \u03c6 i", "msup S \u03b5"]),
        ("at most 2^(1 - b_m)", ["msup 2 1 \u2212 msub b m"]),
        ("8.5e+37, --max_bits, x_y_z, a_model, log2(r)", []),
    ],
)
def test_formulas_are_found(text: str, formulas: list[str]) -> None:
    assert words_of(text) == formulas


def test_the_rest_is_escaped() -> None:
    shown = with_mathml("<b> & d_k < 3")
    assert shown == (
        "&lt;b&gt; &amp; <math><msub><mi>d</mi><mrow><mi>k</mi></mrow></msub></math> &lt; 3"
    )

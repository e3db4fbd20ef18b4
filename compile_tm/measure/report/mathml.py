"""MathML for the formulas in the text of a report, such as `2^32`, `d_k` or `sqrt(log(96 N))`."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_GREEK = {"phi": "\u03c6", "eps": "\u03b5"}
_INNER = r"(?:[^()]|\([^()]*\))*"
_INDEXED = r"(?<!\w)(?:phi|[A-Za-z])_[a-z0-9]{1,3}(?![\w])"
_FORMULA = re.compile(
    rf"(?P<root>(?<!\w)sqrt\((?P<radicand>{_INNER})\))"
    rf"|(?P<base>\({_INNER}\)|{_INDEXED}|\d+|(?<!\w)[A-Za-z])\^(?P<power>\([^()]*\)|-?\w+)"
    rf"|(?P<indexed>{_INDEXED})"
)
_PART = re.compile(r"(?P<number>\d[\d,.]*)|(?P<name>[A-Za-z]+)|(?P<space>\s+)|(?P<operator>\S)")


def with_mathml(text: str) -> Markup:
    """Escape a text and convert its formulas to MathML.

    Formulas are powers (`2^r`, `(log l)^(3/4)`), indices of one letter (`d_k`, `phi_i`) and roots
    (`sqrt(x)`); the rest of the text is unchanged.
    """
    parts, end = [], 0
    for found in _FORMULA.finditer(text):
        parts += [escape(text[end : found.start()]), Markup("<math>%s</math>") % _formula(found)]
        end = found.end()
    return Markup("").join([*parts, escape(text[end:])])


def _formula(found: re.Match[str]) -> Markup:
    if found["root"]:
        return Markup("<msqrt>%s</msqrt>") % _row(found["radicand"])
    if found["indexed"]:
        return _indexed(found["indexed"])
    base, power = found["base"], found["power"]
    if power.startswith("("):
        power = power[1:-1]
    is_indexed = re.fullmatch(_INDEXED, base)
    shown = _indexed(base) if is_indexed else Markup("<mrow>%s</mrow>") % _row(base)
    return Markup("<msup>%s<mrow>%s</mrow></msup>") % (shown, _row(power))


def _indexed(text: str) -> Markup:
    name, index = text.split("_")
    return Markup("<msub>%s<mrow>%s</mrow></msub>") % (_row(name), _row(index))


def _row(text: str) -> Markup:
    """Return the elements of an expression."""
    parts, end = [], 0
    for found in _FORMULA.finditer(text):
        parts += [_plain(text[end : found.start()]), _formula(found)]
        end = found.end()
    return Markup("").join([*parts, _plain(text[end:])])


def _plain(text: str) -> Markup:
    parts = []
    for found in _PART.finditer(text):
        if found["space"]:
            parts.append(Markup('<mspace width="0.2em"></mspace>'))
        elif found["number"]:
            parts.append(Markup("<mn>%s</mn>") % found["number"])
        elif found["name"]:
            parts.append(Markup("<mi>%s</mi>") % _GREEK.get(found["name"], found["name"]))
        else:
            sign = "\u2212" if found["operator"] == "-" else found["operator"]
            parts.append(Markup("<mo>%s</mo>") % sign)
    return Markup("").join(parts)

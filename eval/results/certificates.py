"""`certificates.json` of an evaluation: which results no order of summation could have changed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from data.runtime.files import publish_file, to_json
from data.runtime.schema import read_record
from eval.results.records import SCHEMA

CERTIFICATES_FILE = "certificates.json"


class Status(StrEnum):
    """What is known of the tokens of a puzzle."""

    CERTIFIED = "certified"
    """No order of summation within the bound changes them."""
    REPLAYED = "replayed"
    """Decoding the puzzle alone in fp32 gave the same tokens."""
    DIFFERENT = "different"
    """Decoding the puzzle alone in fp32 gave other tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReorderingBound:
    """How far another order of summation can move a logit of a model in a precision."""

    measured: float
    """Largest difference found over batches, chunks, slots and threads."""
    worst_case: str
    """The variation that gave it."""
    derived: float
    """Estimate from the number format: its unit roundoff, times the root of the number of terms
    that are added on the way to a logit, times the largest logit."""
    num_logits: int
    """Logits compared."""

    @property
    def margin(self) -> float:
        """Margin above which a token is certified: two logits can move toward each other."""
        return 2 * max(self.measured, self.derived)


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate:
    """What is known of the tokens of a puzzle."""

    key: str
    """Puzzle hash."""
    status: Status
    """Certified, replayed or different."""
    least_margin: float | None
    """Least margin of a generated token over the likeliest other one, below 0 where another one is
    likelier; None without tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificates:
    """Content of `certificates.json`."""

    model_digest: str
    """Digest of the weights."""
    precision: str
    """Precision policy in which margins and bound were computed."""
    bound: ReorderingBound
    """Bound on the movement of a logit."""
    puzzles: tuple[Certificate, ...]
    """One certificate a puzzle, by key."""

    def count(self, status: Status) -> int:
        """Puzzles of a status."""
        return sum(certificate.status is status for certificate in self.puzzles)


def write_certificates(folder: Path, certificates: Certificates) -> None:
    """Write the file."""
    publish_file(folder / CERTIFICATES_FILE, to_json({"schema": SCHEMA, **asdict(certificates)}))


def read_certificates(folder: Path) -> Certificates | None:
    """Read the file; None if there is none.

    Raises:
        ValueError: it is not what sudocot writes.
    """
    path = folder / CERTIFICATES_FILE
    if not path.is_file():
        return None
    return read_record(path, Certificates, schema=SCHEMA)

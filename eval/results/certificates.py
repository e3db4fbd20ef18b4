"""`certificates.json`: results that do not depend on the order of floating-point summation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from data.runtime.digests import check_digests
from data.runtime.files import publish_file, to_json
from data.runtime.schema import read_record
from eval.results.records import SCHEMA

CERTIFICATES_FILE = "certificates.json"


class Status(StrEnum):
    """Certification status of the tokens of a puzzle."""

    CERTIFIED = "certified"
    """All margins exceed the bound, so that the order of summation has no effect."""
    REPLAYED = "replayed"
    """Decoding the puzzle alone in fp32 gave the same tokens."""
    DIFFERENT = "different"
    """Decoding the puzzle alone in fp32 gave different tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReorderingBound:
    """Bound on the change of a logit under another order of summation."""

    measured: float
    """Largest difference measured over batches, chunks, slots and threads."""
    worst_case: str
    """Variation with the largest difference."""
    derived: float
    """Estimate: unit roundoff * sqrt(number of additions per logit) * largest logit."""
    num_logits: int
    """Number of logits compared."""

    @property
    def margin(self) -> float:
        """Minimum margin of a certified token: twice the bound, as two logits may change."""
        return 2 * max(self.measured, self.derived)


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate:
    """Certificate of the tokens of a puzzle."""

    key: str
    """Puzzle hash."""
    status: Status
    """Certification status."""
    least_margin: float | None
    """Smallest logit margin of a generated token over the best other one, negative if that is
    larger; None without tokens."""
    wrong_margin: float | None = None
    """Margin of the first token that is not the solver's; None if all are the solver's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificates:
    """Content of `certificates.json`."""

    model_digest: str
    """Digest of the weights."""
    precision: str
    """Precision policy of margins and bound."""
    bound: ReorderingBound
    """Bound on the change of a logit."""
    puzzles: tuple[Certificate, ...]
    """One certificate per puzzle, by key."""

    def count(self, status: Status) -> int:
        """Return the number of puzzles with a status."""
        return sum(certificate.status is status for certificate in self.puzzles)


def write_certificates(folder: Path, certificates: Certificates) -> None:
    """Write the file."""
    publish_file(folder / CERTIFICATES_FILE, to_json({"schema": SCHEMA, **asdict(certificates)}))


def read_certificates(folder: Path) -> Certificates | None:
    """Read the file; None if it does not exist.

    Raises:
        ValueError: The file is malformed or does not match its digest.
    """
    path = folder / CERTIFICATES_FILE
    check_digests(folder, (CERTIFICATES_FILE,))
    if not path.is_file():
        return None
    return read_record(path, Certificates, schema=SCHEMA)

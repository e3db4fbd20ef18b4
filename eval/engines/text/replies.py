"""Log of replies: `replies.jsonl`, one line per reply, appended on arrival.

Replies can be scored again without the model, and an interrupted evaluation does not send a prompt
twice.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from data.runtime.digests import check_digests
from data.runtime.line_log import LineLog, publish_lines, read_lines
from data.runtime.schema import from_plain
from eval.text_protocol.score import Reply

REPLIES_FILE = "replies.jsonl"
SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredReply:
    """A reply with its token counts, time and price."""

    key: str
    """Puzzle hash."""
    sample: int
    """Index of the sample, from 0."""
    reply: Reply
    """The reply."""
    num_prompt_tokens: int
    """Prompt tokens as counted by the server or the tokenizer."""
    num_new_tokens: int
    """Generated tokens, including reasoning."""
    seconds: float
    """Time from the request to the last token."""
    usd: float = 0.0
    """Price of the tokens, in US dollars."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {"schema": SCHEMA, **asdict(self)}


class ReplyLog:
    """Context manager that appends replies to `replies.jsonl`."""

    def __init__(self, folder: Path) -> None:
        self._log = LineLog(folder / REPLIES_FILE)

    def __enter__(self) -> ReplyLog:
        """Open the file."""
        self._log.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        """Close the file."""
        self._log.__exit__(*error)

    def append(self, reply: StoredReply) -> None:
        """Append a reply."""
        self._log.append(reply.to_json())

    def read(self) -> dict[tuple[str, int], StoredReply]:
        """Return the logged replies by (key, sample)."""
        return read_replies(self._log.path.parent)


def read_replies(folder: Path) -> dict[tuple[str, int], StoredReply]:
    """Read the replies of an evaluation by (key, sample); the first one of duplicates.

    Raises:
        ValueError: A line is malformed, or the file does not match its digest.
    """
    path = folder / REPLIES_FILE
    check_digests(folder, (REPLIES_FILE,))
    replies: dict[tuple[str, int], StoredReply] = {}
    read = partial(from_plain, StoredReply, schema=SCHEMA)
    for reply in read_lines(path, read) if path.exists() else ():
        replies.setdefault((reply.key, reply.sample), reply)
    return replies


def sort_replies(folder: Path) -> None:
    """Sort the log by key and sample, so that it does not depend on the order of arrival."""
    replies = read_replies(folder)
    if replies:
        publish_lines(folder / REPLIES_FILE, (replies[key].to_json() for key in sorted(replies)))

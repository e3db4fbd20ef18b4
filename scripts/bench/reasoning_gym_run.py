"""Evaluate a server on the reasoning-gym data set and print the scores as JSON.

Usage, in the environment of reasoning-gym (see `scripts/harnesses.sh`):
`python -m scripts.bench.reasoning_gym_run PUZZLES URL`.
"""

from __future__ import annotations

import json
import sys

import openai
import reasoning_gym

import eval.harnesses.reasoning_gym_data  # noqa: F401 - registers the data set


def main(puzzles: str, url: str) -> None:
    """Score the server's reply to every question."""
    client = openai.OpenAI(base_url=url)
    data = reasoning_gym.create_dataset("sudocot", puzzles=puzzles)
    scores = []
    for entry in data:
        reply = client.chat.completions.create(
            model="stub-model", messages=[{"role": "user", "content": entry["question"]}]
        )
        scores.append(data.score_answer(reply.choices[0].message.content, entry))
    print(json.dumps({"solved": scores}))


if __name__ == "__main__":
    main(*sys.argv[1:])

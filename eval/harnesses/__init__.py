"""Adapters of the text protocol for evaluation harnesses, with the same prompts and scores.

    inspect_task        task of inspect_ai
    lm_eval_task        task of lm-evaluation-harness
    reasoning_gym_data  data set of reasoning-gym
    verifiers_plugin    taskset of verifiers, with rewards for reinforcement learning

Each module imports its harness, an optional dependency; `documents` imports none of them.
`scripts/harnesses.sh` runs all four on the same answers.
"""

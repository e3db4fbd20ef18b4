"""The text protocol in the harnesses of others: thin adapters with the same prompts and scores.

    inspect_task        task of inspect_ai
    lm_eval_task        task of lm-evaluation-harness
    reasoning_gym_data  data set of reasoning-gym
    verifiers_plugin    taskset of verifiers, with rewards for reinforcement learning

Each imports its harness, which is an extra of sudocot; `documents` imports none of them.
`scripts/harnesses.sh` runs all four on the same answers.
"""

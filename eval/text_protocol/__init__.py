"""The text protocol: prompts, parsers and scores for models that read and write text.

    protocol = TextProtocol(board=get_board("9x9"), num_shots=2)
    messages = protocol.messages(givens)           # for a chat model
    score = score_reply(board, givens, Reply(text=text))  # strict and lenient outcome

Depends on numpy only, so that harnesses can use it without torch. `docs/your-model.md` describes
the format.
"""

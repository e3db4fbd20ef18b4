"""The engine `api` for token ids: a model with sudocot's vocabulary behind `vllm serve`.

Ids are sent as text to /completions, one word per token; the server uses the tokenizer of the model
folder. Each segment of an SCoT is a request, as with the engine `vllm`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from data.model_format.precision import UNKNOWN_PRECISION
from data.text import text_to_tokens, tokens_to_text
from eval.engines.contract import EngineStats, Request, Result
from eval.engines.in_flight import run_in_flight
from eval.engines.loop_thread import LoopThread
from eval.engines.options import EngineOptions, ServerOptions
from eval.engines.puzzle_run import PuzzleRun
from eval.engines.run_queue import begin_run
from eval.engines.server import Completion, Server, check_fields
from eval.network.model_folder import ModelFolder
from solver.boards import Board
from solver.vocabulary import DECODING_STOPS, Tokens

_FIELDS = {
    "temperature": 0.0,
    "stop_token_ids": list(DECODING_STOPS),
    "ignore_eos": True,
    "add_special_tokens": False,
    "skip_special_tokens": False,
    "spaces_between_special_tokens": True,
    "include_stop_str_in_output": True,
}
"""Fields of a request; some are extensions of vLLM to the OpenAI API."""


class ApiEngine:
    """Engine that sends requests to a server."""

    name = "api"
    precision = UNKNOWN_PRECISION

    def __init__(self, folder: ModelFolder, options: EngineOptions) -> None:
        """Open the client and check that the server serves the model.

        Args:
            folder: Folder of the served model.
            options: Options; `arguments` may contain `model`, the name of the model on the server,
                by default the path of the folder.

        Raises:
            ValueError: The server does not serve the model.
            OSError: The server cannot be reached.
        """
        self.stats = EngineStats()
        self._options = options.server or ServerOptions()
        self._num_ids = folder.vocabulary.size
        self._num_in_flight = options.num_slots
        arguments = dict(options.arguments)
        name = str(arguments.pop("model", folder.path))
        check_fields(arguments)
        self._fields = {**_FIELDS, **arguments}
        self._server = Server(name, self._options, num_in_flight=options.num_slots)
        self._loop = LoopThread("api")
        self.device = self._server.url
        try:
            served = self._loop.submit(self._server.max_model_len()).result()
        except BaseException:
            self.close()
            raise
        self._max_positions = min(folder.max_positions, served or folder.max_positions)

    @classmethod
    def load(cls, folder: ModelFolder, options: EngineOptions) -> ApiEngine:
        """See `eval.engines.factory`."""
        return cls(folder, options)

    def decode(self, requests: Iterable[Request]) -> Iterator[Result]:
        """See `eval.engines.contract.Engine`."""
        runs = (
            begin_run(request, num_ids=self._num_ids, max_positions=self._max_positions)
            for request in requests
        )
        for result in run_in_flight(
            runs,
            lambda run: self._loop.submit(self._decode_puzzle(run)),
            limit=self._num_in_flight,
        ):
            self.stats.num_new_tokens += result.num_new_tokens
            yield result

    def close(self) -> None:
        """Close the connections."""
        self._loop.submit(self._server.close()).result()
        self._loop.close()

    async def _decode_puzzle(self, run: PuzzleRun) -> Result:
        board = run.request.board
        while run.finish_reason is None:
            prompt = tokens_to_text(board, run.prompt)
            fields = {"max_new_tokens": run.token_budget, **self._fields}
            reply = await self._server.complete(prompt, fields)
            tokens = read_ids(board, reply)
            self.stats.num_prompt_tokens += len(run.prompt)
            self.stats.usd += self._options.price(
                num_prompt_tokens=len(run.prompt), num_new_tokens=len(tokens)
            )
            run.end_segment(tokens)
        return run.result()


def read_ids(board: Board, reply: Completion) -> Tokens:
    """Parse the ids of a reply.

    Raises:
        OSError: A word is not a token of the board.
    """
    try:
        return text_to_tokens(board, reply.text)
    except ValueError as error:
        raise OSError(
            f"reply of the server: {error}; it must serve a folder of sudocot with its tokenizer"
        ) from error

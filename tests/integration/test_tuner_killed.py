"""The tuner's process, killed while it decides: what it has answered holds."""

import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from plant import Plant, interference

JSON = {"Content-Type": "application/json"}


def test_killed_at_any_point_it_answers_on(tmp_path: Path) -> None:
    plant = Plant(interference)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "leeway_cli",
        "tuner",
        f"--port={port}",
        "--metrics-port=0",
        f"--data-dir={tmp_path}",
    ]
    url, client = f"http://127.0.0.1:{port}", httpx.Client(timeout=60, headers=JSON)
    delays_s, tries = (0.0, 0.02, 0.1), 0
    plant.now_s = float(round(time.time()))
    plant.record = plant.record.back(plant.now_s)
    for delay_s in delays_s:
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                while _is_silent(client, url):
                    assert process.poll() is None
                for _ in range(5):
                    plant.pass_time()
                    body = plant.snapshot().model_dump_json(by_alias=True)
                    answer = client.post(f"{url}/v1/decide", content=body)
                    assert answer.status_code == 200, answer.text
                    assert client.post(f"{url}/v1/decide", content=body).json() == answer.json()
                    plant.record = type(plant.record).model_validate(answer.json()["record"])
                    tries += answer.json()["action"] == "Try"
                sender = httpx.Client(timeout=0.001, headers=JSON)
                plant.pass_time()
                with closing(sender), pytest.raises(httpx.TimeoutException):
                    sender.post(f"{url}/v1/decide", content=plant.snapshot().model_dump_json(by_alias=True))
                time.sleep(delay_s)
            finally:
                process.send_signal(signal.SIGKILL)
    client.close()
    assert tries


def _is_silent(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(f"{url}/healthz").status_code != 200
    except httpx.TransportError:
        time.sleep(0.1)
        return True

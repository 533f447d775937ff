"""The tuner tells whether it lives, and whether it can record what it learns."""

import asyncio
import socket
from pathlib import Path

import httpx
import pytest
from leeway_core.errors import UserError
from leeway_tuner.main import run
from leeway_tuner.service import service


def get(data_dir: Path, path: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(service(data_dir))
        async with httpx.AsyncClient(transport=transport, base_url="http://tuner") as client:
            return await client.get(path)

    return asyncio.run(ask())


def test_a_tuner_with_a_writable_folder_is_ready(tmp_path: Path) -> None:
    assert get(tmp_path, "/healthz").status_code == 200
    assert get(tmp_path, "/readyz").status_code == 200
    assert list(tmp_path.iterdir()) == []


def test_a_tuner_whose_folder_is_gone_lives_but_is_not_ready(tmp_path: Path) -> None:
    answer = get(tmp_path / "gone", "/readyz")
    assert answer.status_code == 503
    assert "gone cannot be written: No such file" in answer.json()["detail"]
    assert get(tmp_path / "gone", "/healthz").status_code == 200


def test_a_missing_folder_stops_the_start_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"nowhere cannot be used: No such file or directory\. Make it, or name another"
    ):
        run(data_dir=tmp_path / "nowhere")


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"127.0.0.1:{port}: Address already in use"):
            run(metrics_port=port, data_dir=tmp_path)

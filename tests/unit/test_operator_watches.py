"""Watches outlast whatever the API server answers."""

import itertools
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kopf
import pytest
from api_server import Asked, api_server, failure
from leeway_operator import handlers, main

PROFILES = "/apis/leeway.dev/v1alpha1/namespaces/team/servingprofiles"
PODS = "/api/v1/namespaces/team/pods"
GROUPS = {"leeway.dev": ("v1alpha1", ["servingprofiles"]), "apps": ("v1", ["statefulsets", "deployments"])}
CORE = ["pods", "services", "configmaps", "namespaces", "events"]


class Seen:
    """Takes the place of the rounds, and remembers what it is told."""

    def __init__(self, *_: Any) -> None:
        self.profiles: list[str] = []
        self.disturbed: list[str] = []
        self.last = threading.Event()

    def see(self, body: Any) -> None:
        self.profiles.append(body["metadata"]["name"])
        self._look(self.profiles)

    def disturb(self, namespace: str, profile: str, *, child: bool) -> None:
        self.disturbed.append(profile)
        self._look(self.disturbed)

    def _look(self, names: list[str]) -> None:
        if names[-1] == "last":
            self.last.set()

    async def stop(self) -> None:
        pass


def resources(names: list[str]) -> dict[str, Any]:
    same = {"namespaced": True, "verbs": ["get", "list", "watch", "patch"]}
    return {"resources": [{"name": name, "singularName": name[:-1], "kind": name, **same} for name in names]}


def discovery(path: str) -> Any:
    """Return what kopf asks before it watches, or None."""
    if path == "/api":
        return {"versions": ["v1"]}
    if path == "/apis":
        named = [(name, {"version": of, "groupVersion": f"{name}/{of}"}) for name, (of, _) in GROUPS.items()]
        return {"groups": [{"name": name, "preferredVersion": of, "versions": [of]} for name, of in named]}
    known = {f"/apis/{name}/{version}": names for name, (version, names) in GROUPS.items()} | {"/api/v1": CORE}
    return resources(known[path]) if path in known else None


def item(name: str) -> dict[str, Any]:
    labels = {"leeway.dev/profile": name}
    return {"metadata": {"name": name, "namespace": "team", "uid": name, "labels": labels, "resourceVersion": "1"}}


def listed(*names: str) -> tuple[int, Any]:
    return 200, {"metadata": {"resourceVersion": "1"}, "items": [item(name) for name in names]}


def silence(over: threading.Event) -> Iterator[Any]:
    """Return a watch in which nothing happens."""
    over.wait(30)
    yield from ()


def watching(monkeypatch: pytest.MonkeyPatch, troubled: str, troubles: Iterator[tuple[int, Any]]) -> Seen:
    """Run the operator until it has seen `last` of the collection `troubled`, whose answers `troubles` are."""
    over, lock = threading.Event(), threading.Lock()

    def answer(asked: Asked) -> tuple[int, Any]:
        if (found := discovery(asked.path)) is not None:
            return 200, found
        if asked.path == troubled:
            with lock:
                if (trouble := next(troubles, None)) is not None:
                    return trouble
        return (200, silence(over)) if "watch" in asked.query else listed()

    seen = Seen()
    monkeypatch.setattr(handlers, "Rounds", lambda *_: seen)
    monkeypatch.setattr(main, "FIRST_WAITS_S", (0.01,) * 7)
    monkeypatch.setattr(main, "LATER_WAITS_S", 0.01)
    chosen = main.settings(clusterwide=False)
    chosen.watching.reconnect_backoff = 0.01
    with api_server(answer) as server:
        registry = handlers.registry(lambda: kopf.ConnectionInfo(server=server.url), "image", "http://tuner", None)
        options = {"registry": registry, "settings": chosen, "namespaces": ["team"], "stop_flag": over}
        operator = threading.Thread(target=kopf.run, kwargs=options)
        operator.start()
        came = seen.last.wait(20)
        over.set()
        operator.join(20)
    assert came, (seen.profiles, seen.disturbed)
    return seen


def test_a_watch_that_is_too_old_begins_anew_with_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}}
    seen = watching(monkeypatch, PROFILES, iter([listed("first"), (200, iter([gone])), listed("first", "last")]))
    assert Counter(seen.profiles) == {"first": 2, "last": 1}


@pytest.mark.parametrize("status", [403, 429, 500, 503])
def test_a_watch_that_is_refused_for_long_comes_back(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    refusals = itertools.repeat(failure(status, "not now"), 12)
    seen = watching(monkeypatch, PODS, itertools.chain(refusals, [listed("last")]))
    assert seen.disturbed == ["last"]


def test_an_error_in_a_watch_ends_the_operator_so_that_it_is_started_again(tmp_path: Path) -> None:
    over = threading.Event()
    error = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcd has gone away"}}

    def answer(asked: Asked) -> tuple[int, Any]:
        if (found := discovery(asked.path)) is not None:
            return 200, found
        if "watch" not in asked.query:
            return listed()
        return 200, iter([error]) if asked.path == PROFILES else silence(over)

    command = [sys.executable, "-m", "leeway_cli", "operator", "--namespace=team", "--liveness-port=0"]
    with api_server(answer) as server, (tmp_path / "log").open("w") as log:
        environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig(tmp_path / "kubeconfig"))}
        operator = subprocess.Popen([*command, "--metrics-port=0"], env=environment, stderr=log, stdout=log)
        try:
            assert operator.wait(60) != 0
        finally:
            operator.kill()
            over.set()
    assert "etcd has gone away" in (tmp_path / "log").read_text()

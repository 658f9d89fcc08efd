"""A server of the app for tests: the tiny models and synthetic clips of the package, asked without
a browser."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import speechmix
from speechmix.extensions.app.request_queue import RequestQueue
from speechmix.extensions.app.routes import App
from speechmix.extensions.app.server import Server
from speechmix.extensions.app.session import Session, model_choices
from speechmix.inputs import bundled


def bundled_session(**options: Any) -> Session:
    """A session with both tiny models, and four synthetic clips to begin with."""
    examples = [
        clip.replace(meta={**clip.meta, "synthetic": "yes"}) for clip in bundled.clips()[:4]
    ]
    return Session(
        model_choices(list(bundled.models().values()), speechmix.load), examples=examples, **options
    )


@contextmanager
def serving(**options: Any) -> Iterator[Server]:
    """A server at a free port."""
    with RequestQueue() as turns, Server(App(bundled_session(**options), turns)) as server:
        server.start()
        yield server
        server.shutdown()


def asked(
    server: Server,
    method: str,
    path: str,
    body: bytes | dict | None = None,
    *,
    token: str | None = None,
    **headers: str,
) -> tuple[int, Any, dict[str, str]]:
    """Status, content (decoded where it is JSON) and headers of an answer."""
    place = urlsplit(server.url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
    content = json.dumps(body).encode() if isinstance(body, dict) else body
    path = path if path.startswith("/") else f"/{server.token if token is None else token}/{path}"
    connection.request(
        method, path, content, {name.replace("_", "-"): value for name, value in headers.items()}
    )
    response = connection.getresponse()
    answer, told = response.read(), {name.lower(): value for name, value in response.getheaders()}
    connection.close()
    if told.get("content-type") == "application/json":
        answer = json.loads(answer)
    return response.status, answer, told


def worked(server: Server, **request: Any) -> dict[str, Any]:
    """A request that takes a model, when it is over."""
    taken = asked(server, "POST", "api/jobs", request)[1]
    version, job = 0, taken["job"]
    while job["state"] in ("waiting", "working"):
        news = asked(server, "GET", f"api/jobs?since={version}")[1]
        version = news["version"]
        job = next((later for later in news["jobs"] if later["id"] == job["id"]), job)
    return asked(server, "GET", f"api/jobs/{job['id']}")[1]


def example(server: Server, number: int = 1) -> dict[str, Any]:
    """A synthetic clip as the page has it."""
    name = list(server.app.session.examples)[number]
    return asked(server, "POST", "api/examples", {"name": name})[1]

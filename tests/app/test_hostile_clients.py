"""Who is on the same machine, or sends what no page sends: no token to read, no place to block, an
answer with its headers."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import stat
import time
from urllib.parse import urlsplit

import pytest

from speechmix.extensions.app import server as server_module
from speechmix.extensions.app import session as session_module
from speechmix.extensions.app.server import ConnectionLimits
from tests.app.serving import asked, bundled_session, example, serving


@pytest.fixture(scope="module")
def server():
    with serving() as server:
        yield server


def received(connection):
    """All that a server sends until it closes."""
    return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_the_browser_is_given_a_file_that_only_its_owner_reads(monkeypatch):
    opened, read = [], []

    def open_page(address):
        opened.append(address)
        path = server_module.Path(urlsplit(address).path)
        read.append((stat.S_IMODE(path.stat().st_mode), path.read_text(), path))

    monkeypatch.setattr(server_module.webbrowser, "open", open_page)
    said = []

    def interrupted(serving):
        end = time.monotonic() + 20
        while not read and time.monotonic() < end:
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(server_module.Server, "serve_forever", interrupted)
    monkeypatch.setattr(server_module, "_import_drawing_libraries", lambda session: None)
    server_module.serve([], log=said.append)
    token = urlsplit(said[0].split()[3]).path.strip("/")
    assert len(token) > 20
    assert opened[0].startswith("file://")
    assert token not in opened[0]
    mode, page, path = read[0]
    assert mode == 0o600
    assert f"/{token}/" in page
    assert not path.exists()  # removed when the server ends


def test_models_in_memory_are_bounded(monkeypatch):
    monkeypatch.setattr(session_module, "_MAX_MODELS", 2)
    session, loaded = bundled_session(), []
    name = "tiny-french-ctc"
    choice = session.choices[name]
    monkeypatch.setitem(
        session.choices,
        name,
        session_module.ModelChoice(
            name, lambda **which: loaded.append(which) or choice.load(**which)
        ),
    )
    for seed in (None, 0, None, 1, None, 0):
        session.get_model(name, init="trained" if seed is None else "random", seed=seed)
        assert len(session._models) <= 2
    assert [which.get("seed") for which in loaded] == [None, 0, 1, 0]  # the one used last stays


WRONG = (
    None,
    True,
    0,
    -1,
    1.5,
    10**400,
    "",
    "x",
    [],
    [[]],
    {},
    {"a": []},
    ["x"],
    [None],
    [{}],
    "\0",
    "x" * 10_000,
)
VALID = (None, 0, "", "x", [], "\0")  # in some field of a clip


@pytest.mark.parametrize(
    "kind",
    ["load", "write", "place", "measure", "mute", "explain", "explanation", "page", "picture"],
)
def test_wrong_types_are_the_askers_fault(server, kind, monkeypatch):
    clip = example(server)
    right = {
        "kind": kind,
        "clip": clip,
        "model": "tiny-french-ctc",
        "measures": ["attention"],
        "words": [0],
        "fill": "zeros",
        "how": "model",
        "units": "word",
        "models": [{"model": "tiny-french-ctc"}],
        "layer": 0,
        "stack": "encoder",
    }
    take = server.app.queue.submit
    monkeypatch.setattr(
        server.app.queue, "submit", lambda work: take(lambda told: None)
    )  # read, not done
    requests = [{**right, field: value} for field in right for value in WRONG]
    # One function reads the clip of every kind; what it lets through, each kind reads on.
    values = WRONG if kind == "measure" else VALID
    requests += [{**right, "clip": {**clip, field: value}} for field in clip for value in values]
    place = urlsplit(server.url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
    for request in requests:  # one connection serves them all
        connection.request("POST", f"/{server.token}/api/jobs", json.dumps(request).encode())
        response = connection.getresponse()
        answer = response.read()
        assert response.status in (202, 400, 503), (answer, str(request)[:300])
    connection.close()


@pytest.mark.parametrize("path", ["api/save", "api/examples", "api/clips", "api/jobs"])
@pytest.mark.parametrize("field", ["form", "name", "kind", "clip"])
def test_a_field_of_another_type_is_400(server, path, field):
    for value in WRONG:
        assert asked(server, "POST", path, {field: value})[0] == 400, value


def test_an_upload_that_is_too_large_gets_its_answer(server, monkeypatch):
    monkeypatch.setattr(server_module, "MAX_UPLOAD_BYTES", 2**20)
    place = urlsplit(server.url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
    connection.request(
        "POST", f"{place.path}api/recordings?name=a", bytes(16 * 2**20)
    )  # sent whole before it listens
    response = connection.getresponse()
    assert response.status == 413
    assert b"at most 1 MiB" in response.read()
    assert response.getheader("Connection") == "close"
    connection.close()


def test_silent_connections_do_not_shut_others_out(server, monkeypatch):
    assert server_module._Connection.timeout <= 5
    monkeypatch.setattr(server_module._Connection, "timeout", 0.5)
    silent = [
        socket.create_connection(server.server_address)
        for _ in range(server_module._MAX_CONNECTIONS)
    ]
    try:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            try:
                assert asked(server, "GET", "api/session")[0] == 200
                break
            except OSError:  # all taken: closed at once
                time.sleep(0.1)
        else:
            pytest.fail("silent connections shut everybody out")
        silent[0].settimeout(10)
        assert received(silent[0]) == b""
    finally:
        for connection in silent:
            connection.close()


def trickle(server, count):
    """Connections, each with the begin of a header; the token is not in it."""
    connections = [socket.create_connection(server.server_address) for _ in range(count)]
    for connection in connections:
        connection.sendall(b"GET / HTTP/1.1\r\nX: ")
    return connections


def test_connections_without_the_token_make_room_for_others(server):
    """Every request is answered, at once, whatever clients without the token hold."""
    slow = trickle(server, server_module._MAX_CONNECTIONS)
    try:
        for _ in range(20):
            assert asked(server, "GET", "api/session")[0] == 200
        slow[0].settimeout(10)
        assert received(slow[0]) == b""  # more than one address may hold
        slow[-1].sendall(b"y\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        slow[-1].settimeout(10)
        assert received(slow[-1]).startswith(b"HTTP/1.1 403")  # the newest are served
    finally:
        for connection in slow:
            connection.close()


def test_a_header_has_a_time_limit_in_all(server, monkeypatch):
    """However often a byte of it comes."""
    monkeypatch.setattr(server_module, "_HEADER_SECONDS", 0.6)
    (slow,) = trickle(server, 1)
    slow.settimeout(0.1)
    start, is_open = time.monotonic(), True
    with slow, contextlib.suppress(ConnectionError):
        while is_open and time.monotonic() < start + 10:
            slow.sendall(b"y")
            with contextlib.suppress(TimeoutError):
                is_open = slow.recv(1) != b""
    assert time.monotonic() < start + 5


def test_connections_with_the_token_are_not_closed_for_others():
    limits = ConnectionLimits(3, 2)
    pairs = [socket.socketpair() for _ in range(5)]
    served, clients = zip(*pairs, strict=True)
    assert limits.admit(served[0], "a")
    limits.trust(served[0])
    assert limits.admit(served[1], "a")
    assert limits.admit(served[2], "b")
    limits.release(served[2])
    clients[0].sendall(b"x")
    assert served[0].recv(1) == b"x"
    limits.trust(served[1])
    assert limits.admit(served[3], "c")
    limits.trust(served[3])
    assert not limits.admit(served[4], "d")  # all have the token
    for pair in pairs:
        for connection in pair:
            connection.close()


@pytest.mark.parametrize(
    "line",
    [
        b"PUT / HTTP/1.1",
        b"HEAD / HTTP/1.1",
        b"GET / HTTP/9.9",
        b"x" * 70_000,
        b"GET  / x HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
    ],
)
def test_pages_of_errors_have_the_headers_too(server, line):
    with socket.create_connection(server.server_address, timeout=10) as connection:
        connection.sendall(line + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = received(connection)
    assert answer.startswith(b"HTTP/1.1 ")
    names_in_lower_case = answer.lower()
    assert b"content-security-policy: default-src 'none'" in names_in_lower_case
    assert b"x-content-type-options: nosniff" in names_in_lower_case
    assert b"<html" not in answer.lower()
    assert b"text/html" not in answer


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET %sapi/session", b"200"),
        (b"GET %sapi/jobs?since=0", b"200"),
        (b"POST %sapi/jobs", b"411"),
    ],
)
@pytest.mark.parametrize("connection_header", [b"", b"Connection: close\r\n"])
def test_a_client_that_sends_no_more_gets_its_answer(
    server, request_line, connection_header, status, monkeypatch
):
    # Without the header it stays open so long.
    monkeypatch.setattr(server._server.config, "timeout_keep_alive", 0.2)
    server.app.queue.submit(lambda report_progress: None)  # news, at once
    line = request_line % urlsplit(server.url).path.encode()
    with socket.create_connection(server.server_address, timeout=10) as connection:
        connection.sendall(line + b" HTTP/1.1\r\nHost: localhost\r\n" + connection_header + b"\r\n")
        connection.shutdown(socket.SHUT_WR)
        assert received(connection)[9:12] == status


def test_answers_do_not_wait_for_receipts(server):
    with socket.create_connection(server.server_address):
        end = time.monotonic() + 5
        while not len(server.connections) and time.monotonic() < end:
            time.sleep(0.01)
        for connection in list(server.connections._addresses):
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_connections_end(server):
    """No connection of these tests is served for ever."""
    end = time.monotonic() + 15
    while time.monotonic() < end and len(server.connections):
        time.sleep(0.1)
    assert not len(server.connections)

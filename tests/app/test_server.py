"""The door: without the token, by another name, with too much to say one gets nothing; ten at once
get theirs."""

from __future__ import annotations

import io
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote, urlsplit

import numpy as np
import pytest
import soundfile

from speechmix.errors import InputError
from speechmix.extensions.app import clip_changes
from speechmix.extensions.app import downloads as saving
from speechmix.extensions.app import measurements as answers
from speechmix.extensions.app import server as server_module
from speechmix.extensions.app import session as session_module
from speechmix.extensions.app.model_requests import parse_requested_clip
from speechmix.extensions.app.server import MAX_UPLOAD_BYTES, Server
from speechmix.extensions.explain.page import explanation_view
from tests.app.serving import asked, bundled_session, example, serving, worked


@pytest.fixture(scope="module")
def server():
    with serving(max_seconds=2.0) as server:
        yield server


def tone(seconds: float) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(
        buffer, 0.3 * np.sin(np.arange(round(8_000 * seconds)) / 3), 8_000, format="FLAC"
    )
    return buffer.getvalue()


class TestLanguage:
    """An own recording has no language: the page's field, or serve --language, says it."""

    @pytest.fixture
    def own(self, server):
        clip = example(server)
        sound = asked(server, "GET", f"api/recordings/{clip['recording']}/sound")[1]
        recorded = asked(server, "POST", "api/recordings?name=own.flac", sound)[1]
        assert recorded["language"] is None
        return {"recording": recorded["recording"], "text": clip["text"]}

    def test_without_one_the_answer_says_where_to_write_it(self, server, own):
        failed = worked(server, kind="place", how="synthesis", clip=own)
        assert 'field "language"' in failed["answer"]

    def test_with_one_a_synthetic_voice_places_the_words(self, server, own):
        pytest.importorskip(
            "espeakng_loader", reason="synthesis needs the extra speechmix[synthesis]"
        )
        done = worked(server, kind="place", how="synthesis", clip={**own, "language": "fr"})
        assert done["answer"]["alignment"] == "synthesis"
        assert len(done["answer"]["words"]) == len(own["text"].split())

    def test_the_command_s_language_is_that_of_recordings_that_say_none(self):
        session = bundled_session(language="fr")
        name = session.add_recording(
            clip_changes.clip_from_bytes(tone(1.0), "own.flac", max_seconds=2.0)
        )
        assert (
            parse_requested_clip(session, {"clip": {"recording": name, "text": "oui"}}).language
            == "fr"
        )
        assert (
            parse_requested_clip(
                session, {"clip": {"recording": name, "text": "yes", "language": "en-us"}}
            ).language
            == "en-us"
        )


class TestTheDoor:
    def test_it_listens_on_this_computer_alone(self, server):
        assert server.server_address[0] == "127.0.0.1"
        assert server.url.startswith("http://127.0.0.1:")
        assert server.token in server.url

    def test_without_the_token_there_is_nothing(self, server):
        for token in ("", "x", server.token[:-1], server.token + "x", server.token.swapcase(), "é"):
            status, answer, _ = asked(server, "GET", "api/session", token=quote(token))
            assert (status, "token" in answer["error"]) == (403, True)
        assert asked(server, "GET", "/")[0] == asked(server, "GET", "/api/session")[0] == 403
        assert asked(server, "GET", "api/session")[0] == 200

    @pytest.mark.parametrize(
        ("host", "status"),
        [
            ("127.0.0.1", 200),
            ("localhost:1", 200),
            ("[::1]", 200),
            ("evil.example", 403),
            ("localhost.evil", 403),
            ("", 403),
            ("[", 403),
            ("a]b", 403),
        ],
    )
    def test_another_name_for_this_computer_is_refused(self, server, host, status):
        assert asked(server, "GET", "api/session", Host=host)[0] == status

    def test_another_page_cannot_ask_even_with_the_token(self, server):
        for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 400)):
            assert asked(server, "POST", "api/jobs", {}, Sec_Fetch_Site=site)[0] == status

    def test_nothing_is_loaded_from_elsewhere_or_kept_by_the_browser(self, server):
        status, page, headers = asked(server, "GET", "")
        assert status == 200
        assert b"http" not in page
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["cache-control"], headers["referrer-policy"]) == ("no-store", "no-referrer")
        assert "access-control-allow-origin" not in headers

    @pytest.mark.parametrize(
        "path",
        [
            "static/../server.py",
            "static/..%2fserver.py",
            "static/%2e%2e/server.py",
            "../../../etc/passwd",
            "static//etc/passwd",
            "static/index.html%00.js",
            "static",
            "api",
            "api/recordings/../../x/sound",
            "static/.",
            "api/clips",
        ],
    )
    def test_no_path_is_a_path_of_a_file(self, server, path):
        assert asked(server, "GET", path)[0] in (400, 404)

    def test_each_part_of_the_page_is_there(self, server):
        page = asked(server, "GET", "")[1].decode()
        for name in page.split('"static/')[1:]:
            assert asked(server, "GET", "static/" + name.partition('"')[0])[0] == 200

    def test_a_port_that_is_taken_is_said(self, server):
        with pytest.raises(Exception, match=r"cannot listen on .*choose another port"):
            Server(server.app, port=server.server_address[1])


class TestBodies:
    def test_a_body_that_is_too_large_is_refused_before_it_is_sent(self, server, monkeypatch):
        monkeypatch.setattr(server_module, "_DRAIN_PAUSE_SECONDS", 0.2)
        place = urlsplit(server.url)
        with socket.create_connection((place.hostname, place.port), timeout=20) as door:
            told = f"Host: localhost\r\nContent-Length: {MAX_UPLOAD_BYTES + 1}\r\n\r\n"
            door.sendall(f"POST {place.path}api/recordings?name=a HTTP/1.1\r\n{told}".encode())
            answer = b""
            while part := door.recv(
                4096
            ):  # it answers and closes, though nothing of the body has come
                answer += part
        assert b" 413 " in answer
        assert b"64 MiB" in answer

    def test_the_body_of_a_get_is_no_request(self, server):
        inner = (
            f"GET /{server.token}/api/session HTTP/1.1\r\nHost: localhost\r\nConnection: "
            "close\r\n\r\n"
        )
        head = (
            f"GET /{server.token}/static/store.js HTTP/1.1\r\nHost: "
            f"localhost\r\nContent-Length: {len(inner)}\r\n\r\n"
        )
        with socket.create_connection(server.server_address) as connection:
            connection.sendall((head + inner).encode())
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
        assert answer.count(b"HTTP/1.1 ") == 1

    @pytest.mark.parametrize("length", ["-1", "x", "", "1e3", "²", "9" * 40])
    def test_a_length_that_is_none_is_refused(self, server, length):
        assert asked(server, "POST", "api/jobs", b"", Content_Length=length)[0] in (411, 413)

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"x",
            b"[]",
            b"null",
            b"{}",
            b'{"kind": 1}',
            b'{"kind": "measure"}',
            b'{"kind": "measure", "clip": []}',
            b'{"kind": "measure", "clip": {"recording": {}}}',
            b'{"kind": "place", "how": [], "clip": {}}',
            b"\xff\xfe",
            b"[" * 9999,
            b'{"kind": "write", "clip": {"recording": "\\ud800"}}',
        ],
    )
    def test_what_is_no_request_is_an_error_that_says_so(self, server, body):
        status, answer, _ = asked(server, "POST", "api/jobs", body)
        assert status == 400
        assert answer["error"]

    def test_a_version_that_is_no_number_is_none(self, server):
        worked(server, kind="load", model="tiny-french-ctc")
        for since in ("x", "9" * 5_000):
            assert asked(server, "GET", f"api/jobs?since={since}")[0] == 200

    def test_fields_of_a_request_are_checked(self, server):
        clip = example(server)
        wrong = [
            {"clip": {**clip, "words": [["a", 0.1]]}},
            {"clip": {**clip, "words": [["a", 0.5, 0.1]]}},
            {"seed": -1},
            {"clip": {**clip, "words": "nos"}},
            {"clip": {**clip, "cue": [9]}},
            {"clip": {**clip, "target": True}},
            {"clip": {**clip, "text": 3}},
            {"clip": {**clip, "words": [["a", 0, 0.001]] * 601}},
            {"units": "phone"},
            {"model": None},
            {"measures": "x"},
            {"measures": []},
        ]
        right = {
            "kind": "measure",
            "clip": clip,
            "model": "tiny-french-ctc",
            "measures": ["attention"],
        }
        for change in wrong:
            status, answer, _ = asked(server, "POST", "api/jobs", {**right, **change})
            assert (status, bool(answer.get("error"))) == (400, True), change
        job = worked(server, **{**right, "model": "/etc/passwd"})
        assert (job["state"], "the page has no model" in job["answer"]) == ("failed", True)


class TestRecordings:
    def test_an_upload_is_heard_as_it_was_sent_and_leaves_nothing_behind(
        self, server, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        status, clip, _ = asked(server, "POST", "api/recordings?name=a.flac", tone(0.5))
        assert (status, clip["name"], clip["words"]) == (200, "a", None)
        sound = asked(server, "GET", f"api/recordings/{clip['recording']}/sound")[1]
        samples, rate = soundfile.read(io.BytesIO(sound))
        assert (len(samples), rate) == (8_000, 16_000)
        assert asked(server, "GET", f"api/recordings/{clip['recording']}/picture")[1].startswith(
            b"\x89PNG"
        )
        assert list(tmp_path.iterdir()) == []

    def test_one_that_is_too_long_says_so(self, server):
        status, answer, _ = asked(server, "POST", "api/recordings?name=long.flac", tone(3))
        assert (status, "is 3.0 s long, the limit is 2 s" in answer["error"]) == (400, True)

    @pytest.mark.parametrize(
        "name",
        [
            "<script>alert(1)</script>",
            "../../x",
            'a"; filename=b',
            "a\r\nX-Evil: 1",
            "é" * 300,
            "\u202e",
        ],
    )
    def test_a_hostile_name_is_a_name(self, server, name):
        clip = asked(server, "POST", f"api/recordings?name={quote(name)}", tone(0.2))[1]
        status, row, headers = asked(server, "POST", "api/save", {"form": "row", "clip": clip})
        assert status == 200
        assert "x-evil" not in headers
        assert headers["content-disposition"].startswith("attachment; filename*=UTF-8''")
        assert not set(headers["content-disposition"][29:]) & set("\"'<>/\\\r\n;")
        assert b"recording" not in row

    def test_one_that_is_not_here_any_more_says_so(self, server):
        clip = {**example(server), "recording": "gone"}
        assert (
            "open it again"
            in asked(server, "POST", "api/save", {"form": "sound", "clip": clip})[1]["error"]
        )

    def test_of_too_many_the_oldest_are_forgotten(self):
        session = bundled_session()
        clip = next(iter(session.examples.values()))
        first, *_, last = [session.add_recording(clip) for _ in range(101)]
        assert session.get_recording(last) is clip
        with pytest.raises(Exception, match="open it again"):
            session.get_recording(first)


def test_ten_at_once_all_get_their_own_answer_and_work_is_done_once_each(server):
    clips = [example(server, number % 4) for number in range(10)]
    with ThreadPoolExecutor(10) as people:
        jobs = list(
            people.map(
                lambda clip: worked(server, kind="write", clip=clip, model="tiny-french-ctc"), clips
            )
        )
    assert {job["state"] for job in jobs} == {"done"}
    alone = {
        clip["name"]: worked(server, kind="write", clip=clip, model="tiny-french-ctc")["answer"]
        for clip in clips[:4]
    }
    assert [job["answer"] for job in jobs] == [alone[clip["name"]] for clip in clips]


def test_why_a_word_was_written_is_the_view_of_an_explanation_and_its_page(server, monkeypatch):
    clip = example(server)
    question = {"clip": clip, "model": "tiny-french-ctc"}
    answer = worked(server, kind="explain", **question)["answer"]
    session = server.app.session
    model, own = session.get_model("tiny-french-ctc"), parse_requested_clip(session, question)
    assert answer == explanation_view(answers.explain_clip(model, own), sound=False)
    assert [word["label"] for word in answer["units"]] == ["nos", "maisons"]
    assert {choice["against"] for choice in answer["choices"]} == {"", "runner_up"}
    monkeypatch.setattr(answers, "explain_clip", None)  # remembered
    job = worked(server, kind="explanation", **question)
    status, page, headers = asked(server, "GET", f"api/jobs/{job['id']}/file")
    assert (status, headers["content-disposition"]) == (
        200,
        "attachment; filename*=UTF-8''left_00_pl_why.html",
    )
    assert page.decode() == session.get_explanation(model, own).to_html()


def test_a_sound_without_speech_is_explained_by_segments(server):
    """With or without words that an aligner placed in it."""
    buffer = io.BytesIO()
    noise = np.random.default_rng(0).normal(0, 0.1, 16_000)
    soundfile.write(buffer, noise, 16_000, format="FLAC")
    sound = buffer.getvalue()
    uploaded = asked(server, "POST", "api/recordings?name=noise.flac", sound)[1]
    clip = {"recording": uploaded["recording"], "text": None, "words": None}
    placed = {**clip, "text": "oui", "words": [["oui", 0.1, 0.9]], "alignment": "ctc"}
    for own in (clip, placed):
        job = worked(server, kind="explain", clip=own, model="tiny-french-whisper")
        assert job["state"] == "done", job["answer"]
        assert job["answer"]["notes"][0].startswith("Nobody seems to speak here: ")
        sources = [(source["label"], source["side"]) for source in job["answer"]["sources"]]
        assert sources[0] == ("0.00-0.25 s", "sound")
        assert ("<padding>", "padding") in sources


def test_what_cannot_be_explained_says_so(server):
    bare = {**example(server), "words": None}
    assert (
        "click Align words first"
        in worked(server, kind="explain", clip=bare, model="tiny-french-ctc")["answer"]
    )
    twin = worked(server, kind="explain", clip=example(server), model="tiny-french-ctc", seed=0)
    assert (twin["state"], "random weights" in twin["answer"]) == ("failed", True)


def test_maps_are_remembered_and_a_moved_border_is_another_question(server):
    clip, question = (
        example(server),
        {"kind": "measure", "model": "tiny-french-ctc", "measures": ["value_zeroing", "attention"]},
    )
    first = worked(server, clip=clip, **question)["answer"]
    assert {one["measure"] for one in first["maps"]} == {"value zeroing", "attention"}
    assert worked(server, clip={**clip, "cue": [1], "target": None}, **question)["answer"] == {
        **first,
        "maps": [{**one, "deciding": None} for one in first["maps"]],
    }
    words = [[text, start, end] for text, start, end in clip["words"]]
    words[0][2] -= 0.05
    moved = worked(server, clip={**clip, "words": words}, **question)["answer"]
    assert [one["cells"] for one in moved["maps"]] != [one["cells"] for one in first["maps"]]


def test_maps_that_are_more_than_are_remembered_are_answered_all_the_same(monkeypatch):
    monkeypatch.setattr(session_module, "_MAX_MAP_BYTES", 1)
    session = bundled_session()
    model, clip = session.get_model("tiny-french-ctc"), next(iter(session.examples.values()))
    for _ in range(2):
        maps = session.get_maps(
            model, clip, measures=["attention", "attention_norm"], units="word"
        ).maps
        assert {measure for measure, _ in maps} == {"attention", "attention_norm"}


def test_a_measure_that_is_refused_does_not_take_those_along_that_are_remembered():
    session = bundled_session()
    model, clip = session.get_model("tiny-french-ctc"), next(iter(session.examples.values()))
    for _ in range(2):
        answer = session.get_maps(model, clip, measures=["attention", "globenc"], units="word")
        assert ({measure for measure, _ in answer.maps}, list(answer.failure_reasons)) == (
            {"attention"},
            ["globenc"],
        )
    with pytest.raises(InputError):
        session.get_maps(model, clip, measures=["globenc"], units="word")


def test_one_thread_draws_at_a_time(server, monkeypatch):
    """A job draws while the page asks for pictures."""

    def drawn(*asked, **options):
        assert server.app.session.drawing_lock.locked()
        return saving.SavedFile("a.png", "image/png", b"")

    for kind in ("page", "picture"):
        monkeypatch.setattr(
            saving, {"page": "render_maps_page", "picture": "render_maps_picture"}[kind], drawn
        )
        asked_of = {
            "clip": example(server),
            "model": "tiny-french-ctc",
            "measures": ["attention"],
            "stack": "encoder",
        }
        assert (
            worked(server, kind=kind, models=[{"model": "tiny-french-ctc"}], **asked_of)["state"]
            == "done"
        )


def test_another_session_knows_nothing_of_this_one(server):
    clip = example(server)
    with serving() as other:
        assert other.token != server.token
        assert asked(other, "GET", f"api/recordings/{clip['recording']}/sound")[0] == 400


def test_the_language_of_the_page_reaches_transcription_and_alignment(server, monkeypatch):
    heard = []
    monkeypatch.setattr(
        "speechmix.extensions.app.measurements.transcribe",
        lambda model, clip: heard.append(clip.language) or "nos maisons",
    )
    monkeypatch.setattr(
        "speechmix.extensions.app.clip_changes.place_words",
        lambda clip, text, **options: heard.append(clip.language) or clip.replace(words=None),
    )
    clip = {**example(server), "language": "cy"}
    worked(server, kind="write", clip=clip, model="tiny-french-ctc")
    worked(server, kind="place", clip=clip, how="synthesis")
    assert heard == ["cy", "cy"]


def test_each_piece_of_work_has_an_estimate_that_is_scaled_from_the_last(server):
    session, told = server.app.session, []
    with session.timed(lambda *step: told.append(step), "first", "transcribe", "a", 2.0):
        pass
    with session.timed(lambda *step: told.append(step), "second", "transcribe", "a", 10.0):
        pass
    assert [note for note, _ in told] == ["first", "second"]
    assert told[1][1] < told[0][1]


def test_a_sentence_is_opened_and_a_page_without_a_text_model_says_so(server):
    status, clip, _ = asked(server, "POST", "api/texts", {"text": "the [MASK] are here."})
    assert status == 200
    assert [word for word, _, _ in clip["words"]] == ["the", "<mask>", "are", "here", "."]
    assert clip["target"] == 1
    assert asked(server, "POST", "api/texts", {"text": " "})[0] == 400
    assert worked(server, kind="load", model="tiny-french-ctc")["answer"]["text_models"] == []

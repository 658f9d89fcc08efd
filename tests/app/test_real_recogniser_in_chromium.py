"""The app with a real recogniser (Whisper tiny.en): what is answered first, cancelling, two tabs."""

from __future__ import annotations

import json
import time

import pytest
import soundfile

import speechmix
from speechmix.adapters.generation.greedy_generation import transcribe
from speechmix.extensions.app.request_queue import RequestQueue
from speechmix.extensions.app.routes import App
from speechmix.extensions.app.server import Server
from speechmix.extensions.app.session import ModelChoice, Session
from tests.app.test_app_in_chromium import IDLE, choose, hidden, text
from tests.models.text_models import bert
from tests.reports.chromium import EXECUTABLE, Browser

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(EXECUTABLE is None, reason="no Chromium is installed"),
]
PATIENCE = 120
MEASURED = f"speechmix.clip?.words && {IDLE} && !{hidden('.panel .body')}"
# Remembers which work was requested, and when each result came.
WATCHED = """{ window.jobs = []; window.results = {}; const original = window.fetch;
window.fetch = async (path, options) => {
  if (options?.method === "POST" && String(path) === "api/jobs") window.jobs.push(JSON.parse(options.body));
  return original(path, options);
}; }"""


@pytest.fixture(scope="module")
def server(real_model):
    reader = bert()
    choices = [
        ModelChoice("tiny.en", lambda **_: real_model, real_model),
        ModelChoice("bert", lambda **_: reader, reader),
    ]
    with RequestQueue() as queue, Server(App(Session(choices), queue)) as server:
        server.start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def browsers():
    with Browser() as first, Browser() as second:
        yield first, second


@pytest.fixture
def tabs(server, browsers):
    for tab in browsers:
        tab.messages.clear()
        tab.open(server.url)
        tab.until(IDLE, PATIENCE)
        tab.evaluate(WATCHED)
    yield browsers
    for tab in browsers:
        assert tab.messages == []


@pytest.fixture(scope="module")
def recording(real_recordings, tmp_path_factory):
    """The beginning of a real recording; short, as time for a map of frames grows with its square."""
    samples, rate = soundfile.read(real_recordings / "beckett.wav")
    path = tmp_path_factory.mktemp("recording") / "short.wav"
    soundfile.write(path, samples[: round(3.3 * rate)], rate)
    return path


def requested(tab: Browser) -> list[list[str]]:
    """The kind of each job that a page has requested, and the units of maps."""
    return tab.evaluate("window.jobs.map((job) => [job.kind, job.units ?? ''])")


def test_transcript_word_times_and_word_map_come_first_and_frames_when_chosen(
    tabs, real_model, recording
):
    clip = speechmix.Clip.from_file(recording)
    transcribe(real_model, clip)  # the first pass takes longer
    started = time.monotonic()
    expected = transcribe(real_model, clip)
    generation_seconds = time.monotonic() - started
    page, _ = tabs
    started = time.monotonic()
    page.upload("#file", recording)
    page.until(MEASURED, PATIENCE)
    seconds = time.monotonic() - started
    print(f"transcript and word map {seconds:.2f} s, generation {generation_seconds:.2f} s")
    assert page.evaluate("document.querySelector('#text').value") == expected
    assert requested(page) == [["write", ""], ["place", ""], ["measure", "word"]]
    assert seconds < 12 * max(generation_seconds, 1.0)  # other work shares the machine


def test_a_frame_map_has_an_estimate_can_be_cancelled_and_another_tab_is_answered(
    tabs, recording, real_recordings
):
    first, second = tabs
    first.upload("#file", recording)
    first.until(MEASURED, PATIENCE)
    choose(first, ".panel .units", "frame")
    first.until(
        "document.querySelector('.told').textContent.includes('value zeroing') && "
        "Number(document.querySelector('#progress').value) > 0 && "
        "/about \\\\d+ (s|min)/.test(document.querySelector('.told').textContent)".replace(
            "\\\\", "\\"
        ),
        PATIENCE,
    )
    second.upload("#file", real_recordings / "success.wav")  # waits behind the frame map
    second.until("document.querySelector('.told').textContent.includes('1 before it')", PATIENCE)
    first.click("#cancel")
    started = time.monotonic()
    first.until(f"{IDLE} && document.querySelector('.panel .note').textContent", PATIENCE)
    assert time.monotonic() - started < 5
    assert text(first, ".panel .note").startswith("Cancelled")
    second.until(IDLE, PATIENCE)
    choose(first, ".panel .units", "word")  # the model still answers, from memory and anew
    first.until(f"{MEASURED}", PATIENCE)
    choose(first, ".panel .units", "frame")
    first.until(MEASURED, PATIENCE)
    assert text(first, ".made h3")


def test_a_typed_sentence_is_read_by_the_text_model(tabs):
    page, _ = tabs
    page.evaluate(
        "{ const box = document.querySelector('#sentence'); box.value = 'the keys are [MASK] .'; "
        "box.form.requestSubmit(); }"
    )
    page.until(MEASURED, PATIENCE)
    assert page.evaluate("document.querySelector('.panel .model').value") == "bert"
    assert page.evaluate(
        "[...document.querySelectorAll('.targets button')].map((one) => one.textContent)"
    )
    assert requested(page) == [["measure", "word"]]
    assert page.evaluate(hidden("#why"))
    assert json.loads(page.evaluate("JSON.stringify(speechmix.clip.words)"))[3][0] == "<mask>"

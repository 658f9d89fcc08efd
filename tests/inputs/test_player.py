"""How clips and models show themselves in a notebook."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
import soundfile

import speechmix
from speechmix.inputs import bundled
from tests.conftest import build
from tests.reports.chromium import EXECUTABLE, Browser


def test_a_clip_is_its_words_and_a_player():
    clip = bundled.clips()[0]
    shown = clip._repr_html_()
    for index, word in enumerate(clip.words):
        assert f">{word.text}</span>" in shown
        assert ("font-weight" in shown.split(f">{word.text}</span>")[0].rpartition("<span")[2]) == (
            index in (clip.cue, clip.target)
        )
    (sound,) = re.findall(r"data:audio/wav;base64,([^\"]+)", shown)
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(sound)))
    assert len(samples) / rate == clip.duration


def test_what_is_written_in_a_clip_stays_text():
    clip = speechmix.Clip.from_array(np.zeros(1_600), 16_000, text="<script>alert(1)</script>")
    assert "<script>" not in clip._repr_html_()


def test_a_model_says_what_it_is():
    model = speechmix.load(build("whisper-80"), device="cpu")
    assert model.describe().splitlines()[1].strip() in model._repr_html_()


@pytest.mark.skipif(EXECUTABLE is None, reason="needs Chromium")
@pytest.mark.long
def test_a_browser_goes_to_every_time_of_the_sound(tmp_path):
    clip = bundled.clips()[1]
    (tmp_path / "page.html").write_text(f"<!doctype html><body>{clip._repr_html_()}")
    with Browser(600, 400) as browser:
        for time in np.arange(0.05, clip.duration, 0.1):
            browser.open(tmp_path / "page.html")
            reached = browser.evaluate(
                "new Promise((done) => { const audio = document.querySelector('audio'), go = () => "
                "{ "
                "audio.onseeked = () => done(audio.currentTime); audio.onerror = () => "
                "done(audio.error.message); "
                f"audio.currentTime = {time}; "
                f"}}; if (audio.readyState) go(); else audio.onloadedmetadata = go; }})"
            )
            assert reached == pytest.approx(time, abs=1e-3)

"""The page of an explanation: chosen without a script, hovered and played with one, and no text on it does anything."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import speechmix
from speechmix import bundled
from tests.conftest import trained
from tests.reports.chromium import EXECUTABLE, Browser

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def explained():
    clip = next(clip for clip in bundled.clips() if clip.name == "left_00_pl")
    words = [("notre", 0.4, 0.52), (EVIL, clip.words[1].start, clip.words[1].end)]
    clip = clip.replace(text=None, words=words, cue=None, target=None, foil=None)
    return speechmix.explain(
        trained("tiny-french-whisper"),
        clip,
        measures=["occlusion", "gradient_input"],
        against=("reference", "runner_up"),
    )


def test_all_text_is_escaped_and_nothing_comes_from_elsewhere(explained):
    page = replace(explained, text=EVIL, by=EVIL, said=(EVIL,), left_out=((EVIL, EVIL),)).to_html()
    assert "<img" not in page
    assert page.count("&lt;img") >= 6
    assert not re.search(r'(src|href)="?(https?:)?//', page)
    assert "default-src &#39;none&#39;" in page


def test_every_word_has_its_panel_with_what_is_claimed_and_shown(explained):
    html = explained._repr_html_()
    assert html.count('class="panel"') == len(explained.choices)
    assert html.count(" checked") == 1
    assert html.count("without it") == len(explained.choices)
    assert "Where it errs" in html
    assert "data:audio/wav" in html
    assert "data:audio/wav" not in explained.to_html(sound=False)


@pytest.mark.skipif(EXECUTABLE is None, reason="needs Chromium")
@pytest.mark.long
@pytest.mark.parametrize("width", [1280, 420])
def test_in_chromium(explained, tmp_path, width):
    path = explained.save(tmp_path / "why.html")
    visible = "[...document.querySelectorAll('.panel')].filter((panel) => panel.offsetParent).length"
    hovered = "document.querySelectorAll('label')[3].dispatchEvent(new MouseEvent('mouseover', {bubbles: true}))"
    with Browser(width, 900) as browser:
        browser.open(path)
        assert browser.evaluate(visible) == 1
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        browser.evaluate(hovered)
        assert browser.evaluate("[...document.querySelectorAll('label input')].findIndex((one) => one.checked)") == 3
        assert browser.evaluate(visible) == 1
        browser.evaluate("[...document.querySelectorAll('.wave button')].find((one) => one.offsetParent).click()")
        browser.until("document.querySelector('audio').currentTime > 0.3")
        browser.until("document.querySelector('audio').paused")  # at the end of the word
        assert 0.5 < browser.evaluate("document.querySelector('audio').currentTime") < 0.75
        assert not browser.messages

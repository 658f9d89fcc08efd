"""The view of an explanation: hovered, tapped and walked by keys, heard, coloured, saved; and no
text in it does anything."""

from __future__ import annotations

import base64
import io
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import soundfile

import speechmix
from speechmix.extensions.explain.page import explanation_view
from speechmix.inputs import bundled
from speechmix.inputs.clips.segments import segment_clip
from tests.conftest import trained
from tests.reports.chromium import EXECUTABLE, Browser

EVIL = "<img src=x onerror=alert(1)></script><script>alert(1)</script>"
PRESSED = (
    "[...document.querySelectorAll('.w-words .w-word')].findIndex((word) => "
    "word.getAttribute('aria-pressed') === 'true')"
)


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
        pairs=3,
    )


def test_all_text_is_escaped_and_nothing_comes_from_elsewhere(explained):
    page = replace(
        explained, item=EVIL, text=EVIL, by=EVIL, said=(EVIL,), left_out=((EVIL, EVIL),)
    ).to_html()
    assert "<img" not in page
    assert page.count("<script") == page.count("</script>") == 2
    assert not re.search(r'(src|href)="?(https?:)?//', page)
    assert "default-src &#x27;none&#x27;" in page


def test_without_a_script_the_explanation_is_there_as_text(explained):
    assert "without it p = " in re.search("<pre>(.*?)</pre>", explained._repr_html_(), re.DOTALL)[1]


def test_what_is_shown_are_the_numbers_of_the_explanation(explained):
    view = json.loads(json.dumps(explanation_view(explained)))
    for place, (choice, shown) in enumerate(zip(explained.choices, view["choices"], strict=True)):
        for name, attribution in explained.attributions.items():
            values = [np.nan if value is None else value for value in shown["attribution"][name]]
            np.testing.assert_allclose(values, attribution.values[place], rtol=1e-5)
        assert shown["value"] == pytest.approx(explained.values[place], rel=1e-5)
        assert shown["unit"] == choice.unit
        told = [pair for pair in explained.pairs if pair.choice == place]
        assert [pair["kind"] for pair in shown["pairs"]] == [pair.kind for pair in told]
        np.testing.assert_allclose(
            [pair["beyond"] for pair in shown["pairs"]], [pair.beyond for pair in told], rtol=1e-5
        )
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(view["sound"]["wav"])))
    assert len(samples) / rate == pytest.approx(explained.clip.duration, abs=1e-3)
    assert explanation_view(explained, sound=False)["sound"]["wav"] is None
    # What was written before is a source: the same word of the text.
    sides = [source["side"] for source in view["sources"]]
    assert [unit["source"] for unit in view["units"]] == [2, 3, None]
    assert sides == ["sound", "sound", "written", "written"]


def test_frames_are_a_byte_each(explained):
    view = explanation_view(explained)
    parts = explained.attributions["gradient_input"].by_frame.values
    assert view["frames"] == pytest.approx(
        [*explained.frames[:, 0], explained.frames[-1, 1]], rel=1e-5
    )
    for place, shown in enumerate(view["choices"]):
        (told,) = shown["by_frame"].values()
        assert list(shown["by_frame"]) == ["gradient_input"]
        values = np.frombuffer(base64.b64decode(told["parts"]), np.int8) * told["largest"] / 127
        np.testing.assert_allclose(
            values, parts[place], rtol=0, atol=1.001 * np.abs(parts[place]).max() / 254
        )


def test_pairs_lie_beside_the_table(explained, tmp_path):
    for ending, read in (("csv", pd.read_csv), ("parquet", pd.read_parquet)):
        explained.save(tmp_path / f"why.{ending}")
        table, own = read(tmp_path / f"why_pairs.{ending}"), explained.pairs_to_dataframe()
        assert list(table.columns) == list(own.columns)
        np.testing.assert_allclose(table["beyond"], own["beyond"])
    replace(explained, pairs=()).save(tmp_path / "none.csv")
    assert not (tmp_path / "none_pairs.csv").exists()


def opened(browser, explained, tmp_path):
    browser.open(explained.save(tmp_path / "why.html"))
    browser.until("document.querySelectorAll('.w-words .w-word').length > 0")


def hover(browser, unit):
    """The mouse, moved to the middle of a word."""
    x, y = browser.evaluate(
        f"(() => {{ const r = document.querySelectorAll('.w-words "
        f".w-word')[{unit}].getBoundingClientRect(); "
        "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
    )
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    return x, y


@pytest.mark.skipif(EXECUTABLE is None, reason="needs Chromium")
@pytest.mark.long
class TestInChromium:
    @pytest.mark.parametrize("width", [1280, 420])
    def test_a_word_is_hovered_seen_and_heard(self, explained, tmp_path, width):
        with Browser(width, 900) as browser:
            opened(browser, explained, tmp_path)
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            assert browser.evaluate("document.querySelectorAll('img').length") == 0
            assert browser.evaluate(PRESSED) == 0  # the error comes first
            hover(browser, 1)
            assert browser.evaluate(PRESSED) == 1
            # Its strongest part of the sound is heard, from its beginning to its end.
            values = explained.attributions["occlusion"].values[explained.choice("maisons")]
            source = explained.sources[int(np.argmax(values[:2]))]
            browser.until(f"document.querySelector('audio').currentTime > {source.onset}")
            browser.until("document.querySelector('audio').paused")
            end = browser.evaluate("document.querySelector('audio').currentTime")
            assert source.offset <= end < source.offset + 0.2
            assert source.label[:3] in browser.evaluate(
                "document.querySelector('.w-heading').innerText"
            )
            assert not browser.messages

    def test_numbers_below_the_waveform_are_whole_or_not_there(self, tmp_path):
        """Of 2.8e-5 no 2.8 is left, of 0.65-0.70 s no 0.65."""
        clip = speechmix.Clip.from_file(bundled.clips()[0].path, language="fr")
        why = speechmix.explain(
            trained("tiny-french-whisper"),
            segment_clip(clip, 0.1),
            measures="gradient_input",
            top=0,
        )
        seen = """[...document.querySelectorAll('.w-lane small, .w-lane .w-number')].map((box) => {
            const range = document.createRange();
            range.selectNodeContents(box);
            const text = range.getBoundingClientRect(), room = box.getBoundingClientRect();
            const below = text.top >= room.bottom - 2;
            return [below, below || (text.left >= room.left - 1 && text.right <= room.right + 1)];
        })"""
        with Browser(900, 900) as browser:
            browser.open(why.save(tmp_path / "why.html"))
            wide = browser.evaluate(seen)
            browser.resize(420, 900)
            narrow = browser.evaluate(seen)
        assert all(whole for _, whole in wide + narrow)
        assert not all(hidden for hidden, _ in wide)
        assert sum(hidden for hidden, _ in narrow) > sum(hidden for hidden, _ in wide)

    def test_what_is_hovered_stays_below_the_mouse(self, explained, tmp_path):
        with Browser(420, 900) as browser:
            opened(browser, explained, tmp_path)
            for unit in (1, 2, 0, 2, 1):
                before = hover(browser, unit)
                assert browser.evaluate(PRESSED) == unit
                assert hover(browser, unit) == before

    def test_colours_are_the_claims(self, explained, tmp_path):
        parts = "[...document.querySelectorAll('.w-lane button')]"
        depth = f"{parts}.map((part) => parseFloat(part.style.getPropertyValue('--depth')))"
        with Browser() as browser:
            opened(browser, explained, tmp_path)
            for place, choice in enumerate(explained.choices):
                for number, attribution in enumerate(explained.attributions.values()):
                    browser.evaluate(
                        f"document.querySelectorAll('.w-words .w-word')[{choice.unit}].click()"
                    )
                    name = {
                        "": "the word alone",
                        "reference": "against the reference",
                        "runner_up": "against the runner-up",
                    }[choice.against]
                    named = f"(button) => button.innerText.includes('{name}')"
                    browser.evaluate(
                        f"[...document.querySelectorAll('.w-instead button')].find({named}).click()"
                    )
                    browser.evaluate(
                        f"document.querySelectorAll('.w-measures button')[{number}].click()"
                    )
                    values = attribution.values[place]
                    top = np.nanmax(np.abs(values))
                    np.testing.assert_allclose(
                        browser.evaluate(depth), 0.7 * np.abs(values[:2]) / top, atol=6e-4
                    )
                    takes = browser.evaluate(f"{parts}.map((part) => part.matches('.takes'))")
                    assert takes == [bool(value < 0) for value in values[:2]]

    def test_the_waveform_is_coloured_by_frame(self, explained, tmp_path):
        frames = "[...document.querySelectorAll('rect.w-of-frame')]"
        depth = f"{frames}.map((frame) => parseFloat(frame.style.getPropertyValue('--depth')))"
        is_fine, box = (
            "document.querySelector('svg').matches('.w-fine')",
            "document.querySelectorAll('.w-tools input')[1]",
        )
        with Browser() as browser:
            opened(browser, explained, tmp_path)
            browser.evaluate("document.querySelectorAll('.w-words .w-word')[1].click()")
            assert not browser.evaluate(is_fine)  # occlusion says nothing of frames
            browser.evaluate("document.querySelectorAll('.w-measures button')[1].click()")
            assert browser.evaluate(is_fine)
            values = explained.attributions["gradient_input"].by_frame.values[
                explained.choice("maisons")
            ]
            np.testing.assert_allclose(
                browser.evaluate(depth), 0.7 * values / values.max(), atol=0.7 / 254 + 5e-4
            )
            places = browser.evaluate(f"{frames}.map((frame) => frame.getBBox().x)")
            bars = browser.evaluate("document.querySelector('svg').viewBox.baseVal.width")
            np.testing.assert_allclose(
                np.array(places) / bars * explained.clip.duration,
                explained.frames[:, 0],
                atol=explained.clip.duration / bars,
            )
            peak = explained.frames[int(values.argmax()), 0]
            assert f"Largest frame: at {peak:.2f} s" in browser.evaluate(
                "document.querySelector('[aria-live]').innerText"
            )
            browser.evaluate(f"{box}.click()")
            assert not browser.evaluate(is_fine)
            assert not browser.messages

    def test_a_notebook_shows_several(self, explained, tmp_path):
        bodies = "".join(
            f"<div>{replace(explained, item=name)._repr_html_()}</div>" for name in "ab"
        )
        (tmp_path / "notebook.html").write_text(
            f"<!doctype html><meta charset=utf-8><body>{bodies}", encoding="utf-8"
        )
        with Browser(700, 900) as browser:
            browser.open(tmp_path / "notebook.html")
            browser.until("document.querySelectorAll('.w-words').length === 2")
            browser.evaluate("document.querySelectorAll('.w-words')[1].children[1].click()")
            pressed = (
                "[...document.querySelectorAll('.w-word')].map((word) => "
                "word.getAttribute('aria-pressed'))"
            )
            assert browser.evaluate(pressed) == ["true", "false", "false", "false", "true", "false"]
            assert not browser.messages

    def test_keys_walk_and_say(self, explained, tmp_path):
        with Browser() as browser:
            opened(browser, explained, tmp_path)
            browser.press("Tab")
            assert browser.evaluate("document.activeElement.matches('.w-word')")
            browser.press("ArrowRight")
            assert browser.evaluate(PRESSED) == 1
            browser.until("!document.querySelector('audio').paused")
            assert "Largest source: " in browser.evaluate(
                "document.querySelector('[aria-live]').innerText"
            )

    def test_page_picture_and_table_are_saved(self, explained, tmp_path):
        with Browser() as browser:
            opened(browser, explained, tmp_path)
            browser.evaluate(
                "window.saved = []; const text = (bytes) => Array.from(bytes, (byte) => "
                "String.fromCharCode(byte)).join(''); "
                "URL.createObjectURL = (blob) => { blob.arrayBuffer().then((bytes) => "
                "saved.push([blob.type, btoa(text(new Uint8Array(bytes)))])); return 'data:,'; }"
            )
            browser.evaluate(
                "document.querySelectorAll('.w-tools button').forEach((button) => button.click())"
            )
            browser.until("saved.length === 4")
            saved = [
                (kind, base64.b64decode(content)) for kind, content in browser.evaluate("saved")
            ]
            assert not browser.messages
        tables = [pd.read_csv(io.BytesIO(content)) for kind, content in saved if kind == "text/csv"]
        saved = dict(saved)
        assert saved["text/html"].decode() == explained.to_html()
        for own in (explained.to_dataframe(), explained.pairs_to_dataframe()):
            (table,) = (table for table in tables if list(table.columns) == list(own.columns))
            own = pd.read_csv(io.StringIO(own.to_csv(index=False)))
            pd.testing.assert_frame_equal(table, own, rtol=1e-4, atol=1e-5, check_dtype=False)
        from PIL import Image

        picture = np.asarray(Image.open(io.BytesIO(saved["image/png"])).convert("RGB")).astype(int)
        assert picture.shape[1] > 1500
        blue = (picture[..., 2] - picture[..., 0] > 60).mean()
        assert blue > 0.01  # what is coloured on the page is coloured there

    def test_dark_and_light_have_letters_that_can_be_read(self, explained, tmp_path):
        for dark in (False, True):
            with Browser(420, 900, dark=dark) as browser:
                opened(browser, explained, tmp_path)
                ink = browser.evaluate("getComputedStyle(document.querySelector('.w-word')).color")
                assert (sum(map(int, re.findall(r"\d+", ink)[:3])) > 380) == dark

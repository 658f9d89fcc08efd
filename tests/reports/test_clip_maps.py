"""Maps of clips on the page: in words and in tokens, labels beside their rows, the layer that is
shown first, dark screens."""

from __future__ import annotations

import base64

import numpy as np
import pytest

from speechmix.inputs.words.spans import Span
from speechmix.mixing.maps.mixing_map import MixingMap
from speechmix.reporting.pages.clip_card import clip_card, encode_maps
from speechmix.reporting.pages.html_page import FirstScreen, render_page
from speechmix.reporting.pages.transcription import ModelTranscript, mark_differences
from tests.reports.chromium import EXECUTABLE, Browser

needs_browser = pytest.mark.skipif(EXECUTABLE is None, reason="no Chromium is installed")
# Middle of each label and of its row of cells, in pixels.
ROWS = """(() => {
  const canvas = document.querySelector("#first .map canvas").getBoundingClientRect();
  const labels = [...document.querySelectorAll("#first .targets button")];
  return labels.map((label, row) => {
    const box = label.getBoundingClientRect();
    return [(box.top + box.bottom) / 2, canvas.top + ((row + 0.5) * canvas.height) / labels.length, box.height];
  });
})()"""
# Colour in the middle of the strongest cell of a map of one row and two columns, whose second has
# it all.
STRONGEST = """(() => {
  const canvas = document.createElement("canvas");
  document.body.append(canvas);
  const map = { targets: [{}], sources: [{ onset: null }, { onset: null }], top: 100, values: [0, 65534] };
  drawMap(canvas, map, 0, { rows: [], seconds: 1 });
  const pen = canvas.getContext("2d");
  return [0.25, 0.75].map((part) => [...pen.getImageData(part * canvas.width, canvas.height / 2, 1, 1).data].slice(0, 3));
})()"""


def token_map(
    letters: int = 120, *, stack: str = "decoder", strength: np.ndarray | None = None
) -> MixingMap:
    """A map of tokens of one letter, six to a word, in three layers."""
    rng = np.random.default_rng(3)
    tokens = tuple(Span(i, i + 1, "abcdef"[i % 6], "token", i // 6) for i in range(letters))
    words = [["abcdef", float(i), i + 1.0] for i in range(letters // 6)]
    scores = np.tril(rng.gamma(0.7, 1.0, (3, letters, letters)))
    provenance = {
        "model": "m",
        "words": words,
        "deciding_position": 9,
        "cue": 0,
        "target": 1,
        "text": "abcdef",
    }
    return MixingMap(
        scores, tokens, tokens, "value_zeroing", stack, (0, 1, 2), provenance, strength
    )


def page_of(mixing_map: MixingMap, tmp_path, **more):
    maps = {("m", "trained", None): {(mixing_map.measure, mixing_map.stack): mixing_map}}
    card = clip_card(
        "a",
        None,
        maps,
        heading="a",
        summary="",
        start={"layer": None},
        seconds=20.0,
        max_bytes=10**6,
        **more,
    )
    path = tmp_path / "page.html"
    path.write_text(render_page("a", [], first=FirstScreen(clip=card)), encoding="utf-8")
    return path


def shares(drawn: dict) -> np.ndarray:
    numbers = np.frombuffer(base64.b64decode(drawn["cells"]), "<u2") / 65_534
    return numbers.reshape(len(drawn["layers"]), len(drawn["targets"]), len(drawn["sources"]))


def test_tokens_are_pooled_to_words_and_can_be_had():
    mixing_map = token_map(18)
    words, tokens = encode_maps(
        {("m", "trained", None): {("value_zeroing", "decoder"): mixing_map}}, 20.0, None, 10**6
    )
    assert (words["units"], tokens["units"]) == ("word", "token")
    assert [unit["label"] for unit in words["sources"]] == ["abcdef"] * 3
    assert (words["deciding"], tokens["deciding"]) == (None, 9)
    rows = mixing_map.scores / mixing_map.scores.sum(axis=-1, keepdims=True)
    expected = rows.reshape(3, 3, 6, 3, 6).sum(axis=-1).mean(axis=2)
    np.testing.assert_allclose(shares(words), expected, atol=1e-4)


def test_bytes_of_a_letter_are_one_row_and_column():
    labels, words = ["c", "r", "é", "é", "é", "é", "e"], [["créée", 0.0, 1.0]]
    tokens = tuple(Span(i, i + 1, label, "token", 0) for i, label in enumerate(labels))
    told = {"model": "m", "words": words, "deciding_position": 3}
    mixing_map = MixingMap(np.ones((1, 7, 7)), tokens, tokens, "attention", "decoder", (0,), told)
    *_, drawn = encode_maps(
        {("m", "trained", None): {("attention", "decoder"): mixing_map}}, 1.0, None, 10**6
    )
    assert [unit["label"] for unit in drawn["targets"]] == ["c", "r", "é", "é", "e"]
    assert drawn["deciding"] == 2  # the letter that has the deciding byte
    np.testing.assert_allclose(shares(drawn)[0, 0], np.array([1, 1, 2, 2, 1]) / 7, atol=1e-4)


def test_the_first_layer_is_one_that_moves_its_targets_unevenly():
    strength = np.array([[0.5], [0.4], [0.001]]) * np.ones((3, 12))
    mixing_map = token_map(12, strength=strength)
    mixing_map.scores[0] = 1  # moves most, but evenly
    for drawn in encode_maps(
        {("m", "trained", None): {("value_zeroing", "decoder"): mixing_map}}, 20.0, None, 10**6
    ):
        assert drawn["opens"] == 1
    (bare, _) = encode_maps(
        {("m", "trained", None): {("v", "decoder"): token_map(12)}}, 20.0, None, 10**6
    )
    assert bare["opens"] is None


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


@needs_browser
@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.long), 420])
def test_labels_stay_beside_their_rows_in_a_map_of_120_tokens(browser, tmp_path, width):
    with browser.seen(width, 900):
        browser.open(page_of(token_map(), tmp_path))
        assert (
            browser.evaluate("document.querySelectorAll('#first .targets button').length") == 20
        )  # words
        browser.evaluate(
            "{ const s = document.querySelector('.units'); s.value = 'token'; s.dispatchEvent(new "
            "Event('change')); }"
        )
        rows = np.array(browser.evaluate(ROWS))
        assert len(rows) == 120
        np.testing.assert_allclose(rows[:, 0], rows[:, 1], atol=0.6)
        assert rows[:, 2].min() >= 12  # each has room for its label
        assert (
            browser.evaluate("document.querySelectorAll('#first .targets button')[9].textContent")
            == "d"
        )
        assert browser.messages == []


@needs_browser
def test_the_strongest_cell_stands_out_on_a_dark_screen(browser, tmp_path):
    for dark in (False, True):
        with browser.seen(dark=dark):
            browser.open(page_of(token_map(12), tmp_path))
            zero, strongest = (sum(color) for color in browser.evaluate(STRONGEST))
            assert (strongest > 500 and zero < 100) if dark else (strongest < 100 and zero > 500)


def test_numbers_of_english_are_no_differences():
    said, written = "set a timer for 5 minutes", "We'll set a timer for five minutes."
    marked = [text for text, differs in mark_differences(said, written, "en")[1] if differs]
    assert marked == ["We'll"]
    assert not any(differs for _, differs in mark_differences(said, written, "en")[0])
    assert ("five", True) in mark_differences(said, written)[1]


@needs_browser
def test_what_was_said_and_written_comes_first_and_differences_are_marked(browser, tmp_path):
    written = [
        ModelTranscript("good", *mark_differences("Les livres, là.", "les livres là")),
        ModelTranscript("bad", *mark_differences("Les livres, là.", "<b>le</b> livre là")),
    ]
    assert [one.has_differences for one in written] == [False, True]
    with browser.seen():
        browser.open(page_of(token_map(12), tmp_path, transcripts=written))
        top = browser.evaluate("document.querySelector('#first .top-texts').innerText")
        assert "good writes" in top
        assert "<b>le</b> livre" in top
        first = "document.querySelector('#first .clip h3').nextElementSibling"
        assert browser.evaluate(f"{first}.className") == "texts"
        marked = browser.evaluate(
            f"[...{first}.querySelectorAll('mark')].map((one) => one.textContent)"
        )
        assert marked == ["Les livres,", "<b>le</b> livre"]

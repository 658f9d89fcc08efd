"""Coloured tokens: which row, which numbers, and a view that a browser shows, obeys and lets
everybody read."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from speechmix.errors import InputError
from speechmix.inputs.words.spans import Span
from speechmix.mixing.maps.composition import compose
from speechmix.mixing.maps.map_set import Maps
from speechmix.mixing.maps.mixing_map import MixingMap
from speechmix.reporting.plots.token_colours import coloured_tokens
from tests.reports.chromium import EXECUTABLE, Browser

EVIL = "<img src=x onerror=alert(1)>"
WORDS = tuple(
    Span(i, i + 1, label, "word", i) for i, label in enumerate(["the", "red", "cats", EVIL])
)
WRITTEN = tuple(
    Span(i, i + 1, label, "special" if word is None else "token", word)
    for i, (label, word) in enumerate(
        [("les", 0), ("chats", 2), ("rouges", 1), ("rouges", 1), ("</s>", None)]
    )
)


def synthetic(**told) -> MixingMap:
    """SYNTHETIC: the second layer's rows are 10, 20, 30 and 40 % turned round row by row."""
    rows = [np.roll([0.1, 0.2, 0.3, 0.4], shift) for shift in range(5)]
    scores = np.stack([np.ones((5, 4)), 7 * np.array(rows)])
    return MixingMap(
        scores,
        WRITTEN,
        WORDS,
        "value_zeroing",
        "cross",
        (0, 3),
        {"model": "toy", "init": "trained", **told},
    )


class TestRows:
    @pytest.mark.parametrize(
        ("row", "told", "expected"),
        [
            (None, {}, 3),
            (None, {"target": 2}, 1),
            (None, {"target": None}, 3),
            (0, {}, 0),
            (None, {"target": 2, "masked": True}, 0),
            ("chats", {}, 1),
            ("</s>", {}, 4),
        ],
    )
    def test_the_row_that_is_shown_first(self, row, told, expected):
        mixing_map = synthetic(**told)
        if told.get("masked"):
            units = (Span(0, 1, "[MASK]", "word", 0), *WRITTEN[1:])
            mixing_map = dataclasses.replace(mixing_map, targets=units)
        assert coloured_tokens(mixing_map, row=row).row == expected

    @pytest.mark.parametrize("row", [5, -1, "chat", "rouges"])
    def test_a_row_that_is_none_or_several(self, row):
        with pytest.raises(
            InputError, match=r"one of the rows: 0 'les', 1 'chats', 2 'rouges', 3 'rouges'"
        ):
            coloured_tokens(synthetic(), row=row)

    def test_a_layer_that_is_not_there(self):
        with pytest.raises(InputError, match="no layer 1"):
            coloured_tokens(synthetic(), layer=1)

    def test_a_map_that_is_too_large(self):
        frames = tuple(Span(i, i + 1) for i in range(300))
        large = MixingMap(np.ones((1, 300, 300)), frames, frames, "attention", "encoder", (0,))
        with pytest.raises(InputError, match=r"pool it"):
            coloured_tokens(large)


class TestText:
    def test_bars_and_numbers(self):
        text = str(coloured_tokens(synthetic(cue=[1, 2]), row="chats"))
        lines = text.splitlines()
        assert lines[0] == "value zeroing, cross, layer 3 · toy"
        assert lines[1] == "row 1, 'chats', gets contributions from"
        assert [line.count("█") for line in lines[2:]] == [24, 6, 12, 18]
        assert re.findall(r"(\d+\.\d) %", text) == ["40.0", "10.0", "20.0", "30.0"]
        assert [("(cue)" in line) for line in lines[2:]] == [False, True, True, False]

    def test_who_wrote_the_text_is_said(self):
        told = {
            "decoder_text": "les chats rouges",
            "decoder_text_by": "translation of the model (toy, greedy)",
        }
        assert "translation of the model (toy, greedy): les chats rouges" in str(
            coloured_tokens(synthetic(**told))
        )

    def test_a_row_of_nothing(self):
        nothing = MixingMap(np.zeros((1, 5, 4)), WRITTEN, WORDS, "value_zeroing", "cross", (0,))
        assert str(coloured_tokens(nothing)).count("0.0 %") == 4

    def test_negative_shares_have_another_colour(self):
        signed = MixingMap(
            np.array([[[3.0, -1.0]]]), WRITTEN[:1], WORDS[:2], "gradient_input", "cross", (0,)
        )
        page = coloured_tokens(signed)._repr_html_()
        assert page.count("background:#0072b2") == page.count("background:#d55e00") == 1

    def test_what_was_written_before_stands_apart(self):
        rng, tokens = np.random.default_rng(0), WRITTEN[:4]
        encoder = MixingMap(rng.random((1, 4, 4)), WORDS, WORDS, "value_zeroing", "encoder", (0,))
        cross = MixingMap(rng.random((1, 4, 4)), tokens, WORDS, "value_zeroing", "cross", (0,))
        decoder = MixingMap(
            np.tril(rng.random((1, 4, 4))), tokens, tokens, "value_zeroing", "decoder", (0,)
        )
        text = str(coloured_tokens(compose(encoder=encoder, cross=cross, decoder=decoder)))
        assert text.splitlines()[2:7][-1].strip() == "text before it:"
        assert "text before" not in str(
            coloured_tokens(compose(encoder=encoder, cross=cross, decoder=decoder, prefix=False))
        )


def measures_of_a_text() -> Maps:
    """SYNTHETIC: two measures of a text with a mask, and one of its prediction alone."""
    units = tuple(
        Span(i, i + 1, label, "special" if label == "[CLS]" else "word", i)
        for i, label in enumerate(["[CLS]", "keys", "[MASK]", "old"])
    )
    scores = np.random.default_rng(0).random((2, 4, 4))
    prediction = (Span(2, 3, "are", "token", None),)
    return Maps(
        {
            ("gradient_input", "encoder"): MixingMap(
                scores[:, :1], prediction, units, "gradient_input", "encoder", (0, 1)
            ),
            ("value_zeroing", "encoder"): MixingMap(
                scores, units, units, "value_zeroing", "encoder", (0, 1)
            ),
            ("attention", "encoder"): MixingMap(
                scores[::-1], units, units, "attention", "encoder", (0, 1)
            ),
        }
    )


class TestAllMeasures:
    def test_they_are_below_each_other_and_begin_with_the_mask(self):
        view = measures_of_a_text().tokens()
        headings = [line.heading for line in view.lines]
        assert headings == ["value zeroing", "attention", "gradient input (of the output 'are')"]
        assert (view.row, view.layer, view.layers) == (2, 1, (0, 1))
        table = str(view).splitlines()
        assert [row.split()[0] for row in table[3:]] == ["[CLS]", "keys", "[MASK]", "old"]
        page = view._repr_html_()
        for heading in ("value zeroing", "attention"):  # two layers of four rows
            assert page.count(f'<b class="own">{heading}</b>') == 8

    def test_rolled_out(self):
        maps = measures_of_a_text()
        view = maps.tokens(rolled_out=True)
        assert "2 measures, encoder, rolled out" in view.caption
        expected = maps["value_zeroing", "encoder"].rollout().normalized().scores
        np.testing.assert_allclose(view.lines[0].shares, 100 * expected)

    def test_a_figure_has_every_token_and_number_once_for_each_measure(self):
        view = measures_of_a_text().tokens(layer=0)
        figure = view.plot()
        texts = [text.get_text() for text in figure.axes[0].texts]
        assert texts.count("[MASK]") == 3
        numbers = [f"{share:.0f}" for line in view.lines for share in line.row(0, 2)]
        assert sorted(text for text in texts if text.isdigit()) == sorted(numbers)

    def test_stacks_that_are_not_there(self):
        with pytest.raises(InputError, match="no maps of stack 'decoder'"):
            measures_of_a_text().tokens(stack="decoder")


def test_nothing_is_fetched_and_nothing_runs(tmp_path):
    page = (
        coloured_tokens(synthetic(clip=EVIL)).save(tmp_path / "a.html").read_text(encoding="utf-8")
    )
    assert "<img" not in page
    assert "<script" not in page
    assert "default-src 'none'" in page
    assert not re.findall(r"(?:src|href)=", page.replace("src=x onerror", ""))
    assert page == coloured_tokens(synthetic(clip=EVIL)).save(tmp_path / "b.html").read_text(
        encoding="utf-8"
    )


@pytest.mark.skipif(EXECUTABLE is None, reason="no Chromium is installed")
class TestInABrowser:
    @pytest.fixture(scope="class")
    def page(self, tmp_path_factory):
        return coloured_tokens(synthetic(cue=1, target=2)).save(
            tmp_path_factory.mktemp("tokens") / "a.html"
        )

    @pytest.fixture(scope="class", params=[False, True], ids=["light", "dark"])
    def browser(self, request, page):
        with Browser(dark=request.param) as browser:
            browser.open(page)
            yield browser

    def shown(self, browser) -> list[list[str]]:
        script = (
            "[...document.querySelectorAll('.row')].filter((r) => getComputedStyle(r).display "
            "!== 'none')"
        )
        return browser.evaluate(
            script
            + ".map((r) => [...r.querySelectorAll('small')].filter((s) => s.checkVisibility())"
            ".map((s) => s.textContent))"
        )

    def test_one_row_at_a_time_by_mouse_and_by_keyboard(self, browser):
        browser.click(".rows label:nth-of-type(2)")
        assert self.shown(browser) == [["40", "10", "20", "30"]]
        browser.press("ArrowRight")
        assert self.shown(browser) == [["30", "40", "10", "20"]]
        assert browser.messages == []

    def test_the_layer_is_chosen_too(self, browser):
        browser.click(".rows label:nth-of-type(2)")
        browser.click(".layers label:nth-of-type(1)")
        assert self.shown(browser) == [["25", "25", "25", "25"]]
        browser.press("ArrowRight")
        assert self.shown(browser) == [["40", "10", "20", "30"]]

    @pytest.mark.parametrize("width", [1280, 320])
    def test_nothing_is_wider_than_the_page(self, browser, width):
        browser.resize(width, 700)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width

    def test_every_token_can_be_read(self, browser):
        """Contrast of letters and ground as WCAG has it, at least 4.5, for what is coloured most
        too."""
        contrasts = browser.evaluate(
            """(() => {
            const parts = (text) => text.match(/[0-9.]+/g).map(Number);
            const light = (rgb) => rgb.map((c) => c / 255).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
                .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
            const dark = matchMedia('(prefers-color-scheme: dark)').matches, ground = dark ? [18, 18, 18] : [255, 255, 255];
            return [...document.querySelectorAll('.t')].map((token) => {
                const [r, g, b, a = 1] = parts(getComputedStyle(token).backgroundColor);
                const back = light([r, g, b].map((c, i) => a * c + (1 - a) * ground[i]));
                const letters = light(parts(getComputedStyle(token).color).slice(0, 3));
                return (Math.max(back, letters) + 0.05) / (Math.min(back, letters) + 0.05); }); })()"""
        )
        assert len(contrasts) == 40
        assert min(contrasts) > 4.5

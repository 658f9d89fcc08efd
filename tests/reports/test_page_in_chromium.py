"""The page in a real browser: it renders, sorts, plays, moves, and is silent on the console,
whatever is in the run."""

from __future__ import annotations

import re

import numpy as np
import pytest

from speechmix.reporting.pages.run_page import report
from tests.reports.chromium import EXECUTABLE, Browser
from tests.reports.synthetic_runs import synthetic_run

pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason="no Chromium is installed")
EVIL = "<script>alert(1)</script> <img src=x onerror=alert(2)>"
# Colour of the corner of the first screen's figure, as it is drawn.
PAPER = """(async () => {
  const image = document.querySelector("#first figure img"), canvas = document.createElement("canvas");
  await image.decode();
  canvas.width = canvas.height = 40;
  const pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0);
  return [...pen.getImageData(2, 2, 1, 1).data].slice(0, 3);
})()"""
# How many outlines a map's canvas gets around the cells of three rows and two columns.
OUTLINES = """(() => {
  let count = 0;
  const brush = CanvasRenderingContext2D.prototype, stroke = brush.strokeRect;
  brush.strokeRect = function (...box) { count += this.strokeStyle === "#0b8457"; stroke.apply(this, box); };
  const map = { targets: Array(6).fill({}), sources: Array(5).fill({ onset: null }), top: 1, values: Array(30).fill(0) };
  const outlined = { rows: [2, 3, 4], columns: [1, 2] };
  drawMap(document.createElement("canvas"), map, 0, { rows: [], seconds: 1, outlined });
  brush.strokeRect = stroke;
  return count;
})()"""
# All of the page's text, of sections that are not drawn yet too.
TEXT = """(() => {
  for (const section of document.querySelectorAll("section")) section.style.contentVisibility = "visible";
  return document.body.innerText;
})()"""
BOX = """(() => {{
  const {{ left, top, right, bottom }} = document.querySelector("{}").getBoundingClientRect();
  return [left, top, right, bottom];
}})()"""
NOTE = ["SYNTHETIC: numbers alone, no model was run."]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return report(
        synthetic_run(
            tmp_path_factory.mktemp("page") / "run",
            measures=("value_zeroing",),
            stacks=("encoder", "cross"),
        ),
        notes=NOTE,
    )


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


def test_it_renders_with_a_title_pictures_and_cards_and_says_nothing_on_the_console(browser, page):
    browser.messages.clear()
    browser.open(page)
    assert browser.evaluate("document.title") == "Context mixing in synthetic: 6 clips"
    assert browser.evaluate(
        "[...document.images].every((one) => one.complete && one.naturalWidth > 50)"
    )
    assert browser.evaluate("document.querySelectorAll('.clip').length") == 3
    assert browser.evaluate("document.querySelector('#first .clip .row').textContent")
    assert browser.messages == []


def test_the_first_screen_has_the_answer_its_figure_and_a_clip_to_hear(browser, page):
    with browser.seen(1280, 800):
        browser.open(page)
        boxes = [
            browser.evaluate(BOX.format(name))
            for name in (
                "#first .answer li",
                "#first figure img",
                "#first audio",
                "#first .time img",
                "#first .map canvas",
            )
        ]
        for left, top, right, bottom in boxes:
            assert 0 <= top < bottom <= 800
            assert 0 <= left < right <= 1280
        contents = browser.evaluate(BOX.format("nav"))
        assert contents[2] <= min(left for left, *_ in boxes)  # a narrow list at their side
        assert contents[2] < 200
        headings = browser.evaluate(
            "[...document.querySelectorAll('h2')].map((one) => one.textContent)"
        )
        assert headings[:2] == ["Words used here", "Clips to listen to"]
        assert headings[-1] == "Models, options and versions"


def test_a_clip_is_drawn_when_it_is_opened(browser, page):
    browser.open(page)
    closed = "document.querySelectorAll('details.clip')[0]"
    assert browser.evaluate(f"{closed}.querySelectorAll('*').length") < 8
    assert browser.evaluate("document.querySelectorAll('audio').length") == 1
    browser.click("details.clip summary")
    browser.until(f"{closed}.querySelector('.row')?.textContent")
    assert browser.evaluate(f"{closed}.querySelector('audio') !== null")
    assert browser.evaluate(f"{closed}.querySelector('.map canvas').width") > 100
    assert browser.evaluate("document.querySelectorAll('audio').length") == 2
    browser.click("details.clip summary")  # and closed and opened once more, it is as it was
    browser.click("details.clip summary")
    assert browser.evaluate(f"{closed}.querySelectorAll('audio').length") == 1
    assert browser.messages == []


def test_a_link_in_the_table_opens_its_clip(browser, page):
    browser.open(page)
    browser.evaluate(
        "document.querySelector('a[href=\"#' + document.querySelectorAll('details.clip')[1].id + "
        "'\"]').click()"
    )
    browser.until("document.querySelectorAll('details.clip')[1].querySelector('.row')?.textContent")
    assert not browser.evaluate("document.querySelectorAll('details.clip')[0].open")


def test_the_player_shows_tenths_of_a_second(browser, page):
    browser.open(page)
    browser.until("document.querySelector('audio').readyState >= 3")
    clock = "document.querySelector('.clock').textContent"
    assert browser.evaluate(clock) == "0.0 s of 1.0 s"
    browser.evaluate("document.querySelector('audio').currentTime = 0.43")
    browser.until(f"{clock} === '0.4 s of 1.0 s'")
    assert browser.evaluate("[9.96, 59.96, 60, 75.04].map(clocked)") == [
        "10.0 s",
        "60.0 s",
        "1:00.0",
        "1:15.0",
    ]


def test_what_the_cue_gives_is_outlined_once(browser, page):
    browser.open(page)
    assert browser.evaluate("runsOf([2, 3, 4, 7])") == [[2, 4], [7, 7]]
    assert browser.evaluate(OUTLINES) == 1


def test_nothing_is_fetched_from_anywhere(page):
    html = page.read_text(encoding="utf-8")
    assert not re.findall(r"(?:src|href)=\"(?!data:|#)", html)
    assert "http://" not in html
    assert "https://" not in html
    assert "default-src 'none'" in html


def test_a_column_sorts_up_and_down_by_mouse_and_by_keyboard(browser, page):
    browser.open(page)
    column = (
        "[...document.querySelectorAll('.sortable tbody tr')].map((row) => "
        "row.cells[{}].textContent)"
    )
    names = browser.evaluate(
        "[...document.querySelectorAll('.sortable th')].map((one) => one.textContent.trim())"
    )
    place = names.index("difference")
    head = f".sortable th:nth-child({place + 1})"
    browser.click(f"{head} button")
    up = [float(cell) for cell in browser.evaluate(column.format(place))]
    assert up == sorted(up)
    assert (
        browser.evaluate(f"document.querySelector('{head}').getAttribute('aria-sort')")
        == "ascending"
    )
    browser.evaluate(f"document.querySelector('{head} button').focus()")
    browser.press("Enter")
    down = [float(cell) for cell in browser.evaluate(column.format(place))]
    assert down == sorted(up, reverse=True)


def test_the_player_moves_a_line_over_sound_and_map(browser, page):
    browser.open(page)
    browser.until("document.querySelector('audio').readyState >= 3")
    assert browser.evaluate("document.querySelector('audio').duration") == pytest.approx(
        1.0, abs=0.02
    )
    assert browser.evaluate("document.querySelector('.line').hidden")
    browser.evaluate("document.querySelector('audio').play()")
    place = "parseFloat(document.querySelector('.line').style.left)"
    browser.until(f"{place} > 10")
    first = browser.evaluate(place)
    browser.until(f"{place} > {first + 10}")
    browser.evaluate(
        "{ const a = document.querySelector('audio'); a.pause(); a.currentTime = 0.5; }"
    )
    browser.until(f"Math.abs({place} - 50) < 1")
    box = (
        "(() => {{ const r = document.querySelector('{}').getBoundingClientRect(); "
        "return [r.left, r.width, r.top, r.bottom]; }})()"
    )
    line, sound, cells = (
        browser.evaluate(box.format(name)) for name in (".line", ".time img", ".map canvas")
    )
    assert line[0] + line[1] / 2 == pytest.approx(
        sound[0] + sound[1] / 2, abs=2
    )  # half a second of one
    assert line[2] <= sound[2]
    assert line[3] >= cells[3]
    assert browser.evaluate("document.querySelector('.words .now').textContent") == "perdu"


def test_a_word_is_heard_and_its_row_is_shown(browser, page):
    browser.open(page)
    browser.until("document.querySelector('audio').readyState >= 3")
    # A word is soon over: that it is heard is noted when it begins.
    browser.evaluate(
        "document.querySelector('audio').addEventListener('play', () => { window.heard = true })"
    )
    browser.click('.words button[data-word="2"]')
    browser.until("window.heard === true")
    assert browser.evaluate("document.querySelector('.row').textContent").startswith(
        "Contributions to perdu in layer"
    )
    assert (
        browser.evaluate(
            "document.querySelectorAll('.targets')[0].children[2].getAttribute('aria-pressed')"
        )
        == "true"
    )
    browser.until("document.querySelector('audio').paused")  # it stops behind the word
    assert browser.evaluate("document.querySelector('audio').currentTime") == pytest.approx(
        0.58, abs=0.2
    )


def test_shares_of_a_row_sum_to_a_hundred_and_layer_and_stack_can_be_chosen(browser, page):
    browser.open(page)
    row = "document.querySelector('.row').textContent"
    shares = [float(one) for one in re.findall(r"([\d.]+) %", browser.evaluate(row))]
    assert sum(shares) == pytest.approx(100, abs=0.3)
    before = browser.evaluate(row)
    browser.evaluate("document.querySelector('.layer').focus()")
    browser.press("ArrowRight")
    assert "layer 3" in browser.evaluate(row)
    browser.evaluate(
        "{ const s = document.querySelector('.stack'); s.value = 'cross'; s.dispatchEvent(new "
        "Event('change')); }"
    )
    assert "(cross, value zeroing)" in browser.evaluate(row)
    assert browser.evaluate(row) != before


@pytest.mark.long
def test_a_hostile_transcript_is_text(tmp_path, browser):
    page = report(synthetic_run(tmp_path / "run", clips=2, text=EVIL), title=EVIL, notes=[EVIL])
    browser.messages.clear()
    browser.open(page)
    assert browser.evaluate("document.querySelector('.said').textContent") == EVIL
    assert browser.evaluate("document.title") == EVIL
    assert browser.evaluate("document.querySelectorAll('img[onerror]').length") == 0
    assert browser.messages == []
    assert "<script>alert" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(
            {"clips": 1, "mapped": 1, "layers": 2, "measures": ("value_zeroing",)}, id="one clip"
        ),
        pytest.param({"cue": False}, id="no cue", marks=pytest.mark.long),
        pytest.param({"layers": 1}, id="one layer", marks=pytest.mark.long),
        pytest.param({"value": np.nan}, id="NaN", marks=pytest.mark.long),
        pytest.param({"sound": False}, id="no sound", marks=pytest.mark.long),
        pytest.param({"mapped": 0}, id="no maps", marks=pytest.mark.long),
    ],
)
@pytest.mark.usefixtures("undrawn")  # odd figures: tests/plots/test_figures.py
def test_odd_runs_have_a_sensible_page(tmp_path, browser, odd):
    page = report(synthetic_run(tmp_path / "run", **odd), notes=NOTE)
    browser.messages.clear()
    browser.open(page)
    text = browser.evaluate(TEXT)
    assert "Models, options and versions" in text
    assert "no such file" in text
    assert not re.search(r"\b(nan|NaN|None|undefined)\b", text)
    assert browser.messages == []
    said = {
        "clips": "Nothing is concluded from 1 independent group of clips",
        "cue": "no cue contribution",
        "value": "no value",
        "sound": "not found",
    }
    for name, words in said.items():
        if name in odd:
            assert words in text


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (420, True)])
def test_it_fits_the_width_and_follows_the_colour_scheme(browser, page, tmp_path, width, dark):
    with browser.seen(width, 800, dark=dark):
        browser.open(page)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        shown = browser.evaluate("document.querySelector('#first figure img').currentSrc")
        assert (
            shown == browser.evaluate("document.querySelector('#first figure source').srcset")
        ) == (width < 640)
        assert min(browser.evaluate(PAPER)) > 250 or dark
        assert max(browser.evaluate(PAPER)) < 50 or not dark
        background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") != dark
        browser.screenshot(tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 10_000
        assert browser.messages == []


@pytest.mark.long
def test_on_paper_controls_are_gone_and_the_colours_are_light(page):
    with Browser(dark=True) as browser:
        browser.open(page)
        browser.send("Emulation.setEmulatedMedia", media="print")
        assert (
            browser.evaluate("getComputedStyle(document.querySelector('.controls')).display")
            == "none"
        )
        assert (
            browser.evaluate("getComputedStyle(document.querySelector('.map canvas')).display")
            == "block"
        )
        assert (
            browser.evaluate("getComputedStyle(document.body).backgroundColor")
            == "rgb(255, 255, 255)"
        )

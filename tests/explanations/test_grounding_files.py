"""Files of a grounding, read back by readers that share no code with the writers."""

from __future__ import annotations

import html
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from math import nan

import numpy as np
import pandas as pd
import pytest

from speechmix import Clip
from speechmix.errors import InputError
from speechmix.extensions.grounding.calibration import WordCalibration
from speechmix.extensions.grounding.grounded_words import GroundedWord
from speechmix.extensions.grounding.grounding import Grounding
from speechmix.extensions.grounding.loops import Loop
from speechmix.files.json_files import write_checked_json
from speechmix.files.text_files import write_table
from speechmix.inputs.formats.textgrid import read_textgrid
from tests.reports.chromium import EXECUTABLE, Browser

QUALITY = {
    "clips": 9,
    "groups": 9,
    "held_out": "clips",
    "words": 20,
    "wrong": 10,
    "auroc": 0.9,
    "auroc_low": 0.8,
    "auroc_high": 1.0,
    "calibration_error": 0.1,
    "bins": [[0.5, 0.4, 20]],
}
ENDINGS = (".html", ".csv", ".json", ".parquet", ".TextGrid", ".eaf", ".vtt", ".srt", ".txt")
HOSTILE = '</script><img src=x onerror="alert(1)">-->&'


def word(text: str, start: float, end: float, **changes: object) -> GroundedWord:
    values = {
        "probability": 0.9,
        "lowest_probability": 0.8,
        "runner_up": "x",
        "runner_up_probability": 0.05,
        "silence": 2.0,
        "noise": 1.5,
        "padding": 0.0,
        "prompt": nan,
        "phrase_sound": 3.0,
        "token_count": 2,
        "window": 0,
        "right": 0.9,
    }
    return GroundedWord(text, start, end, **{**values, **changes})


@pytest.fixture
def grounding() -> Grounding:
    words = (
        word("les", 0.1, 0.4),
        word("livres", 0.4, 0.4),  # no length
        word("merci", 0.35, 0.9, phrase_sound=0.1),  # overlaps
        word(HOSTILE, 3.0, 3.5, phrase_sound=0.6, window=1, loop=0),
    )
    clip = Clip.from_array(np.zeros(64_000), 16_000, name="talk")
    return Grounding("talk", 4.0, "tiny", words, (Loop(3, 4, 1, 3),), "12 words", clip)


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_is_written_and_an_empty_one_too(grounding, tmp_path, ending):
    assert grounding.save(tmp_path / f"a{ending}").stat().st_size > 0
    written = replace(grounding, words=(), loops=()).save(tmp_path / f"b{ending}").read_bytes()
    assert (b"<sil>" in written.replace(b"&lt;", b"<").replace(b"&gt;", b">")) == (
        ending in (".TextGrid", ".eaf")
    )


def test_tables_and_json_round_trip(grounding, tmp_path):
    for ending, read in ((".csv", pd.read_csv), (".parquet", pd.read_parquet)):
        table = read(grounding.save(tmp_path / f"a{ending}"))
        assert table["text"].tolist() == [item.text for item in grounding.words]
        assert table["sound"].tolist() == [1.5] * 4
        assert np.isnan(table["prompt"]).all()
    formula = replace(grounding, words=(word("=1+1", 0.0, 1.0),), loops=())
    assert "'=1+1," in formula.save(tmp_path / "b.csv").read_text()
    stored = json.loads(grounding.save(tmp_path / "a.json").read_text())
    again = Grounding.from_json(stored)
    assert str(again) == str(grounding)
    pd.testing.assert_frame_equal(again.to_dataframe(), grounding.to_dataframe())
    with pytest.raises(InputError, match="speechmix grounding"):
        Grounding.from_json({"format": "other"})


def test_tiers_do_not_overlap(grounding, tmp_path):
    text = grounding.save(tmp_path / "a.TextGrid").read_text()
    names = re.findall(r'name = "(.*?)"', text)
    assert names == ["words", "effect of the sound", "doubtful", "reason", "loop"]
    first = text[text.index("item [1]") : text.index("item [2]")]
    edges = [float(value) for value in re.findall(r"x(?:min|max) = ([\d.]+)", first)][2:]
    assert edges == sorted(edges)
    read = read_textgrid(tmp_path / "a.TextGrid", tier="words")
    assert [item.text for item in read] == [item.text for item in grounding.words]
    assert [item.start for item in read] == pytest.approx([0.1, 0.4, 0.401, 3.0])
    assert [item.end for item in read] == pytest.approx([0.4, 0.401, 0.9, 3.5])
    assert [
        item.text for item in read_textgrid(tmp_path / "a.TextGrid", tier="effect of the sound")
    ] == [
        "1.50",
        "1.50",
        "1.50",
        "1.50",
    ]
    tree = ET.parse(grounding.save(tmp_path / "a.eaf"))
    slots = {
        slot.get("TIME_SLOT_ID"): int(slot.get("TIME_VALUE")) for slot in tree.iter("TIME_SLOT")
    }
    first_tier = next(tree.iter("TIER")).iter("ALIGNABLE_ANNOTATION")
    assert [slots[node.get("TIME_SLOT_REF1")] for node in first_tier] == [100, 400, 401, 3000]
    values = [node.text for node in tree.iter("ANNOTATION_VALUE")]
    assert HOSTILE in values
    assert values.count("doubtful") == 2


@pytest.mark.parametrize(
    "times",
    [
        [(0.0, 4.0), (4.0, 4.0)],  # at the end, without a length
        [(3.0, 9.0), (9.0, 9.5), (9.0, 9.0)],  # past the end
        [(2.0, 3.0), (1.0, 1.5)],  # not in order
        [(1.0, 1.0)] * 3,
        [(0.0, 2.0), (0.0, 2.0)],
    ],
)
def test_odd_times_become_intervals(grounding, tmp_path, times):
    words = tuple(word(f"w{index}", *edges) for index, edges in enumerate(times))
    odd = replace(grounding, words=words, loops=())
    for ending in (".eaf", ".vtt"):
        odd.save(tmp_path / f"a{ending}")
    read = read_textgrid(odd.save(tmp_path / "a.TextGrid"), tier="words")
    assert [item.text for item in read] == [item.text for item in words]
    assert all(item.end > item.start for item in read)
    assert read[-1].end <= 4.0


def test_subtitles_mark_doubtful_words(grounding, tmp_path):
    text = grounding.save(tmp_path / "a.vtt").read_text()
    cues = re.findall(r"(\d\d:\d\d:\d\d\.\d{3}) --> (\d\d:\d\d:\d\d\.\d{3})\n(.*)\n", text)
    assert [start for start, _, _ in cues] == ["00:00:00.100", "00:00:03.000"]
    assert cues[0][2] == "les livres <c.doubtful>merci</c>"
    marked = re.fullmatch(r"<c\.doubtful>(.*)</c>", cues[1][2])
    assert html.unescape(marked[1]) == HOSTILE
    assert "-->" not in cues[1][2]


def test_threshold_decides_what_is_doubtful(grounding, tmp_path):
    assert grounding.transcript() == "les livres"
    assert grounding.transcript(threshold=0.5, mark=True).split()[:3] == [
        "les",
        "livres",
        "[merci?]",
    ]
    assert grounding.save(tmp_path / "a.txt", threshold=0.05).read_text().split()[2] == "merci"
    assert "2 not in the sound (threshold 1 nat); 1 repetition loop" in grounding.summary
    with pytest.raises(InputError, match="nats"):
        grounding.save(tmp_path / "b.txt", threshold=-1)
    assert not (tmp_path / "b.txt").exists()


def test_threshold_changes_marks(grounding, tmp_path):
    for threshold, count in ((4.0, 4), (1.0, 2), (0.5, 1), (0.0, 0)):
        subtitles = grounding.save(tmp_path / "a.vtt", threshold=threshold).read_text()
        assert subtitles.count("<c.doubtful>") == count
        tiers = ET.parse(grounding.save(tmp_path / "a.eaf", threshold=threshold))
        assert [node.text for node in tiers.iter("ANNOTATION_VALUE")].count("doubtful") == count
        page = grounding.save(tmp_path / "a.html", threshold=threshold).read_text()
        assert re.search("<pre>(.*?)</pre>", page, re.DOTALL)[1].count("?]") == count


def test_page_holds_hostile_text_as_data(grounding, tmp_path):
    page = grounding.save(tmp_path / "a.html").read_text()
    assert "<img" not in page
    data = re.search(r'<script type="application/json">(.*?)</script>', page)[1]
    assert json.loads(data)["words"][3]["text"] == HOSTILE
    assert "http" not in page.replace("http-equiv", "")
    long = replace(grounding, seconds=1000.0).save(tmp_path / "b.html").read_text()
    assert len(long) < len(page)  # no sound in it
    assert "longer than 3 minutes" in long
    assert grounding._repr_html_() in page


@pytest.mark.skipif(EXECUTABLE is None, reason="needs Chromium")
def test_page_in_a_browser(grounding, tmp_path):
    hostile = replace(grounding, name=HOSTILE)
    with Browser(420, 800) as browser:
        browser.open(hostile.save(tmp_path / "a.html"))
        read = browser.evaluate
        shown = "[...document.querySelectorAll('.gr-word')].map((word) => word.textContent)"
        assert read(shown) == [item.text for item in grounding.words]
        assert read("document.querySelectorAll('.gr-word.doubtful').length") == 2
        assert read("document.querySelectorAll('.gr-word.loop').length") == 1
        browser.click('[data-index="2"]')
        panel = "document.querySelector('.gr-panel').innerText"
        assert "effect of the sound: 0.1 nats" in read(panel)
        assert not re.search("prompt|on padding", read(panel))  # not known
        browser.until("document.querySelector('.gr-panel h2').textContent === 'merci'")
        browser.press("ArrowRight")
        assert read("document.querySelector('.gr-panel h2').textContent") == HOSTILE
        assert read("document.activeElement.dataset.index") == "3"
        browser.press("Home")
        assert read("document.querySelector('.gr-panel h2').textContent") == "les"
        read(
            "(() => { const slider = document.querySelector('input'); slider.value = 0.5; "
            "slider.dispatchEvent(new Event('input')); })()"
        )
        assert read("document.querySelector('textarea').value") == f"les livres {HOSTILE}"
        assert read("document.querySelectorAll('img').length") == 0
        assert read("document.documentElement.scrollWidth") == 420
        bare = replace(grounding, words=(word("les", nan, nan, right=nan),), loops=())
        for other in (replace(grounding, words=(), loops=()), replace(bare, clip=None)):
            browser.open(other.save(tmp_path / "b.html"))
            read("document.querySelector('.gr-word')?.click()")
            assert not read("document.querySelector('input')?.checkVisibility()") or other.words
        assert browser.messages == []


def test_unknown_endings_and_missing_times_are_errors(grounding, tmp_path):
    with pytest.raises(InputError, match="vtt"):
        grounding.save(tmp_path / "a.docx")
    timeless = replace(grounding, words=(word("les", nan, nan),), loops=())
    for ending in (".TextGrid", ".eaf", ".vtt"):
        with pytest.raises(InputError, match="does not tell when"):
            timeless.save(tmp_path / f"a{ending}")
    for ending in (".html", ".csv", ".json", ".txt"):
        timeless.save(tmp_path / f"a{ending}")


def test_parts_join_with_their_times(grounding):
    joined = Grounding.join([(0.0, grounding), (4.0, grounding)], "both")
    assert joined.seconds == 8.0
    assert len(joined.words) == 8
    assert joined.words[4].start == pytest.approx(4.1)
    assert [item.window for item in joined.words] == [0, 0, 0, 1, 2, 2, 2, 3]
    assert [loop.first for loop in joined.loops] == [3, 7]
    assert joined.words[7].loop == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"intercept": "1"},
        {"slope": True},
        {"model": None},
        {"extra": 1},
        {"quality": []},
        {"quality": {**QUALITY, "auroc": "high"}},
        {"quality": {**QUALITY, "bins": [[0.5, 0.5]]}},
        {"quality": {**QUALITY, "bins": [[0.5, "a", 3]]}},
        {"quality": {**QUALITY, "bins": 3}},
    ],
)
def test_a_calibration_of_wrong_types_or_lengths_is_refused(tmp_path, changes):
    """With a checksum that fits."""
    fitted = WordCalibration(0.5, 1.0, "abc", "20 words", QUALITY)
    fitted.save(tmp_path / "words.json")
    assert WordCalibration.from_file(tmp_path / "words.json") == fitted
    write_checked_json(tmp_path / "words.json", {**fitted.to_json(), **changes})
    with pytest.raises(InputError, match=r"words\.json is no calibration of words \("):
        WordCalibration.from_file(tmp_path / "words.json")


def test_a_damaged_parquet_file_is_found_by_readers_who_compare_checksums(grounding, tmp_path):
    table = pd.DataFrame({"score": np.random.default_rng(0).normal(size=500)})
    write_table(table, tmp_path / "why.parquet")
    for path in (tmp_path / "why.parquet", grounding.save(tmp_path / "a.parquet")):
        intact, written = pd.read_parquet(path), bytearray(path.read_bytes())
        damaged = 0
        pages = len(written) - 8 - int.from_bytes(written[-8:-4], "little")  # the rest is names
        for place in range(100, 8 * pages, 8 * pages // 60):
            written[place // 8] ^= 1 << place % 8
            path.write_bytes(written)
            written[place // 8] ^= 1 << place % 8
            try:
                read = pd.read_parquet(path, page_checksum_verification=True)
            except Exception:  # whatever pyarrow raises on damage
                damaged += 1
            else:
                pd.testing.assert_frame_equal(read, intact)
        assert damaged > 10

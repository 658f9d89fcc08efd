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
from speechmix.explanations.grounding.grounded_words import GroundedWord
from speechmix.explanations.grounding.grounding import Grounding
from speechmix.explanations.grounding.loops import Loop

ENDINGS = (".html", ".csv", ".json", ".parquet", ".TextGrid", ".eaf", ".vtt", ".txt")
HOSTILE = '</script><img src=x onerror="alert(1)">-->&'


def word(text: str, start: float, end: float, **changes: object) -> GroundedWord:
    values = {
        "probability": 0.9,
        "lowest_probability": 0.8,
        "runner_up": "x",
        "runner_up_probability": 0.05,
        "own_sound": 1.0,
        "other_sound": 0.5,
        "padding": 0.0,
        "earlier_text": 2.0,
        "prompt": nan,
        "own_attention": 0.5,
        "padding_attention": nan,
        "token_count": 2,
        "window": 0,
        "features": (0.1, nan),
        "made_up": 0.1,
        "right": 0.9,
    }
    return GroundedWord(text, start, end, **{**values, **changes})


@pytest.fixture
def grounding() -> Grounding:
    words = (
        word("les", 0.1, 0.4),
        word("livres", 0.4, 0.4),  # no length
        word("merci", 0.35, 0.9, made_up=0.95),  # overlaps
        word(HOSTILE, 3.0, 3.5, made_up=0.6, window=1, loop=0),
    )
    clip = Clip.from_array(np.zeros(64_000), 16_000, name="talk")
    return Grounding("talk", 4.0, "tiny", words, (Loop(3, 4, 1, 3),), "12 words", clip)


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_is_written_and_an_empty_one_too(grounding, tmp_path, ending):
    assert grounding.save(tmp_path / f"a{ending}").stat().st_size > 0
    empty = replace(grounding, words=(), loops=())
    if ending in (".TextGrid", ".eaf"):
        with pytest.raises(InputError, match="no word"):
            empty.save(tmp_path / f"b{ending}")
    else:
        empty.save(tmp_path / f"b{ending}")


def test_tables_and_json_round_trip(grounding, tmp_path):
    for ending, read in ((".csv", pd.read_csv), (".parquet", pd.read_parquet)):
        table = read(grounding.save(tmp_path / f"a{ending}"))
        assert table["text"].tolist() == [item.text for item in grounding.words]
        assert table["sound"].tolist() == [1.5] * 4
        assert np.isnan(table["prompt"]).all()
    stored = json.loads(grounding.save(tmp_path / "a.json").read_text())
    again = Grounding.from_json(stored)
    assert str(again) == str(grounding)
    pd.testing.assert_frame_equal(again.to_dataframe(), grounding.to_dataframe())
    with pytest.raises(InputError, match="speechmix grounding"):
        Grounding.from_json({"format": "other"})


def test_tiers_do_not_overlap(grounding, tmp_path):
    text = grounding.save(tmp_path / "a.TextGrid").read_text()
    names = re.findall(r'name = "(.*?)"', text)
    assert names == ["words", "not in the sound", "doubtful", "reason", "loop"]
    first = text[text.index("item [1]") : text.index("item [2]")]
    edges = [float(value) for value in re.findall(r"x(?:min|max) = ([\d.]+)", first)][2:]
    assert edges == sorted(edges)
    tree = ET.parse(grounding.save(tmp_path / "a.eaf"))
    values = [node.text for node in tree.iter("ANNOTATION_VALUE")]
    assert HOSTILE in values
    assert values.count("doubtful") == 2


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
    assert grounding.transcript(threshold=0.7, mark=True).split()[:3] == [
        "les",
        "livres",
        "[merci?]",
    ]
    assert grounding.save(tmp_path / "a.txt", threshold=0.99).read_text().split()[2] == "merci"
    assert "2 probably not in the sound; 1 repetition loop" in grounding.summary
    with pytest.raises(InputError, match="probability"):
        grounding.save(tmp_path / "b.txt", threshold=2)
    assert not (tmp_path / "b.txt").exists()


def test_page_holds_hostile_text_as_data(grounding, tmp_path):
    page = grounding.save(tmp_path / "a.html").read_text()
    assert "<img" not in page
    data = re.search(r'<script type="application/json">(.*?)</script>', page)[1]
    assert json.loads(data)["words"][3]["text"] == HOSTILE
    assert "http" not in page.replace("http-equiv", "")
    long = replace(grounding, seconds=1000.0)
    assert len(long.save(tmp_path / "b.html").read_text()) < len(page)  # no sound in it


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

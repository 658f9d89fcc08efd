"""JSON files of recognisers: parts of words, the file's own text, a last word without an end."""

from __future__ import annotations

import json

import numpy as np
import pytest

import speechmix

SILENCE = np.zeros(16_000)


def spread(labels: list[str], key: str = "word") -> list[dict]:
    return [{key: label, "start": 0.1 * i, "end": 0.1 * i + 0.1} for i, label in enumerate(labels)]


@pytest.fixture
def clip_of(tmp_path):
    def read(data, **options) -> speechmix.Clip:
        path = tmp_path / "a.json"
        path.write_text(json.dumps(data), encoding="utf-8")
        return speechmix.Clip.from_array(SILENCE, 16_000, words=str(path), **options)

    return read


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([" J", "'aime", " ça."], ["J'aime", "ça."]),
        ([" state", "-of", "-the", " $43", ",000"], ["state-of-the", "$43,000"]),
        (["Mais", "ons", " et", " jar", "dins", " ,"], ["Mais", "ons", "et", "jar", "dins", ","]),
        (["Oui", " et", " non"], ["Oui", "et", "non"]),
        ([" AI", "研", "究", "。", " oui"], ["AI", "研", "究。", "oui"]),
        (["les", " livres", "verts"], ["les", "livres", "verts"]),
    ],
)
def test_a_part_without_a_blank_goes_on_with_the_word_before_it(clip_of, labels, words):
    clip = clip_of(spread(labels))
    assert [word.text for word in clip.words] == words
    assert clip.text is None
    assert clip.words[-1].end == pytest.approx(0.1 * len(labels))


@pytest.mark.parametrize(
    "data",
    [
        {"text": " Ça, oui!", "segments": [{"text": "x", "words": spread([" Ça", ",", " oui!"])}]},
        {"segments": [{"text": " Ça,", "words": spread([" ça"])}, {"text": " oui!", "words": []}]},
        {"segments": [{"text": "Ça,", "words": spread(["ça"])}, {"text": "oui!", "words": []}]},
        {"text": "Ça, oui!", "words": spread(["ça", "oui"])},
        {"text": " Ça, oui!", "chunks": [{"text": " Ça,", "timestamp": [0.1, 0.2]}]},
        {
            "transcription": [
                {
                    "text": " Ça, oui!",
                    "tokens": [
                        {"text": "[_BEG_]", "offsets": {"from": 0, "to": 0}},
                        {"text": " Ç", "offsets": {"from": 100, "to": 200}, "p": 0.9},
                        {"text": "a,", "offsets": {"from": 200, "to": 300}, "p": 0.8},
                    ],
                }
            ]
        },
        {"transcription": [{"text": " Ça, oui!", "offsets": {"from": 100, "to": 200}}]},
    ],
    ids=[
        "whisper",
        "segments",
        "whisperx",
        "service",
        "chunks",
        "whisper.cpp",
        "whisper.cpp words",
    ],
)
def test_the_text_of_the_file_is_the_text_of_the_clip(clip_of, data):
    assert clip_of(data).text == "Ça, oui!"
    assert clip_of(data, text="autre").text == "autre"


def test_tokens_of_whisper_cpp_are_words_in_seconds(clip_of):
    tokens = [
        {"text": " mais", "offsets": {"from": 100, "to": 200}, "p": 0.9},
        {"text": "ons", "offsets": {"from": 200, "to": 300}, "p": 0.8},
        {"text": "[_TT_15]", "offsets": {"from": 300, "to": 300}},
    ]
    (word,) = clip_of({"transcription": [{"text": " maisons", "tokens": tokens}]}).words
    assert word == speechmix.Word("maisons", 0.1, 0.3, 0.8)


def test_texts_of_segments_in_a_script_without_blanks(clip_of):
    segments = [{"text": "日本", "words": spread(["日", "本"])}, {"text": "語", "words": []}]
    assert clip_of({"segments": segments}).text == "日本語"


def test_a_manifest_takes_the_text_of_the_word_file(tmp_path):
    source = speechmix.inputs.bundled.clips()[1].path
    (tmp_path / "a.json").write_text(json.dumps({"text": "Nos!", "words": [["nos", 0.1, 0.3]]}))
    (tmp_path / "a.flac").write_bytes(source.read_bytes())
    (tmp_path / "m.tsv").write_text("path\twords\na.flac\ta.json\n")
    (clip,) = speechmix.read_clips(tmp_path / "m.tsv")
    assert clip.text == "Nos!"


@pytest.mark.parametrize(
    "last",
    [
        {"word": "b", "start": 0.4},
        {"word": "b", "timestamp": [0.4, None]},
        ["b", 0.4, None],
    ],
)
def test_a_last_word_without_an_end_lasts_to_the_end_of_the_clip(clip_of, last):
    with pytest.warns(UserWarning, match="last word 'b' has no end"):
        clip = clip_of([["a", 0.1, 0.2], last])
    assert clip.words[-1] == speechmix.Word("b", 0.4, 1.0)

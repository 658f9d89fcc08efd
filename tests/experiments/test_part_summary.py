"""The line of a model's clips: nothing that warns of a clip is lost, twins say nothing twice."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

import speechmix
from speechmix.runs.model_run import PartSummary


def named_clip(name, text="les livres", doubts=()):
    return speechmix.Clip.from_array(
        np.zeros(1_600), 16_000, text=text, name=name, language="fr", doubts=doubts
    )


def summary_of(init, clips, transcripts):
    summary = PartSummary(SimpleNamespace(label="tiny", init=init, writer="tiny"))
    for clip, transcript in zip(clips, transcripts, strict=True):
        summary.add(clip, [], transcript)
    return summary.line()


def test_doubtful_word_times_and_other_transcripts_are_named():
    clips = [named_clip(f"c{i}", doubts=["Words overlap."] if i else ()) for i in range(8)]
    transcripts = ["les livres", "les lits", None, "merci", *["Les livres."] * 4]
    assert summary_of("trained", clips, transcripts) == (
        "tiny: 8 clips scored; word times may be wrong in 7 (c1, c2, c3, c4, c5 and 2 more; "
        "clips.csv says why); writes another text for 1 clip: c3 (see transcripts.csv); "
        "1 of 7 transcripts differs from the text by some words (c1)"
    )
    line = summary_of("trained", clips, ["merci"] * 8)
    assert "writes another text for 8 clips: c0, c1, c2, c3, c4 and 3 more (see" in line
    assert "differ" not in line
    assert summary_of("random", clips, [None] * 8) == "tiny: 8 clips scored"


def test_a_single_clip_has_its_own_line_and_no_clip_has_none():
    line = summary_of("trained", [named_clip("c", doubts=["Words overlap."])], ["les lits"])
    assert "word times may be wrong: Words overlap." in line
    assert "1 of 2 words differs" in line
    assert summary_of("trained", [], []) is None

"""The table of clips: a manifest's own columns never stand in for the table's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.evaluation.cue_contribution import deciding_row
from speechmix.files.text_files import write_csv
from speechmix.inputs import bundled
from speechmix.inputs.clips.clip import Clip
from speechmix.reporting.pages.study_results import add_clip_groups
from speechmix.reporting.pages.study_tables import study_table
from speechmix.runs.results.tidy_tables import clip_table, contribution_table
from speechmix.runs.scored_run import Run
from tests.conftest import trained

RESERVED = """
    clip seconds text cue target foil alignment doubts language audio_file fingerprint sound model init seed stack measure
    layer rows depth contribution mixing_strength group
""".split()


def clip(name, **meta):
    made = Clip.from_array(np.zeros(8_000), 16_000, name=name, text="les livres", meta=meta)
    return made.with_words([("les", 0.1, 0.2), ("livres", 0.2, 0.4)], alignment="ctc")


def test_the_tables_own_columns_stay():
    plain = clip_table([clip("a"), clip("b")])
    meta = {name: f"my {name}" for name in [*RESERVED, "speaker", "manifest_clip"]}
    full = clip_table([clip("a", **meta), clip("b")])
    for name in plain:
        if name not in ("fingerprint", "sound"):
            assert full[name].fillna("").tolist() == plain[name].fillna("").tolist(), name
    assert not set(RESERVED) & (set(full) - set(plain))
    assert full.columns.is_unique
    first = full.iloc[0]
    assert (first["speaker"], first["manifest_clip"], first["manifest_clip-2"]) == (
        "my speaker",
        "my manifest_clip",
        "my clip",
    )
    assert [first[f"manifest_{name}"] for name in RESERVED[1:]] == [
        f"my {name}" for name in RESERVED[1:]
    ]


def test_no_clips_have_the_same_columns():
    assert list(clip_table([])) == list(clip_table([clip("a")]))


def test_a_group_is_found_by_the_name_the_manifest_gives(tmp_path):
    columns = {"model": "m", "group": "g", "alignment": "hand", "speaker": "anne"}
    write_csv(clip_table([clip("a", **columns), clip("b", **columns)]), tmp_path / "clips.csv")
    clips = Run(tmp_path).clips
    for name, value in (
        ("model", "m"),
        ("group", "g"),
        ("speaker", "anne"),
        ("manifest_alignment", "hand"),
        ("clip", "a"),
    ):
        assert add_clip_groups(clips, group=name).group[0] == value
    with pytest.raises(InputError, match="for the manifest's say 'manifest_alignment'"):
        add_clip_groups(clips, group="alignment")
    with pytest.raises(
        InputError, match="no column 'nobody' in the table of clips; it has clip, seconds"
    ):
        add_clip_groups(clips, group="nobody")


def test_what_a_manifest_calls_model_or_layer_does_not_reach_the_study(tmp_path):
    meta = dict.fromkeys(("model", "layer", "stack", "contribution", "group", "rows"), "mine")
    write_csv(clip_table([clip("a", **meta), clip("b", **meta)]), tmp_path / "clips.csv")
    rows = [
        {
            "clip": name,
            "model": "m",
            "init": "trained",
            "seed": None,
            "cue": "les",
            "target": "livres",
            "stack": "encoder",
            "measure": "value_zeroing",
            "rows": "target",
            "layer": 0,
            "depth": 0.0,
            "contribution": 0.5,
        }
        for name in "ab"
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "cue_contribution.parquet")
    run = Run(tmp_path)
    table = study_table(run.contributions, add_clip_groups(run.clips))
    assert (table.model == "m").all()
    assert (table.layer == 0).all()
    assert (table.contribution == 0.5).all()


def test_a_row_of_contributions_has_the_strength_of_the_rows_it_is_of():
    """Silence is left out; the target's rows are averaged, in a decoder also the deciding one
    alone."""
    model = trained("tiny-french-whisper")
    [one] = [clip for clip in bundled.clips() if clip.name == "left_00_pl"]
    maps = speechmix.mix(
        model, one, measures=["attention", "value_zeroing"], include=["silence"], heads="mean"
    )
    table = contribution_table(maps, one, model)
    for (measure, stack, rows), part in table.groupby(["measure", "stack", "rows"]):
        found = maps[measure, stack]
        wanted = [index for index, span in enumerate(found.targets) if span.word == one.target]
        wanted = [deciding_row(found)] if rows == "deciding" else wanted
        np.testing.assert_allclose(
            part["mixing_strength"], found.mixing_strength[:, wanted].mean(axis=1), rtol=1e-6
        )
    assert set(table["rows"]) == {"target", "deciding"}
    bare = {key: replace(mixing_map, mixing_strength=None) for key, mixing_map in maps.items()}
    assert contribution_table(bare, one, model)["mixing_strength"].isna().all()

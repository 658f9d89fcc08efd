"""The probing stage of a run: states are kept with their question, and probes are fitted again only
for new states."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest

import speechmix
from speechmix.extensions.probing import kind as probing
from speechmix.extensions.probing.probe_runs import probe_in_run
from speechmix.files.text_files import read_csv, write_csv
from speechmix.runs.run_status import job_status
from speechmix.runs.score_clips import score_clips
from tests.conftest import build

RATE = 16_000


def clips(**changes):
    """Six pairs; number is told by a tone under the target."""
    made = []
    for pair in range(6):
        for number, hertz in (("sg", 200), ("pl", 2000)):
            noise = np.random.default_rng(pair).standard_normal(RATE).astype(np.float32) / 50
            noise[6000:13_000] += (
                np.sin(2 * np.pi * hertz * np.arange(7000) / RATE).astype(np.float32) / 3
            )
            meta = {"number": number, "pair": f"pair {pair}", "side": "left"}
            words = [("les", 0.1, 0.3), (f"mot{pair}", 0.35, 0.8)]
            made.append(
                speechmix.Clip.from_array(
                    noise,
                    RATE,
                    name=f"{pair}_{number}",
                    words=words,
                    text=f"les mot{pair}",
                    cue="les",
                    target=f"mot{pair}",
                    meta=meta,
                ).replace(**changes)
            )
    return made


@functools.cache
def models():
    import transformers

    extractor = transformers.Wav2Vec2FeatureExtractor()
    module = build("wav2vec2-post")
    load = functools.partial(speechmix.load, module, processor=extractor)
    return load(), load(init="random", seed=1), load(init="random", seed=2)


def run(folder, clips_of_run, **options):
    lines: list[str] = []
    done = score_clips(
        models(),
        clips_of_run,
        folder,
        figures=0,
        progress=False,
        report=lines.append,
        probes=True,
        measures=["attention"],
        **options,
    )
    return done, lines


@pytest.fixture
def counted(monkeypatch):
    """How often states were computed and probes fitted."""
    counts = {"states": 0, "fits": 0}
    read_item_states, fit_models = probing.read_item_states, probing.fit_models

    def counting_states(*arguments, **options):
        counts["states"] += 1
        return read_item_states(*arguments, **options)

    def counting_fits(*arguments, **options):
        counts["fits"] += 1
        return fit_models(*arguments, **options)

    monkeypatch.setattr(probing, "read_item_states", counting_states)
    monkeypatch.setattr(probing, "fit_models", counting_fits)
    monkeypatch.setattr("speechmix.extensions.probing.kind.PROBED_TWINS", 1)
    return counts


def test_states_are_kept_and_probes_fitted_again_only_for_what_is_new(tmp_path, counted):
    run(tmp_path, clips())
    assert counted == {"states": 24, "fits": 1}  # of the trained model and its first twin
    table = read_csv(tmp_path / "probes.csv")
    assert set(table["part"]) == {"left"}
    assert set(table["init"]) == {"trained", "random"}
    assert set(table.loc[table["init"] == "random", "seed"]) == {"1"}
    assert set(table["n"]) == {"12"}
    accuracy = table[table["init"] == "trained"]["accuracy"].astype(float)
    assert accuracy.max() == 1  # a tone is easily told
    first = (tmp_path / "probes.csv").read_bytes()
    run(tmp_path, clips())
    assert counted == {"states": 24, "fits": 1}
    damaged = next((tmp_path / "results").glob("*random_1*/*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-9] + b"\0" * 9)
    _, lines = run(tmp_path, clips())
    assert any("is damaged and made again" in line for line in lines)
    assert counted == {"states": 36, "fits": 1}  # the same states again
    assert (tmp_path / "probes.csv").read_bytes() == first
    of_another_label = read_csv(tmp_path / "probes.csv").assign(label="voice", n="7")
    write_csv(
        pd.concat([read_csv(tmp_path / "probes.csv"), of_another_label]), tmp_path / "probes.csv"
    )
    run(tmp_path, clips()[:10])
    assert counted == {"states": 36, "fits": 2}
    table = read_csv(tmp_path / "probes.csv")
    assert table.groupby("label")["n"].unique().map(list).to_dict() == {
        "number": ["10"],
        "voice": ["7"],
    }


@pytest.mark.long
def test_clips_without_a_number_are_not_probed(tmp_path, counted):
    done, lines = run(tmp_path, clips(meta={}))
    assert done.done == 36
    assert not (tmp_path / "probes.csv").is_file()
    assert any("no item has a label 'number'" in line for line in lines)


def test_too_few_groups_are_said_and_leave_no_table(tmp_path, counted):
    _, lines = run(tmp_path, clips()[:1])
    assert not (tmp_path / "probes.csv").is_file()
    assert any("two labels" in line for line in lines)


def test_alone_in_shards_it_gives_the_table_of_probe(tmp_path):
    options = {"label": "number", "positions": ["target"], "settings": {"controls": 1, "seed": 0}}
    quiet = {"progress": False, "report": lambda line: None}
    assert probe_in_run(models()[:2], clips(), tmp_path, shard="1/2", **options, **quiet) is None
    probes = probe_in_run(models()[:2], clips(), tmp_path, shard="2/2", **options, **quiet)
    expected = speechmix.probe(models()[:2], clips(), label="number", controls=1, seed=0)
    pd.testing.assert_frame_equal(probes.to_dataframe(), expected.to_dataframe())
    assert (tmp_path / "probes.csv").is_file()
    assert [job.text() for job in job_status(tmp_path)] == ["states: 2 of 2 shards done, 0 failed"]


def test_a_number_of_each_clip_is_probed_in_a_run_as_without(tmp_path):
    sized = [
        clip.replace(meta={**clip.meta, "size": str(index % 5)})
        for index, clip in enumerate(clips())
    ]
    settings = {"method": "ridge", "controls": 0, "shuffles": 9}
    model, task = models()[0], {"label": "size", "group": "pair"}
    found = probe_in_run(
        [model], sized, tmp_path, settings=settings, progress=False, report=str, **task
    )
    direct = speechmix.probe(model, sized, **task, **settings)
    columns = ["layer", "r2", "r", "by_position", "p", "n", "groups"]
    pd.testing.assert_frame_equal(found.scores[columns], direct.scores[columns])
    stored = read_csv(tmp_path / "value_probes.csv")
    assert len(stored) == len(found.scores)
    assert not (tmp_path / "probes.csv").is_file()

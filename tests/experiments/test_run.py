"""Runs: what is written, what is skipped, what a second start does."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.files.names import safe_name
from speechmix.runs import model_run
from speechmix.runs import score_clips as runs
from speechmix.runs.kinds import map_results as store
from speechmix.runs.kinds import word_times
from speechmix.runs.results.tidy_tables import TableWriter
from tests.conftest import build, trained, trained_and_twin

WORDS = [("les", 0.1, 0.3), ("livres", 0.35, 0.8)]


def clip(name, **options):
    noise = np.random.default_rng(len(name)).standard_normal(16_000).astype(np.float32) / 10
    options = {"words": WORDS, "text": "les livres", "cue": "les", "target": "livres", **options}
    return speechmix.Clip.from_array(noise, 16_000, name=name, **options)


@pytest.fixture(scope="module")
def models():
    return trained_and_twin()


def test_a_run_leaves_maps_tables_and_figures(models, tmp_path):
    lines = []
    run = runs.score_clips(
        models,
        [clip("a"), clip("bb")],
        tmp_path,
        measures=["value_zeroing", "attention"],
        progress=False,
        report=lines.append,
    )
    assert (run.done, run.skipped) == (4, [])
    table = run.contributions
    assert len(table) == 2 * 2 * 2 * 3  # clips, models, measures, layers
    assert set(table["init"]) == {"trained", "random"}
    assert table.contribution.between(0, 1).all()
    assert table.share_of_length.iloc[0] == pytest.approx(10 / 33, abs=0.05)
    pd.testing.assert_frame_equal(
        pd.read_csv(tmp_path / "cue_contribution.csv").astype({"seed": "Int64"}),
        table,
        check_dtype=False,
    )
    scores = pd.read_parquet(tmp_path / "scores")
    cells = scores.groupby(["clip", "init", "measure", "layer", "target"], observed=True)
    assert cells.share.sum().to_numpy() == pytest.approx(1)
    assert speechmix.open_run(run).scores.count_rows() == len(scores)
    assert len(list(tmp_path.glob("figures/*/*.png"))) == 2
    maps = speechmix.open_run(run).maps("a")
    assert [len(of_model) for of_model in maps.values()] == [2, 2]
    for model in models:
        stored = maps[model.name, model.init, model.seed]["value_zeroing", "encoder"]
        computed = speechmix.mix(model, clip("a"))["value_zeroing", "encoder"]
        np.testing.assert_array_equal(stored.scores, computed.scores)
        assert stored.scores.dtype == computed.scores.dtype
        assert (stored.targets, stored.sources, stored.layers) == (
            computed.targets,
            computed.sources,
            computed.layers,
        )
        assert {
            name: stored.provenance[name] for name in computed.provenance if name != "measures"
        } == {
            name: value
            for name, value in json.loads(json.dumps(computed.provenance)).items()
            if name != "measures"
        }
    assert [line.partition(": ")[2] for line in lines] == ["2 clips scored"] * 2
    assert "0 skipped" in run.summary()


def test_a_clip_that_fails_is_recorded_and_the_run_goes_on(models, tmp_path):
    broken = clip("untimed", words=None, text=None)
    run = runs.score_clips(
        models[:1],
        [broken, clip("fine")],
        tmp_path,
        figures=0,
        progress=False,
        report=lambda line: None,
        skipped=[("row 7", "no such file")],
    )
    assert run.done == 1
    assert [row["clip"] for row in run.skipped] == ["row 7", "untimed"]
    assert "has neither words nor text" in run.skipped[1]["reason"]
    assert list(pd.read_csv(tmp_path / "skipped.csv")["clip"]) == ["row 7", "untimed"]


def test_a_stopped_run_goes_on_and_gives_the_same_tables(models, tmp_path, monkeypatch):
    clips = [clip("a"), clip("bb"), clip("ccc")]
    quiet = {
        "figures": 0,
        "progress": False,
        "report": lambda line: None,
        "measures": ["value_zeroing", "attention"],
    }
    whole = runs.score_clips(models, clips, tmp_path / "whole", **quiet).contributions

    real, calls = store.mix_items, []

    def stopping(*args, **kwargs):
        calls.extend(one.name for one in args[1])
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(store, "mix_items", stopping)
    with pytest.raises(KeyboardInterrupt):
        runs.score_clips(models, clips, tmp_path / "stopped", **quiet)
    assert not (tmp_path / "stopped" / "cue_contribution.parquet").exists()
    resumed = runs.score_clips(models, clips, tmp_path / "stopped", **quiet).contributions
    assert calls == ["a", "bb", "ccc", "a", "a", "bb", "ccc"]
    pd.testing.assert_frame_equal(resumed, whole)


def test_groups_give_the_tables_of_single_clips_and_skip_the_bad_one_alone(
    models, tmp_path, monkeypatch
):
    real = store.mix_items

    def refusing(model, clips, *request, **options):
        if "bb" in [one.name for one in clips]:
            raise InputError("not this one")
        return real(model, clips, *request, **options)

    clips = [clip("a"), clip("bb"), clip("ccc")]
    quiet = {"figures": 0, "progress": False, "report": lambda line: None}
    monkeypatch.setattr(store, "mix_items", refusing)
    alone = runs.score_clips(models[:1], clips, tmp_path / "alone", **quiet)
    monkeypatch.setattr(model_run, "clips_per_pass", lambda model: 2)
    together = runs.score_clips(models[:1], clips, tmp_path / "together", **quiet)
    assert (
        [row["reason"] for row in together.skipped]
        == [row["reason"] for row in alone.skipped]
        == ["not this one"]
    )
    pd.testing.assert_frame_equal(together.contributions, alone.contributions)


def test_changed_words_are_scored_again(models, tmp_path):
    quiet = {"figures": 0, "progress": False, "report": lambda line: None}
    before = runs.score_clips(models[:1], [clip("a")], tmp_path, **quiet).contributions
    moved = clip("a", words=[("les", 0.1, 0.2), ("livres", 0.35, 0.8)])
    after = runs.score_clips(models[:1], [moved], tmp_path, **quiet).contributions
    assert not np.allclose(before.contribution, after.contribution)


def test_a_folder_with_other_options_is_refused_unless_overwritten(models, tmp_path):
    quiet = {"figures": 0, "progress": False, "report": lambda line: None}
    runs.score_clips(models[:1], [clip("a")], tmp_path, pooling="mean", **quiet)
    with pytest.raises(InputError, match="other options"):
        runs.score_clips(models[:1], [clip("a")], tmp_path, pooling="max", **quiet)
    runs.score_clips(models[:1], [clip("a")], tmp_path, pooling="max", overwrite=True, **quiet)
    assert json.loads((tmp_path / "run.json").read_text())["options"]["pooling"] == "max"


def test_word_times_of_an_aligner_are_kept_and_used_again(models, tmp_path, monkeypatch):
    asked = []

    def fake_align(clip, *, model, method, tiers):
        asked.append(clip.name)
        return clip.replace(words=WORDS, alignment="synthesis", doubts=("made up",))

    monkeypatch.setattr(word_times, "align", fake_align)
    lines = []
    quiet = {"figures": 0, "progress": False, "report": lines.append}
    grid = tmp_path / "words" / "a.TextGrid"
    for _ in range(2):
        run = runs.score_clips(models[:1], [clip("a", words=None)], tmp_path, **quiet)
        assert "les" in grid.read_text(encoding="utf-8")
        corrected = grid.read_text(encoding="utf-8").replace("0.4", "0.41")
        grid.write_text(corrected, encoding="utf-8")  # by hand, in Praat
    assert (run.done, asked) == (1, ["a"])
    assert any("word times may be wrong: made up" in line for line in lines)
    runs.score_clips(models[:1], [clip("a", words=None)], tmp_path, **quiet)
    assert grid.read_text(encoding="utf-8") == corrected
    assert run.contributions.cue.iloc[0] == "les"


def test_a_table_that_fails_half_way_leaves_the_file_of_before_and_an_empty_one_none(tmp_path):
    with TableWriter(tmp_path / "t") as writer:
        writer.append(pd.DataFrame({"a": [1, 2]}))
        writer.append(pd.DataFrame({"a": [3]}))
    assert pd.read_parquet(tmp_path / "t.parquet")["a"].tolist() == [1, 2, 3]
    assert pd.read_csv(tmp_path / "t.csv")["a"].tolist() == [1, 2, 3]
    writer = TableWriter(tmp_path / "t")
    writer.__enter__()
    writer.append(pd.DataFrame({"a": [4]}))
    writer.__exit__(ValueError, ValueError("stop"), None)
    assert pd.read_csv(tmp_path / "t.csv")["a"].tolist() == [1, 2, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.parquet"]
    with TableWriter(tmp_path / "t"):
        pass
    assert not list(tmp_path.iterdir())


def test_other_weights_under_the_same_name_are_scored_again(models, tmp_path):
    import transformers

    quiet = {"figures": 0, "progress": False, "report": lambda line: None}
    before = runs.score_clips(models[:1], [clip("a")], tmp_path, **quiet).contributions
    other = speechmix.load(
        build("wav2vec2-post", seed=5), processor=transformers.Wav2Vec2FeatureExtractor()
    )
    assert other.label == models[0].label
    after = runs.score_clips([other], [clip("a")], tmp_path, **quiet).contributions
    assert not np.allclose(before.contribution, after.contribution)
    with pytest.raises(InputError, match="two models are called"):
        runs.score_clips([models[0], other], [clip("a")], tmp_path / "both", **quiet)


def test_target_rows_of_a_clip_with_a_foil_hold_the_deciding_row(tmp_path):
    from speechmix.inputs import bundled

    model = trained("tiny-french-whisper")
    singular = [one for one in bundled.clips() if one.foil and one.meta["number"] == "sg"][:2]
    quiet = {"figures": 0, "progress": False, "report": lambda line: None}
    whole = runs.score_clips([model], singular, tmp_path / "whole", **quiet)
    rows = runs.score_clips([model], singular, tmp_path / "rows", targets="target", **quiet)
    assert (rows.done, rows.skipped) == (2, [])
    np.testing.assert_allclose(
        rows.contributions.contribution, whole.contributions.contribution, rtol=1e-4
    )


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_a_clip_that_memory_does_not_hold_is_tried_alone_and_in_small_batches_and_then_skipped(
    error, models, tmp_path, monkeypatch
):
    mix_items, tries = store.mix_items, []

    def short_of_memory(model, clips, request, *, batch_size="auto", **options):
        names = [one.name for one in clips]
        tries.append((names, batch_size))
        if "huge" in names or ("large" in names and batch_size == "auto"):
            raise error
        return mix_items(model, clips, request, batch_size=batch_size, **options)

    monkeypatch.setattr(store, "mix_items", short_of_memory)
    monkeypatch.setattr(model_run, "clips_per_pass", lambda model: 3)
    clips = [clip("huge"), clip("large"), clip("small")]
    run = runs.score_clips(
        models[:1], clips, tmp_path, figures=0, progress=False, report=lambda line: None
    )
    assert run.done == 2
    (skipped,) = run.skipped
    assert skipped["clip"] == "huge"
    assert skipped["reason"].startswith("not enough memory")
    assert tries == [
        (["huge", "large", "small"], "auto"),
        *[
            (["huge"], "auto"),
            (["huge"], 256),
            (["large"], "auto"),
            (["large"], 256),
            (["small"], "auto"),
        ],
    ]


def test_other_errors_of_the_machine_are_not_taken_for_a_full_memory(models, tmp_path, monkeypatch):
    def broken(*args, **options):
        raise RuntimeError("a bug")

    monkeypatch.setattr(store, "mix_items", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        runs.score_clips(
            models[:1], [clip("a")], tmp_path, figures=0, progress=False, report=lambda line: None
        )


def test_options_of_the_tables_that_stand_are_said_until_new_ones_do(models, tmp_path, monkeypatch):
    from speechmix.runs.results.open_run import read_run_description
    from speechmix.runs.results.run_folder import RunFolder

    def dies(*args, **options):
        raise KeyboardInterrupt

    quiet = {"figures": 0, "progress": False, "report": lambda line: None}
    run = runs.score_clips(models[0], [clip("a")], tmp_path, pooling="mean", **quiet)
    real = store.mix_items
    monkeypatch.setattr(store, "mix_items", dies)
    for _ in range(2):  # stopped, and stopped again
        with pytest.raises(KeyboardInterrupt):
            runs.score_clips(
                models[0], [clip("a")], tmp_path, pooling="max", overwrite=True, **quiet
            )
        assert read_run_description(RunFolder(run.out))["options"]["pooling"] == "mean"
    monkeypatch.setattr(store, "mix_items", real)
    runs.score_clips(models[0], [clip("a")], tmp_path, pooling="max", **quiet)
    assert read_run_description(RunFolder(run.out))["options"]["pooling"] == "max"


@pytest.mark.usefixtures("undrawn")
def test_right_pictures_stay_when_no_more_are_asked_for_and_wrong_ones_go(models, tmp_path):
    quiet = {"progress": False, "report": lambda line: None}
    runs.score_clips(models[0], [clip("a")], tmp_path, **quiet)
    (picture,) = tmp_path.glob("figures/*/a.png")
    runs.score_clips(models[0], [clip("a")], tmp_path, figures=0, **quiet)
    assert picture.is_file()
    runs.score_clips(models[0], [clip("a", cue=None)], tmp_path, figures=0, **quiet)
    assert not picture.is_file()


def test_tables_stand_when_nothing_can_be_scored_any_more(models, tmp_path):
    quiet = {"figures": 0, "progress": False}
    runs.score_clips(models[0], [clip("a")], tmp_path, report=lambda line: None, **quiet)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.parquet")}
    lines = []
    runs.score_clips(
        models[0], [clip("a", words=None, text=None)], tmp_path, report=lines.append, **quiet
    )
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.parquet")} == before
    assert "they stay as they are" in lines[-1]


def test_what_is_no_clip_is_named(models, tmp_path):
    with pytest.raises(InputError, match=r"expected clips, found 'a\.wav'"):
        runs.score_clips(models, ["a.wav"], tmp_path)
    with pytest.raises(InputError, match="expected a clip, a text, prepared inputs"):
        speechmix.mix(models[0], 3)


def test_what_a_kill_left_while_the_page_was_made_is_gone_after_the_next_start(models, tmp_path):
    quiet = {"figures": 0, "progress": False, "report": lambda line: None}
    runs.score_clips(models[0], [clip("a")], tmp_path, **quiet)
    leftover = tmp_path / ".unfinished-1-0123456789ab"
    leftover.write_text("half a page")
    runs.score_clips(models[0], [clip("a")], tmp_path, **quiet)
    assert not leftover.exists()


@pytest.mark.usefixtures("undrawn")
def test_further_twins_hear_few_clips_and_are_asked_for_contributions_alone(models, tmp_path):
    import transformers

    trained_model, twin = models
    other = speechmix.load(
        build("wav2vec2-post"),
        processor=transformers.Wav2Vec2FeatureExtractor(),
        init="random",
        seed=4,
    )
    clips = [
        clip(letter * (number + 1), meta={"pair": letter})
        for letter in "abcd"
        for number in range(2)
    ]
    run = runs.score_clips(
        [trained_model, twin, other],
        clips,
        tmp_path,
        figures=1,
        twin_clips=4,
        progress=False,
        report=lambda line: None,
    )
    heard = run.contributions.groupby("seed", dropna=False)["clip"].unique()
    assert len(heard[3]) == len(heard[pd.NA]) == 8
    assert list(heard[4]) == ["a", "aa", "d", "dd"]
    assert set(speechmix.open_run(run).scores.to_table()["seed"].to_pylist()) == {None, 3}
    assert {path.parent.name for path in tmp_path.glob("figures/*/*.png")} == {
        safe_name(trained_model.label)
    }
    again = runs.score_clips(
        [trained_model, twin, other],
        clips,
        tmp_path,
        figures=1,
        progress=False,
        report=lambda line: None,
    )
    assert (run.done, again.done) == (20, 24)

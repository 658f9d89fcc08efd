"""Faithfulness stored clip by clip: in shards, killed, done again, it has the tables of one that was
done at once."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
from functools import partial

import numpy as np
import pandas as pd
import pytest

import speechmix
from speechmix.extensions.faithfulness import evaluate, kind
from speechmix.extensions.faithfulness.evaluate import evaluate_item
from speechmix.extensions.faithfulness.faithfulness_runs import faithfulness_of_clips
from speechmix.files.shard_assignment import Shard
from speechmix.inputs import bundled
from speechmix.inputs.clips.clip import Clip
from speechmix.interfaces.cli import main
from speechmix.runs.executors.local_workers import LocalWorkers
from speechmix.runs.results import result_store
from speechmix.runs.run_status import job_status
from speechmix.runs.score_clips import score_clips
from tests.conftest import trained
from tests.reliability.kills import snapshot

ASKED = {
    "measures": ["attention"],
    "perturbations": ["mute (zeros)", "patch"],
    "aggregations": ["best layer", "mean"],
}
ASKED |= {"metrics": ["spearman", "average_precision"]}
TABLES = ("faithfulness.csv", "faithfulness_values.csv")


@pytest.fixture(scope="module")
def model():
    return trained("tiny-french-ctc")


@pytest.fixture(scope="module")
def clips():
    """Two pairs, one of whose members cannot be aligned, and one that has too few words to be
    judged; in three shards, none is empty."""
    long = [clip for clip in bundled.clips() if len(clip.words) >= 4][:6]
    silent = Clip.from_array(
        np.zeros(16_000, np.float32), 16_000, name="silent", meta=long[4].meta
    )  # of no text
    few = next(clip for clip in bundled.clips() if len(clip.words) == 2)
    return [*long[:2], long[5], silent, few]


@pytest.fixture(scope="module")
def whole(model, clips, tmp_path_factory):
    """The folder of a trial that was done at once, and the trial."""
    out = tmp_path_factory.mktemp("whole")
    return out, faithfulness_of_clips(model, clips, out, **ASKED)


def tables(out):
    return {name: (out / name).read_bytes() for name in TABLES}


def test_it_is_the_trial_of_clips_in_memory(model, clips, whole, tmp_path):
    usable = [clip for clip in clips if clip.words]
    plain = speechmix.faithfulness(model, usable, **ASKED)
    for name in ("values", "drops", "left_out"):
        pd.testing.assert_frame_equal(getattr(whole[1], name), getattr(plain, name))
    assert (whole[1].ties, whole[1].provenance) == (plain.ties, plain.provenance)
    plain.write(tmp_path)
    assert tables(tmp_path) == tables(whole[0])
    assert {"mute (zeros)", "patch", "cue"} == set(plain.values["perturbation"])


@pytest.mark.parametrize("order", [pytest.param((1, 2, 3), marks=pytest.mark.long), (3, 1, 2)])
def test_shards_in_any_order_give_the_tables_of_one_process(order, model, clips, whole, tmp_path):
    skipped = []
    for place, index in enumerate(order):
        trial = faithfulness_of_clips(
            model, clips, tmp_path, shard=Shard(index, 3), skipped=skipped, **ASKED
        )
        assert (trial is None) == (place < 2)
    assert tables(tmp_path) == tables(whole[0])
    assert {name for name, _ in skipped} == {clip.name for clip in clips if clip.words is None}
    pd.testing.assert_frame_equal(trial.drops, whole[1].drops)
    before = snapshot(tmp_path)
    assert faithfulness_of_clips(model, clips, tmp_path, shard=Shard(2, 3), **ASKED) is not None
    assert snapshot(tmp_path) == before


def test_killed_in_the_middle_it_goes_on_where_it_was(model, clips, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(
        result_store, "_MIN_SECONDS", 0.0
    )  # what is found of a clip is written at once
    monkeypatch.setattr(result_store, "_MIN_SHARE", 0.0)
    judged, names = kind.evaluate_item, []

    def deadly(model, item, *arguments, **options):
        names.append(item.name)
        if len(names) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return judged(model, item, *arguments, **options)

    monkeypatch.setattr(kind, "evaluate_item", deadly)
    child = os.fork()
    if child == 0:
        faithfulness_of_clips(model, clips, tmp_path, **ASKED)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    monkeypatch.setattr(
        kind,
        "evaluate_item",
        lambda model, item, *more, **options: (
            names.append(item.name) or judged(model, item, *more, **options)
        ),
    )
    faithfulness_of_clips(model, clips, tmp_path, **ASKED)
    assert names == [clip.name for clip in clips if clip.words][2:]
    assert tables(tmp_path) == tables(whole[0])


def test_a_clip_that_was_changed_is_judged_again_and_its_pair_too(
    model, clips, whole, tmp_path, monkeypatch
):
    out = shutil.copytree(whole[0], tmp_path / "run")
    judged, names = kind.evaluate_item, []
    monkeypatch.setattr(
        kind,
        "evaluate_item",
        lambda model, item, *more, **options: (
            names.append(item.name) or judged(model, item, *more, **options)
        ),
    )
    changed = [clips[0].replace(foil="livre"), *clips[1:]]
    faithfulness_of_clips(model, changed, out, **ASKED)
    assert names == [clip.name for clip in clips[:2]]


def of_clips_in_memory(model, clips, asked):
    trial = speechmix.faithfulness(model, clips, **asked)
    return trial.ties, trial.values["group"].nunique(), trial.values


def test_what_ties_clips_is_what_their_manifest_says_now(model, tmp_path, monkeypatch):
    """Without a lemma the target ties clips; with another column that one; and a new column has
    nothing judged again."""
    asked = {**ASKED, "perturbations": ["mute (zeros)"]}
    asked |= {"aggregations": ["mean"], "metrics": ["spearman"]}
    names = [
        f"right_{pair}_{number}"
        for pair in ("01", "05", "17", "29", "35")
        for number in ("sg", "pl")
    ]
    clips = [clip.replace(meta={}) for clip in bundled.clips() if clip.name in names]
    faithfulness_of_clips(model, clips, tmp_path, **asked)
    monkeypatch.setattr(kind, "evaluate_item", None)  # whoever calls it dies
    judged = functools.cache(lambda name: evaluate_item(*given[name]))
    given = {}

    def once(model, item, *more):
        """What is judged of a clip in memory does not depend on its meta."""
        given.setdefault(item.name, (model, item, *more))
        return judged(item.name)

    monkeypatch.setattr(evaluate, "evaluate_item", once)
    for column in (None, "noun", "target_lemma"):
        if column is not None:
            clips = [
                clip.replace(meta={column: f"word {place // 2}"})
                for place, clip in enumerate(clips)
            ]
        trial = faithfulness_of_clips(model, clips, tmp_path, **asked)
        ties, n_groups, values = of_clips_in_memory(model, clips, asked)
        assert "the target word" in ties
        assert (trial.ties, trial.values["group"].nunique()) == (ties, n_groups)
        pd.testing.assert_frame_equal(trial.values, values)


def test_other_options_and_clips_are_computed_anew(model, clips, tmp_path, whole):
    other = {**ASKED, "measures": ["value_zeroing"]}
    assert faithfulness_of_clips(model, clips, tmp_path, shard=Shard(1, 2), **ASKED) is None
    assert faithfulness_of_clips(model, clips, tmp_path, shard=Shard(2, 2), **other) is None
    assert not (tmp_path / TABLES[0]).exists()  # no table is of two evaluations
    assert faithfulness_of_clips(model, clips, tmp_path, shard=Shard(1, 2), **other) is not None
    assert faithfulness_of_clips(model, clips[:3], tmp_path, **ASKED).provenance["items"] == 3
    faithfulness_of_clips(model, clips, tmp_path, **ASKED)
    assert tables(tmp_path) == tables(whole[0])


def test_status_says_which_shards_are_missing(model, clips, tmp_path, capsys):
    faithfulness_of_clips(model, clips, tmp_path, shard=Shard(2, 3), **ASKED)
    (job,) = job_status(tmp_path)
    assert (job.count, job.missing) == (3, [1, 3])
    assert job.text().startswith("faithfulness: 1 of 3 shards done")
    assert main(["status", str(tmp_path), "--missing", "faithfulness"]) == 0
    assert capsys.readouterr().out == "1,3\n"
    assert main(["status", str(tmp_path)]) == 0
    assert "missing: 1,3" in capsys.readouterr().out


def test_a_pair_is_used_though_its_clips_are_in_two_shards(model, clips, tmp_path):
    """Words of the other clip are aligned where it is in another shard."""
    pair = [
        Clip.from_file(
            clip.path,
            name=clip.name,
            text=clip.text,
            language="fr",
            cue=clip.words[clip.cue].text,
            target=clip.words[clip.target].text,
            foil=clip.foil,
            meta=clip.meta,
        )
        for clip in clips[:2]
    ]
    count = next(
        count
        for count in range(2, 40)
        if len(
            {next(i for i in range(1, count + 1) if Shard(i, count).holds(c.name)) for c in pair}
        )
        == 2
    )
    asked = {**ASKED, "perturbations": ["patch"]}
    one = faithfulness_of_clips(model, pair, tmp_path / "one", aligner=model, **asked)
    for index in range(1, count + 1):
        several = faithfulness_of_clips(
            model, pair, tmp_path / "several", aligner=model, shard=Shard(index, count), **asked
        )
    assert set(one.values["perturbation"]) == {"patch", "cue"}
    assert tables(tmp_path / "several") == tables(tmp_path / "one")
    pd.testing.assert_frame_equal(one.drops, several.drops)


@pytest.mark.long
def test_local_workers_have_pairs_too(clips, whole, tmp_path):
    faithfulness_of_clips(
        partial(trained, "tiny-french-ctc"),
        clips,
        tmp_path,
        executor=LocalWorkers(2, "cpu"),
        **ASKED,
    )
    assert tables(tmp_path) == tables(whole[0])


def test_a_run_has_it_beside_its_scores(model, clips, whole, tmp_path):
    score_clips(
        [model],
        clips,
        tmp_path,
        kinds={"faithfulness": ASKED},
        progress=False,
        report=lambda line: None,
        figures=0,
    )
    values = pd.read_csv(tmp_path / TABLES[1])
    assert set(values["perturbation"]) == {"mute (zeros)", "patch", "cue"}
    assert tables(tmp_path) == tables(whole[0])


def stop_at(name, model, clips, out, monkeypatch):
    """A trial that is stopped where it calls a function of its module."""

    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kind, name, stopped)
        with pytest.raises(KeyboardInterrupt):
            faithfulness_of_clips(model, clips, out, **ASKED)


def test_status_knows_tables_that_were_not_written(model, clips, tmp_path, monkeypatch, capsys):
    """The last shard was killed between its last clip and the tables."""
    stop_at("combine_items", model, clips[:1], tmp_path, monkeypatch)
    assert main(["status", str(tmp_path)]) == 0
    assert "tables: not written" in capsys.readouterr().out
    faithfulness_of_clips(model, clips[:1], tmp_path, **ASKED)
    assert main(["status", str(tmp_path)]) == 0
    assert "tables" not in capsys.readouterr().out
    assert main(["status", str(tmp_path), "--missing", "faithfulness"]) == 1
    assert "has no shards" in capsys.readouterr().err


def test_status_knows_an_evaluation_that_was_stopped(model, clips, tmp_path, monkeypatch, capsys):
    stop_at("evaluate_item", model, clips[:1], tmp_path, monkeypatch)
    assert main(["status", str(tmp_path)]) == 0
    assert "faithfulness: 0 of 1 shards done" in capsys.readouterr().out


@pytest.mark.long
def test_on_the_command_line(tmp_path, capsys):
    clips = [clip for clip in bundled.clips() if len(clip.words) >= 4][:4]
    rows = [
        {
            "path": str(clip.path),
            "text": clip.text,
            "cue": clip.cue,
            "target": clip.target,
            "foil": clip.foil,
        }
        | {
            "words": [[word.text, word.start, word.end] for word in clip.words],
            "language": "fr",
            "name": clip.name,
        }
        for clip in clips
    ]
    (tmp_path / "clips.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    model = str(bundled.models()["tiny-french-ctc"])
    command = [
        "faithfulness",
        str(tmp_path / "clips.jsonl"),
        "--model",
        model,
        "--allow-outside",
        "--device",
        "cpu",
    ]
    command += ["--measure", "attention", "--perturbation", "mute (zeros)"]
    assert main([*command, "--shard", "1/2"]) == 1
    assert "give a folder as --out" in capsys.readouterr().err
    assert main([*command, "--shard", "1/2", "--out", str(tmp_path / "run")]) == 0
    assert "shard 1/2 is finished" in capsys.readouterr().out
    assert main([*command, "--shard", "2/2", "--out", str(tmp_path / "run")]) == 0
    assert f"table: {tmp_path / 'run' / TABLES[0]}" in capsys.readouterr().out
    assert main([*command, "--out", str(tmp_path / "one")]) == 0
    assert tables(tmp_path / "run") == tables(tmp_path / "one")


@pytest.mark.parametrize(
    ("command", "advice"),
    [("ablate", "score --ablate --shard"), ("probe", "score --probe --shard")],
)
def test_commands_that_do_all_clips_at_once_name_the_one_that_takes_shards(
    command, advice, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.tsv").write_text("path\n")
    clips = {
        "ablate": ["--model", "m", "--clips", "c.tsv"],
        "probe": ["--model", "m", "--clips", "c.tsv"],
    }
    assert main([command, *clips[command], "--shard", "2/3"]) == 1
    assert advice in capsys.readouterr().err


def test_measures_to_the_output_are_kept_in_shards_and_never_mixed_with_others(
    model, clips, tmp_path
):
    asked = {
        "measures": ["lrp", "occlusion"],
        "perturbations": ["mute (zeros)", "patch"],
        "metrics": ["spearman"],
    }
    asked |= {"aggregations": ["to the output"]}
    for number in (2, 1):
        trial = faithfulness_of_clips(
            model, clips[:2], tmp_path / "shards", shard=Shard(number, 2), **asked
        )
    whole = faithfulness_of_clips(model, clips[:2], tmp_path / "whole", **asked)
    assert tables(tmp_path / "shards") == tables(tmp_path / "whole")
    assert set(trial.values["measure"]) >= {"lrp", "occlusion (zeros)"}
    pd.testing.assert_frame_equal(trial.values, whole.values)
    fewer = faithfulness_of_clips(
        model, clips[:2], tmp_path / "whole", **{**asked, "measures": ["lrp"]}
    )
    assert "occlusion (zeros)" not in set(fewer.values["measure"])

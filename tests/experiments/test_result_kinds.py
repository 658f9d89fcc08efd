"""Kinds of results: computed in a run or alone, in shards, by workers, killed and resumed; a kind
from outside the package."""

from __future__ import annotations

import os
import signal
from functools import partial

import pandas as pd
import pytest

import speechmix
from speechmix.errors import AlignmentError, InputError
from speechmix.extensions.explain.kind import ToExplain, stored_explanations
from speechmix.inputs import bundled
from speechmix.interfaces.cli import main
from speechmix.runs.clip_aligner import ClipAligner
from speechmix.runs.executors.local_workers import LocalWorkers
from speechmix.runs.kinds import registry, word_times
from speechmix.runs.kinds.registry import find_kind, forget_kind, register_kind
from speechmix.runs.kinds.result_kind import Result, ResultKind
from speechmix.runs.results.clip_result_files import open_part
from speechmix.runs.results.open_run import open_run
from speechmix.runs.results.run_folder import RunFolder
from speechmix.runs.run_status import job_status
from speechmix.runs.score_clips import compute_kinds, score_clips
from speechmix.runs.shard_merge import read_job_clips
from tests.conftest import trained
from tests.engines.test_block_engine import HereExecutor
from tests.reliability.kills import count_calls, snapshot, try_once
from tests.reports.test_tables import documented

QUIET = {"progress": False, "report": lambda line: None}
CLIPS = bundled.clips()[:4]
NAMES: list[str] = []


def word_lengths(item):
    """Length of each word of a clip, in seconds."""
    NAMES.append(item.clip.name)
    unit = item.options.get("unit", 1)
    return Result(
        [{"word": word.text, "seconds": (word.end - word.start) / unit} for word in item.clip.words]
    )


def load_model():
    return trained("tiny-french-ctc")


@pytest.fixture
def kind():
    NAMES.clear()
    yield register_kind(ResultKind("word_lengths", word_lengths, columns={"seconds": "float64"}))
    forget_kind("word_lengths")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run without further kinds."""
    out = tmp_path_factory.mktemp("run") / "run"
    score_clips(load_model(), CLIPS, out, figures=0, measures=["attention"], **QUIET)
    return out


def copied(run, folder):
    import shutil

    return shutil.copytree(run, folder / "run")


def table_of(folder):
    return pd.read_parquet(folder / "word_lengths.parquet")


def test_a_kind_from_outside_is_computed_in_a_run_and_once(kind, tmp_path):
    given = {"figures": 0, "measures": ["attention"], "kinds": ["word_lengths"], **QUIET}
    run = score_clips(load_model(), CLIPS, tmp_path, **given)
    assert (run.done, len(NAMES)) == (4, 4)
    table = table_of(tmp_path)
    assert list(table)[:5] == ["clip", "fingerprint", "model", "init", "seed"]
    assert len(table) == sum(len(clip.words) for clip in CLIPS)
    score_clips(load_model(), CLIPS, tmp_path, **given)
    assert len(NAMES) == 4
    score_clips(load_model(), CLIPS, tmp_path, **{**given, "kinds": {"word_lengths": {"unit": 2}}})
    assert len(NAMES) == 8
    assert table_of(tmp_path).seconds.sum() == pytest.approx(table.seconds.sum() / 2)


def test_alone_it_leaves_the_run_as_it_is_and_the_run_leaves_it(kind, run, tmp_path):
    folder = copied(run, tmp_path)
    before = {name: content for name, content in snapshot(folder).items() if ".digests" not in name}
    compute_kinds(load_model(), CLIPS, folder, ["word_lengths"], **QUIET)
    after = snapshot(folder)
    assert {name: after.get(name) for name in before} == before
    table = table_of(folder)
    assert [job.text() for job in job_status(folder)] == [
        "word_lengths: 1 of 1 shards done, 0 failed"
    ]
    score_clips(load_model(), CLIPS, folder, figures=0, measures=["attention"], **QUIET)
    NAMES.clear()
    compute_kinds(load_model(), CLIPS, folder, ["word_lengths"], **QUIET)
    assert NAMES == []
    pd.testing.assert_frame_equal(table_of(folder), table)


def test_in_shards_it_has_the_table_of_one_process_and_status_says_what_is_missing(
    kind, tmp_path, capsys
):
    compute_kinds(load_model(), CLIPS, tmp_path / "one", ["word_lengths"], **QUIET)
    first = compute_kinds(
        load_model(), CLIPS, tmp_path / "two", ["word_lengths"], shard="2/2", **QUIET
    )
    assert not first.is_complete
    assert main(["status", str(tmp_path / "two")]) == 0
    assert "word_lengths: 1 of 2 shards done, 0 failed; missing: 1" in capsys.readouterr().out
    assert compute_kinds(
        load_model(), CLIPS, tmp_path / "two", ["word_lengths"], shard="1/2", **QUIET
    ).is_complete
    pd.testing.assert_frame_equal(table_of(tmp_path / "two"), table_of(tmp_path / "one"))


@pytest.mark.parametrize("after", [1, pytest.param(3, marks=pytest.mark.long)])
def test_killed_and_started_again_it_ends_as_if_nothing_had_happened(after, kind, run, tmp_path):
    compute_kinds(load_model(), CLIPS, copied(run, tmp_path / "whole"), ["word_lengths"], **QUIET)
    folder = copied(run, tmp_path / "killed")
    child = os.fork()
    if child == 0:

        def progress(stage, done, total):
            if done == after:
                os.kill(os.getpid(), signal.SIGKILL)

        compute_kinds(
            load_model(),
            CLIPS,
            folder,
            ["word_lengths"],
            progress=progress,
            report=lambda line: None,
        )
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    compute_kinds(load_model(), CLIPS, folder, ["word_lengths"], **QUIET)
    assert snapshot(folder) == snapshot(tmp_path / "whole" / "run")


@pytest.mark.long
def test_workers_compute_a_kind_of_the_package(tmp_path):
    compute_kinds([load_model], CLIPS, tmp_path / "one", ["states"], **QUIET)
    executor = LocalWorkers(2, "cpu")
    compute_kinds([load_model], CLIPS, tmp_path / "two", ["states"], executor=executor, **QUIET)
    assert [job.text() for job in job_status(tmp_path / "two")] == [
        "states: 2 of 2 shards done, 0 failed"
    ]


def test_explanations_alone_are_those_of_the_page(run, tmp_path):
    folder = copied(run, tmp_path)
    options = {
        "to_explain": ToExplain.of(CLIPS[:1], 1),
        "request": {"measures": "gradient_input", "top": 1},
    }
    compute_kinds(load_model(), CLIPS[:1], folder, {"explanations": options}, **QUIET)
    ((owner, clip, content),) = stored_explanations(open_run(folder).parts)
    assert (owner.label, clip) == ("tiny-french-ctc", CLIPS[0].name)
    assert {"text", "view"} == set(content)


def test_the_command_ablates_the_clips_of_a_run_alone(run, tmp_path, capsys):
    folder, model = copied(run, tmp_path), str(bundled.models()["tiny-french-ctc"])
    command = ["ablate", "--model", model, "--device", "cpu", "--out", str(folder)]
    assert main([*command, "--shard", "1/2"]) == 0
    assert main([*command, "--shard", "2/2"]) == 0
    assert set(open_run(folder).ablation["clip"]) == {clip.name for clip in CLIPS}
    assert main(["status", str(folder)]) == 0
    assert "ablation: 2 of 2 shards done, 0 failed" in capsys.readouterr().out


def test_names_of_kinds_are_checked(kind):
    assert find_kind("word_lengths") is kind
    with pytest.raises(InputError, match="no kind of result is called 'none'"):
        compute_kinds(load_model(), CLIPS, "nowhere", ["none"])
    with pytest.raises(InputError, match="no kind of the package has"):
        register_kind(ResultKind("ablation", word_lengths))


def test_knock_out_says_what_a_clip_lacks(tmp_path):
    clip = CLIPS[0].replace(cue=None, target=None, foil=None)
    run = compute_kinds(load_model(), [clip, CLIPS[1]], tmp_path, ["knock_out"], **QUIET)
    assert run.done == 1
    assert [left["clip"] for left in run.skipped] == [clip.name]
    assert "target" in run.skipped[0]["reason"]


def test_knock_out_in_a_run_is_that_of_the_function(tmp_path):
    import speechmix

    clips, model = CLIPS[:2], load_model()
    for shard in ("1/2", "2/2"):
        compute_kinds(model, clips, tmp_path, ["knock_out"], shard=shard, **QUIET)
    table = pd.read_parquet(tmp_path / "knock_out.parquet")
    assert set(table) == documented("knock_out")
    for clip in clips:
        found = speechmix.knock_out(model, clip).table
        stored = table[table["clip"] == clip.name]
        assert list(stored["layer"]) == list(found["layer"])
        assert list(stored["drop"]) == pytest.approx(list(found["drop"]), abs=1e-6)


# Word times: a kind of the clips, computed before the others.

UNALIGNED = [clip.replace(words=None, cue=None, target=None, foil=None) for clip in CLIPS]
WORDS_OF = {clip.name: [[word.text, word.start, word.end] for word in clip.words] for clip in CLIPS}


@pytest.fixture
def aligned_names(monkeypatch):
    """Names of the clips that are aligned, in turn; a model as aligner moves all words a little."""
    names = []

    def align(clip, *, model, method, tiers):
        names.append(clip.name)
        if clip.meta.get("fails"):
            raise AlignmentError("cannot be aligned")
        if clip.meta.get("kills"):
            os.kill(os.getpid(), signal.SIGKILL)
        shift = 0 if model is None else 0.001
        words = [(text, start, end - shift) for text, start, end in WORDS_OF[clip.name]]
        return clip.with_words(words, alignment="synthesis").with_doubts(["made up"])

    monkeypatch.setattr(word_times, "align", align)
    return names


def attention_run(out, clips=UNALIGNED, **options):
    given = {"figures": 0, "measures": ["attention"], **QUIET, **options}
    return score_clips(load_model(), clips, out, **given)


def word_ends(folder, job="knock_out"):
    return [clip.words[-1].end for clip in read_job_clips(RunFolder(folder), UNALIGNED, job)]


def test_word_times_alone_are_those_of_a_later_run(aligned_names, tmp_path, capsys):
    run = compute_kinds([], UNALIGNED, tmp_path, ["words"], **QUIET)
    assert (run.done, run.is_complete, len(aligned_names)) == (4, True, 4)
    assert len(list((tmp_path / "words").glob("*.TextGrid"))) == 4
    assert main(["status", str(tmp_path)]) == 0
    assert "words: 1 of 1 shards done, 0 failed" in capsys.readouterr().out
    attention_run(tmp_path)
    assert len(aligned_names) == 4
    assert main(["status", str(tmp_path)]) == 0
    assert "word times of 4 clips" in capsys.readouterr().out
    compute_kinds([], UNALIGNED, tmp_path, ["words"], **QUIET)
    assert len(aligned_names) == 4


def test_word_times_in_shards_are_those_of_one_process(aligned_names, tmp_path):
    for shard in ("2/2", "1/2"):
        run = compute_kinds([], UNALIGNED, tmp_path / "two", ["words"], shard=shard, **QUIET)
    assert run.is_complete
    assert sorted(aligned_names) == sorted(clip.name for clip in UNALIGNED)
    compute_kinds([], UNALIGNED, tmp_path / "one", ["words"], **QUIET)
    assert word_ends(tmp_path / "two", "words") == word_ends(tmp_path / "one", "words")


def test_a_job_without_an_aligner_uses_the_word_times_of_the_run(aligned_names, tmp_path):
    attention_run(tmp_path, aligner=load_model())
    compute_kinds(load_model(), UNALIGNED, tmp_path, ["states"], **QUIET)
    assert len(aligned_names) == 4
    assert word_ends(tmp_path, "states") == [words[-1][2] - 0.001 for words in WORDS_OF.values()]
    compute_kinds(load_model(), UNALIGNED, tmp_path, ["states"], align_method="synthesis", **QUIET)
    assert len(aligned_names) == 8
    assert word_ends(tmp_path, "states") == [words[-1][2] for words in WORDS_OF.values()]
    attention_run(tmp_path, aligner=load_model())
    assert len(aligned_names) == 8


@pytest.mark.parametrize("after", [1, pytest.param(3, marks=pytest.mark.long)])
def test_word_times_of_a_killed_job_are_found_again(after, aligned_names, tmp_path):
    compute_kinds([], UNALIGNED, tmp_path / "whole", ["words"], **QUIET)
    child = os.fork()
    if child == 0:
        aligned = ClipAligner._align

        def align(self, results, clip, is_new=False):
            if [one.name for one in UNALIGNED].index(clip.name) == after:
                results.write()
                os.kill(os.getpid(), signal.SIGKILL)
            return aligned(self, results, clip, is_new)

        ClipAligner._align = align
        compute_kinds([], UNALIGNED, tmp_path / "killed", ["words"], **QUIET)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    aligned_names.clear()
    compute_kinds([], UNALIGNED, tmp_path / "killed", ["words"], **QUIET)
    assert len(aligned_names) == 4 - after
    assert snapshot(tmp_path / "killed") == snapshot(tmp_path / "whole")


def test_block_workers_align_and_say_what_failed(aligned_names, tmp_path):
    clips = [*UNALIGNED[:3], UNALIGNED[3].replace(meta={"fails": "yes"})]
    one = attention_run(tmp_path / "one", clips)
    aligned_names.clear()
    executor = HereExecutor()
    given = {"figures": 0, "measures": ["attention"], "executor": executor, **QUIET}
    blocks = score_clips([load_model], clips, tmp_path / "blocks", **given)
    assert (executor.passes, sorted(aligned_names)) == (2, sorted(clip.name for clip in clips))
    assert blocks.skipped == one.skipped
    assert "cannot be aligned" in blocks.skipped[0]["reason"]
    assert snapshot(tmp_path / "blocks") == snapshot(tmp_path / "one")
    aligned_names.clear()
    score_clips([load_model], clips, tmp_path / "blocks", **given)
    assert aligned_names == [clips[3].name]


@pytest.mark.long
def test_local_workers_compute_word_times_alone(tmp_path):
    pytest.importorskip("espeakng_loader")
    compute_kinds([], UNALIGNED, tmp_path, ["words"], executor=LocalWorkers(2, "cpu"), **QUIET)
    assert [job.text() for job in job_status(tmp_path)] == ["words: 2 of 2 shards done, 0 failed"]
    assert all(clip.words for clip in read_job_clips(RunFolder(tmp_path), UNALIGNED, "words"))


# Every kind of the package: alone, in shards, by block workers (as Ray has them), killed and resumed.

OPTIONS_OF_KINDS = {
    "words": {},
    "written": {},
    "ablation": {},
    "transcripts": {},
    "states": {},
    "explanations": {"request": {"measures": "gradient_input", "top": 1}},
    "speech_ablation": {},
    "knock_out": {},
    "faithfulness": {"measures": ["gradient_input"], "perturbations": ["mute"]},
    "grounding": {"loop_heads": False},
    "lens": {"kind": "logit"},
    "listening": {},
    "listening_routes": {},
    "listening_seconds": {"seconds": 0.3},
    "look_ahead": {"delays_ms": [0, 80], "windows": ["all"]},
}
# Faithfulness has shards and kills in test_faithfulness_runs.py, grounding a second run in
# tests/cli/test_ground.py, explanations in tests/experiments/test_explaining.py, listening shards in
# tests/cli/test_listening.py, lenses a run in tests/interventions/test_lens.py; shards of knocking
# out are tested above.
SLOW_KINDS = {"speech_ablation", "listening_routes", "listening_seconds", "look_ahead"}
SLOW_KINDS |= {"faithfulness", "grounding", "explanations", "knock_out", "listening", "lens"}


def load_whisper():
    return trained("tiny-french-whisper")


def kind_job(name, **options):
    """A job of one kind, of two clips; texts are generated for clips without one."""
    clips = [CLIPS[0], CLIPS[1]]
    if name == "written":
        clips = [clip.replace(text=None) for clip in UNALIGNED[:2]]
    options_of_kind = OPTIONS_OF_KINDS[name]
    if name.startswith("listening"):
        spellings = [
            (clip, clip.text.replace(clip.words[clip.target].text, clip.foil)) for clip in clips
        ]
        clips = [
            clip.replace(meta={"answer": clip.text, "options": f"{clip.text}|{foil}"})
            for clip, foil in spellings
        ]
        donors = {clips[0].name: clips[1], clips[1].name: clips[0]}
        options_of_kind = options_of_kind or {"donors": donors}
    load = load_whisper if name == "written" or name.startswith("listening") else load_model
    models = [] if name == "words" else [load]
    clips = UNALIGNED[:2] if name == "words" else clips

    def job(folder, **more):
        kinds = {name: options_of_kind}
        return compute_kinds(models, clips, folder, kinds, **QUIET, **options, **more)

    return job


def results_of(folder):
    """All files but records of shards and locks."""
    content = snapshot(folder)
    return {name: digest for name, digest in content.items() if "/.shards/" not in name}


def test_all_kinds_of_the_package_are_tested():
    package_kinds = {kind.name for kind in registry._PACKAGE_KINDS}  # others may be registered
    # Distances of engines need an engine: tests/formats.
    assert set(OPTIONS_OF_KINDS) | {"contributions", "engine_distance"} == package_kinds
    with pytest.raises(InputError, match="the run itself"):
        compute_kinds(load_model(), CLIPS, "nowhere", ["contributions"])


@pytest.mark.usefixtures("aligned_names")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in SLOW_KINDS else [])
        for name in OPTIONS_OF_KINDS
    ],
)
def test_each_kind_is_the_same_alone_in_shards_by_workers_and_after_a_kill(name, tmp_path):
    job = kind_job(name)
    calls = count_calls(job, tmp_path / "one")
    run = job(tmp_path / "one")  # done: it is found
    assert (run.done, run.skipped) == (2, [])
    expected = results_of(tmp_path / "one")
    parts = [open_part(path) for path in RunFolder(tmp_path / "one").part_files()]
    assert sum(part.read(("kind",))["kind"].to_pylist().count(name) for part in parts) == 2
    assert [one.text() for one in job_status(tmp_path / "one")] == [
        f"{name}: 1 of 1 shards done, 0 failed"
    ]
    for shard in ("1/2", "2/2"):
        sharded = job(tmp_path / "shards", shard=shard)
    assert sharded.is_complete
    tables = {path for path in expected if not path.startswith("results/")}
    in_shards = results_of(tmp_path / "shards")
    assert {path: in_shards.get(path) for path in tables} == {
        path: expected[path] for path in tables
    }
    assert job(tmp_path / "blocks", executor=HereExecutor()).is_complete
    assert results_of(tmp_path / "blocks") == expected
    assert try_once(job, tmp_path / "killed", call=calls // 2)
    assert job(tmp_path / "killed").done == 2
    assert results_of(tmp_path / "killed") == expected


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([{"seconds": 1.0}], "`compute` should return a Result, found list"),
        (None, "`compute` should return a Result, found NoneType"),
        (Result({"seconds": 1.0}), "the content of its Result should be a list of dicts"),
        (Result([1.0]), "the content of its Result should be a list of dicts"),
        (Result([{"seconds": "x"}]), r"column 'seconds' should be float64, found \['x'\]"),
        (Result([{"seconds": 1.0, "clip": "a"}]), "by themselves; leave out clip"),
        (Result([{"seconds": 1.0}], "text"), "vectors of a Result are bytes, found str"),
        (Result([{"seconds": 1.0, "set": {1}}]), "as JSON is; found set"),
    ],
)
def test_what_a_kind_returns_is_checked_before_it_is_stored(kind, tmp_path, result, message):
    register_kind(ResultKind("word_lengths", lambda item: result, columns={"seconds": "float64"}))
    with pytest.raises(TypeError, match=message):
        compute_kinds(load_model, CLIPS[:1], tmp_path / "run", "word_lengths", **QUIET)
    register_kind(kind)
    compute_kinds(load_model, CLIPS[:1], tmp_path / "run", "word_lengths", **QUIET)
    assert len(table_of(tmp_path / "run")) == len(CLIPS[0].words)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"clip": "str"}, "mine: the table has columns .* already; leave out clip"),
        ({"db": "decibel"}, "mine: column 'db' needs a type of pandas, .* found 'decibel'"),
    ],
)
def test_columns_that_no_table_can_have_are_refused(columns, message):
    with pytest.raises(InputError, match=message):
        ResultKind("mine", word_lengths, columns=columns)


SOURCE = "bundled:tiny-french-ctc"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": SOURCE}, f"expected models, or functions .* found '{SOURCE}'.* speechmix.load"),
        ({"models": [SOURCE]}, f"expected models, or functions .* found '{SOURCE}'"),
        ({"models": None}, "expected models, or functions .* found None"),
        ({"models": iter([SOURCE])}, f"expected a model, or a function .* found '{SOURCE}'"),
        ({"models": lambda: SOURCE}, f"expected a model, or a function .* found '{SOURCE}'"),
        ({"clips": "bundled:clips"}, "expected a list of clips, found 'bundled:clips'"),
        ({"clips": CLIPS[0]}, "expected a list of clips, found"),
        ({"kinds": "nothing"}, "no kind of result is called 'nothing'"),
        ({"kinds": {"words": 3}}, "the options of the kind 'words' should be a mapping"),
    ],
)
def test_what_is_no_model_clip_or_kind_is_named(tmp_path, changes, message):
    given = {"models": load_model, "clips": CLIPS[:1], "kinds": ["transcripts"], **changes}
    for compute in (score_clips, compute_kinds):
        if compute is compute_kinds and "iter" in type(given["models"]).__name__:
            continue  # it is used up
        with pytest.raises(InputError, match=message):
            compute(**given, out=tmp_path / compute.__name__, **QUIET)


def test_one_function_that_loads_a_model_needs_no_list(kind, tmp_path):
    load = partial(speechmix.load, SOURCE)
    assert (
        score_clips(load, CLIPS[:1], tmp_path / "a", figures=0, kinds=kind.name, **QUIET).done == 1
    )
    assert compute_kinds(load, CLIPS[:1], tmp_path / "b", kind.name, **QUIET).done == 1

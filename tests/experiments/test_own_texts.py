"""A run of clips without a text: what each model wrote is kept, fed again, and never that of
another question."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import speechmix
from speechmix.adapters.generation import greedy_generation as writing
from speechmix.interfaces.cli import main
from speechmix.mixing.maps.mixing_map import MixingMap
from speechmix.runs.kinds.generated_texts import read_generated_texts
from speechmix.runs.results.clip_result_files import Owner, open_part, rows_table, write_part
from speechmix.runs.results.run_folder import RunFolder
from speechmix.runs.score_clips import score_clips
from tests.adapters.test_prefix import N_TIMES
from tests.scoring.test_mix import audio, byte_tokenizer, clip_of, whisper_that_hears

QUIET = {"progress": False, "report": lambda line: None, "figures": 0}
FRAMES = {"units": "frame", "window": (0.0, 0.2), "measures": ["attention"], **QUIET}


@pytest.fixture(scope="module")
def made():
    tokenizer = byte_tokenizer()
    return whisper_that_hears(
        tokenizer=tokenizer, vocab_size=len(tokenizer) + N_TIMES
    ).module, tokenizer


@pytest.fixture
def model(made):
    """Loaded anew for each start: it remembers nothing of the one before."""
    return speechmix.load(made[0], processor=made[1], check=False)


def without_text(name="a"):
    return clip_of(text=None, words=None, cue=None, target=None, name=name)


def stored(out, init="trained", stack="cross", name="a") -> MixingMap:
    (maps,) = [maps for key, maps in speechmix.open_run(out).maps(name).items() if key[1] == init]
    return maps["attention", stack]


def results_of(out, kind: str) -> list[dict]:
    """Rows of one kind in the part files of a run."""
    rows = [
        row for path in RunFolder(out).part_files() for row in open_part(path).read().to_pylist()
    ]
    return [row for row in rows if row["kind"] == kind]


def test_it_is_kept_and_used_again(model, made, tmp_path, monkeypatch):
    assert score_clips(model, [without_text()], tmp_path, **FRAMES).done == 1
    (row,) = results_of(tmp_path, "written")
    written = json.loads(row["content"])["written"]
    first = stored(tmp_path)
    assert first.provenance["decoder_text"] == written["text"]
    assert "transcript of the model" in first.provenance["decoder_text_by"]
    assert [unit.start for unit in first.targets] == list(range(len(written["ids"])))
    monkeypatch.setattr(writing, "generate_greedily", None)  # writing again would raise
    again = speechmix.load(made[0], processor=made[1], check=False)
    more = {**FRAMES, "measures": ["attention", "attention_norm"], "overwrite": True}
    assert score_clips(again, [without_text()], tmp_path, **more).done == 1
    assert len(results_of(tmp_path, "attention_norm")) == 1
    np.testing.assert_array_equal(stored(tmp_path).scores, first.scores)


def test_a_damaged_one_is_said_and_written_again(model, made, tmp_path):
    score_clips(model, [without_text()], tmp_path, **FRAMES)
    before = results_of(tmp_path, "written")
    (path,) = [path for path in RunFolder(tmp_path).part_files() if open_part(path).owner.name]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    lines: list[str] = []
    again = speechmix.load(made[0], processor=made[1], check=False)
    run = score_clips(again, [without_text()], tmp_path, **{**FRAMES, "report": lines.append})
    assert run.done == 1
    assert any("is damaged and made again" in line for line in lines)
    assert results_of(tmp_path, "written") == before


def test_a_twin_is_fed_what_the_trained_model_wrote(model, made, tmp_path):
    twin = speechmix.load(made[0], processor=made[1], init="random", seed=3, check=False)
    assert score_clips([model, twin], [without_text()], tmp_path, **FRAMES).done == 2
    of_twin, of_model = stored(tmp_path, "random"), stored(tmp_path)
    assert [unit.label for unit in of_twin.targets] == [unit.label for unit in of_model.targets]
    assert of_twin.provenance["decoder_text_by"] == of_model.provenance["decoder_text_by"]
    assert of_twin.scores.shape == of_model.scores.shape
    assert abs(of_twin.scores - of_model.scores).max() > 0.01


def test_what_was_written_last_counts_whatever_parts_are_called(tmp_path):
    """Parts of an earlier start, whose weights wrote something else, lie there until the run has
    ended."""
    folder = RunFolder(tmp_path)
    for first, second in (("0", "1"), ("1", "0")):
        for time, (name, text) in enumerate(
            [(first, "of the old weights"), (second, "of the new weights")]
        ):
            row = {
                "clip": "a",
                "kind": "written",
                "question": text,
                "content": json.dumps({"written": {"text": text}}),
            }
            owner = Owner("model", "trained", None, "model")
            write_part(
                folder.results_dir("model") / f"{name}.parquet",
                [rows_table([row])],
                owner,
                "1-of-1",
                {},
                {},
            )
            os.utime(folder.results_dir("model") / f"{name}.parquet", (time, time))
        assert read_generated_texts(folder, "model")["a"]["written"]["text"] == "of the new weights"


def test_a_map_behind_another_prefix_is_never_used_again(model, tmp_path):
    clip = clip_of(name="a").replace(translation="the books")
    score_clips(
        [model, model.with_prefix(task="translate")],
        [clip],
        tmp_path,
        measures=["attention"],
        **QUIET,
    )
    maps = speechmix.open_run(tmp_path).maps("a")
    assert len(maps) == 2
    told = [of_model["attention", "cross"].provenance for of_model in maps.values()]
    assert len({provenance["question"] for provenance in told}) == 2
    assert len({provenance["decoder_prefix"] for provenance in told}) == 2


def test_a_translation_has_no_cue_contribution_in_the_decoder(model, tmp_path):
    clip, told = clip_of(name="a").replace(foil="livre"), model.with_prefix(task="translate")
    run = score_clips(told, [clip], tmp_path, ablation=True, measures=["attention"], **QUIET)
    assert run.done == 1
    assert set(run.contributions["stack"]) == {"encoder"}
    assert run.ablation.empty
    assert run.transcripts.empty


def test_on_the_command_line(made, tmp_path, capsys):
    import soundfile
    import transformers

    module, tokenizer = made
    module.float().save_pretrained(tmp_path / "model")
    module.double()
    tokenizer.save_pretrained(tmp_path / "model")
    transformers.WhisperFeatureExtractor(chunk_length=2).save_pretrained(tmp_path / "model")
    soundfile.write(tmp_path / "a.wav", audio(), 16_000)
    (tmp_path / "a.tsv").write_text(
        "word\tstart\tend\nles\t0.1\t0.3\nlivres\t0.35\t0.8\n", encoding="utf-8"
    )
    manifest = tmp_path / "clips.tsv"
    manifest.write_text(
        "path\ttext\twords\ttranslation\na.wav\tles livres\ta.tsv\tthe books\n", encoding="utf-8"
    )
    arguments = ["score", str(manifest), "--model", str(tmp_path / "model"), "--figures", "0"]
    arguments += ["--measure", "attention", "--device", "cpu", "--prefix"]
    prefix = "task=translate,language={},timestamps=true"
    assert main([*arguments, prefix.format("en"), "--out", str(tmp_path / "run")]) == 0
    told = stored(tmp_path / "run", stack="decoder").provenance
    assert told["decoder_prefix"] == "<|startoftranscript|><|en|><|translate|><|0.10|>"
    assert told["decoder_text"] == "the books"
    assert told["model"] == "model (translate, as en, timestamps)"
    assert main([*arguments, prefix.format("xx"), "--out", str(tmp_path / "other")]) == 1
    assert "no language 'xx'; it has en, fr" in capsys.readouterr().err

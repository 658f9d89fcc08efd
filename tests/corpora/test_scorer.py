"""Scores as columns of a data set: the maps of `mix` again, row by row, in batches, in processes;
and bad rows."""

import pickle

import numpy as np
import pytest
import soundfile

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.dataset_scorer.dataset_scorer import clip_from_dataset_row
from speechmix.inputs import bundled
from tests.conftest import trained

datasets = pytest.importorskip("datasets")
MODEL = str(bundled.models()["tiny-french-whisper"])
OPTIONS = {"measures": ["value_zeroing", "attention"], "stacks": "encoder"}


def row_of(clip):
    sound = {"array": clip.audio(16_000).tolist(), "sampling_rate": 16_000}
    words = [{"word": word.text, "start": word.start, "end": word.end} for word in clip.words]
    spelled = {"cue": clip.words[clip.cue].text, "target": clip.words[clip.target].text}
    return {"audio": sound, "text": clip.text, "words": words, **spelled, "language": "fr"}


@pytest.fixture(scope="module")
def clips():
    return bundled.clips()[:3]


@pytest.fixture(scope="module")
def rows(clips):
    broken = {**row_of(clips[0]), "cue": "personne"}
    return datasets.Dataset.from_list([broken, *map(row_of, clips)])


def check(scored, clips):
    assert "personne" in scored[0]["score_error"]
    assert scored[0]["attention_encoder_scores"] is None
    for row, clip in zip(list(scored)[1:], clips, strict=True):
        assert (row["score_error"], row["score_doubts"]) == (None, None)
        maps = speechmix.mix(trained("tiny-french-whisper"), clip, **OPTIONS)
        for (measure, stack), m in maps.items():
            place = f"{measure}_{stack}"
            scores = np.reshape(row[f"{place}_scores"], row[f"{place}_shape"])
            np.testing.assert_allclose(scores, m.scores, rtol=1e-4, atol=1e-6)
            assert row[f"{place}_sources"] == [word.text for word in clip.words]
            assert row[f"{place}_layers"] == list(m.layers)
            share = speechmix.cue_contribution(m, cue=clip.cue, target=clip.target)
            np.testing.assert_allclose(row[f"{place}_cue_contribution"], share, rtol=1e-4)


def test_row_by_row_saved_and_read_again(rows, clips, tmp_path):
    score = speechmix.scorer(MODEL, **OPTIONS)
    scored = rows.map(score, features=score.features(rows.features))
    scored.save_to_disk(tmp_path)
    check(datasets.load_from_disk(tmp_path), clips)


@pytest.mark.long
def test_in_batches_and_in_processes(rows, clips):
    score = speechmix.scorer(MODEL, **OPTIONS)
    types = score.features(rows.features)
    check(rows.map(score, batched=True, batch_size=3, features=types), clips)
    check(rows.map(score, num_proc=2, features=types), clips)


def test_a_batch_is_its_rows_and_the_function_is_pickled_without_weights(rows, clips):
    score = speechmix.scorer(trained("tiny-french-whisper"), measures="attention", stacks="encoder")
    batch = score(rows[:2])
    assert {name: cells[1] for name, cells in batch.items() if "scores" not in name} == {
        name: cell for name, cell in score(rows[1]).items() if "scores" not in name
    }
    named = speechmix.scorer(MODEL, **OPTIONS)
    named(rows[1])
    assert len(pickle.dumps(named)) < 10_000
    assert pickle.loads(pickle.dumps(named))(rows[0])["score_error"]


def test_every_form_of_a_recording_is_the_same_sound(clips, tmp_path):
    clip = clips[0]
    soundfile.write(tmp_path / "a.wav", clip.audio(16_000), 16_000, subtype="FLOAT")
    content = (tmp_path / "a.wav").read_bytes()
    path = str(tmp_path / "a.wav")
    for sound in (
        path,
        {"path": path, "bytes": None},
        {"path": None, "bytes": content},
        row_of(clip)["audio"],
    ):
        np.testing.assert_allclose(
            clip_from_dataset_row({"audio": sound}).audio(16_000), clip.audio(16_000), atol=1e-6
        )
    for sound, message in (
        ({"bytes": b"no sound"}, "cannot be read"),
        ({"bytes": None}, "found none"),
        (3, "found int"),
        ({"bytes": "text"}, "cannot be read"),
        ({"array": [0.0], "sampling_rate": None}, "array, sampling_rate"),
        ({"array": ["a"], "sampling_rate": 16_000}, "array, sampling_rate"),
    ):
        with pytest.raises(InputError, match=message):
            clip_from_dataset_row({"audio": sound})


@pytest.mark.parametrize("change", [{"audio": None}, {"text": 5}, {"words": 5}])
def test_what_is_wrong_with_a_row_is_a_column_of_it(clips, change):
    score = speechmix.scorer(trained("tiny-french-whisper"), measures="attention", stacks="encoder")
    assert "expected" in score({**row_of(clips[0]), **change})["score_error"]


def test_words_in_the_format_of_numpy_are_words(clips):
    row = row_of(clips[0])
    words = np.array(
        [[word["word"], word["start"], word["end"]] for word in row["words"]], dtype=object
    )
    assert clip_from_dataset_row({**row, "words": words}).words == clip_from_dataset_row(row).words


def test_what_concerns_all_rows_is_raised_at_once(rows):
    with pytest.raises(InputError, match="unknown option mesures"):
        speechmix.scorer(MODEL, mesures="attention")
    with pytest.raises(InputError, match="expected one of the columns audio"):
        speechmix.scorer(MODEL, **OPTIONS)({"text": "les livres"})

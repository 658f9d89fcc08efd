"""The agreement recipe, end to end, on tiny random models. SYNTHETIC: their vocabulary is made from
the sentences."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from matplotlib.figure import Figure
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

import speechmix
from speechmix.extensions.agreement import agreement_study
from speechmix.extensions.agreement import item_scoring as agreement_scoring
from speechmix.extensions.agreement.blimp import expand_contractions, read_blimp
from speechmix.extensions.agreement.item_selection import split_halves
from speechmix.mixing.maps.numerics import DISTANCES

ROOT = Path(__file__).resolve().parents[2]
PAIRS = {
    "regular_plural_subject_verb_agreement_1": [
        ("Most ladies haven't left.", "Most ladies hasn't left."),
        ("A lot of cashiers were here.", "A lot of cashiers is here."),
        ("Dan has left.", "Dan have left."),
        ("That bird sings.", "That bird sing."),
        ("Dan zigzags here.", "Dan zigzag here."),  # not in the vocabulary
    ],
    "determiner_noun_agreement_2": [
        ("Dan sees these birds.", "Dan sees this birds."),
        ("Ann can't see that lady.", "Ann can't see those lady."),
    ],
}
FEW = ["value_zeroing", "attention", "globenc"]


@pytest.fixture(scope="module")
def recipe():
    spec = importlib.util.spec_from_file_location(
        "english_agreement", ROOT / "recipes" / "english_agreement.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def blimp(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("blimp")
    for paradigm, pairs in PAIRS.items():
        lines = [
            {"sentence_good": a, "sentence_bad": b, "pairID": str(i)}
            for i, (a, b) in enumerate(pairs)
        ]
        (folder / f"{paradigm}.jsonl").write_text(
            "".join(json.dumps(line) + "\n" for line in lines)
        )
    return folder


def vocabulary(texts, *, without=()) -> list[str]:
    words = {
        word for text in texts for word in re.findall(r"\w+|\.", expand_contractions(text).lower())
    }
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    return [
        *letters,
        *(f"##{letter}" for letter in letters),
        *sorted(words - set(without) - set(letters)),
    ]


def save_bert(folder: Path, words: list[str]) -> Path:
    """Tiny random BERT in hub format, with a WordPiece vocabulary."""
    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    transformers.BertTokenizer(vocab={word: i for i, word in enumerate(known)}).save_pretrained(
        folder
    )
    torch.manual_seed(5)
    size = {
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    config = transformers.BertConfig(
        vocab_size=len(known), max_position_embeddings=40, initializer_range=0.3, **size
    )
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> Path:
    texts = [text for pairs in PAIRS.values() for pair in pairs for text in pair]
    return save_bert(
        tmp_path_factory.mktemp("models") / "tiny-bert",
        vocabulary(texts, without=["zigzag", "zigzags"]),
    )


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory) -> Path:
    """Tiny random GPT-2 in hub format, with a vocabulary of whole words."""
    folder = tmp_path_factory.mktemp("models") / "tiny-gpt2"
    words = [
        "<unk>",
        *vocabulary(
            [text for pairs in PAIRS.values() for pair in pairs for text in pair],
            without=["zigzag"],
        ),
    ]
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    )
    tokenizer.normalizer, tokenizer.pre_tokenizer = (
        normalizers.Lowercase(),
        pre_tokenizers.Whitespace(),
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>"
    ).save_pretrained(folder)
    torch.manual_seed(6)
    config = transformers.GPT2Config(
        vocab_size=len(words), n_embd=24, n_layer=2, n_head=2, n_positions=40
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def undrawn(monkeypatch):
    """An empty figure in place of the tables: they are drawn, slowly, in the first test."""
    monkeypatch.setattr(
        agreement_study, "alignment_figure", lambda *_, **__: Figure(figsize=(1, 1))
    )


def run(recipe, blimp, model, out, *more: str) -> int:
    arguments = ["--blimp", str(blimp), "--model", str(model), "--out", str(out), "--device", "cpu"]
    return recipe.main([*arguments, "--measures", *FEW, *more])


@pytest.fixture(scope="module")
def finished(recipe, blimp, bert, tmp_path_factory) -> Path:
    """A whole run of the trained model alone."""
    out = tmp_path_factory.mktemp("finished") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agreement_study, "alignment_figure", lambda *_, **__: Figure(figsize=(1, 1)))
        assert run(recipe, blimp, bert, out, "--seeds") == 0
    return out


@pytest.fixture
def copied(finished, tmp_path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


@pytest.mark.long
def test_a_masked_model_from_the_sentences_to_table_and_figure(
    recipe, blimp, bert, tmp_path, capsys
):
    assert run(recipe, blimp, bert, tmp_path, "--seeds", "0", "1") == 0
    printed = capsys.readouterr().out
    assert re.search(r"regular_plural_subject_verb_agreement_1 +5 +4 +4 +4\n", printed)
    assert "dot product, tiny-bert (trained), 6 sentences, chance" in printed
    assert printed.index("tiny-bert (trained) does the task in") < printed.index("dot product")
    assert "NOT the five paradigms of the published table" in printed
    assert "18 done, 1 left out" in printed  # 6 sentences; trained and two twins
    table = pd.read_csv(tmp_path / "cue_alignment.csv")
    assert len(table) == 18 * len(FEW) * 2
    assert set(table["stack"]) == {"encoder"}
    assert table["dot_product"].between(0, 1).all()
    assert table["average_precision"].between(0, 1).all()
    means = pd.read_csv(tmp_path / "means.csv")
    assert set(means["items"]) == {6}
    assert means[["low", "high"]].isna().all(axis=None)  # six sentences: too few for an interval
    left_out = pd.read_csv(tmp_path / "left_out.csv")
    assert left_out["item"].tolist() == ["regular_plural_subject_verb_agreement_1-4"]
    assert left_out["why"].tolist() == ["target and foil are not one token"]
    for name in (
        "dot_product.png",
        "dot_product.svg",
        "average_precision.png",
        "average_precision.svg",
    ):
        assert (tmp_path / name).stat().st_size > 10_000


@pytest.mark.usefixtures("undrawn")
def test_its_numbers_are_those_of_the_masks_row(bert, finished):
    table = pd.read_csv(finished / "cue_alignment.csv")
    chosen = table[
        (table["item"] == "regular_plural_subject_verb_agreement_1-1")
        & (table["measure"] == "attention")
    ]
    model = speechmix.load(str(bert), device="cpu")
    maps = speechmix.mix(
        model, "A lot of cashiers <mask> here.", measures=["attention"], units="token"
    )
    scores = maps["attention", "encoder"].scores  # [CLS] a lot of cashiers [MASK] here . [SEP]
    assert scores.shape == (2, 9, 9)
    row = scores[:, 5] / scores[:, 5].sum(axis=-1, keepdims=True)
    assert chosen["dot_product"].to_numpy() == pytest.approx(row[:, 4], abs=1e-6)
    assert chosen["average_precision"].to_numpy() == pytest.approx(
        [1 / np.sum(r >= r[4]) for r in row], abs=1e-6
    )
    assert chosen["chance_dot_product"].to_numpy() == pytest.approx(1 / 9, abs=1e-6)


@pytest.mark.usefixtures("undrawn")
def test_a_stopped_run_goes_on_and_another_question_is_refused(
    recipe, blimp, bert, copied, capsys, monkeypatch
):
    before = pd.read_csv(copied / "cue_alignment.csv")
    lines = copied / "alignment" / "tiny-bert.jsonl"
    text = lines.read_text()
    lines.write_text(text[: text.rindex('"rows"')])  # stopped while the last line was written
    asked = []

    def counting(model, sentence, **options):
        asked.append(sentence.name)
        return mix(model, sentence, **options)

    mix = agreement_scoring.mix_one
    monkeypatch.setattr(agreement_scoring, "mix_one", counting)
    assert run(recipe, blimp, bert, copied, "--seeds") == 0
    assert (
        len(asked) == len(FEW) + 1
    )  # what is possible is tried on the first sentence; then the one that is missing
    pd.testing.assert_frame_equal(pd.read_csv(copied / "cue_alignment.csv"), before)
    assert lines.read_text() == text
    assert run(recipe, blimp, bert, copied, "--seeds", "--units", "word") == 1
    assert "holds a run with other options (units 'token', now 'word')" in capsys.readouterr().err
    assert run(recipe, blimp, bert, copied, "--seeds", "--units", "word", "--overwrite") == 0


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    "changed", ["cue", "target", "foil", "dtype", "seed", "units", "subtokens", "objective", "rows"]
)
def test_a_stored_result_is_used_only_if_all_that_went_into_it_is_the_same(
    recipe, blimp, bert, copied, changed
):
    """One ingredient of one stored line is changed: that line is made again, and no other."""
    path = copied / "alignment" / "tiny-bert.jsonl"
    lines = path.read_text().splitlines()
    one = json.loads(lines[0])
    if changed == "rows":
        one["rows"][0] = one["rows"][0][:3]
    elif changed in ("foil",):
        one["asked"]["sentence"] = "0" * 32
    else:
        assert changed in one["asked"]
        one["asked"][changed] = "another"
    path.write_text("\n".join([json.dumps(one), *lines[1:], "[]", '{"asked": 3}', ""]))
    assert run(recipe, blimp, bert, copied, "--seeds") == 0
    assert sorted(line for line in path.read_text().splitlines() if line in lines) == sorted(lines)
    assert len(path.read_text().splitlines()) == len(lines) + (changed != "rows")
    assert not list(copied.rglob("*.part"))


def test_a_damaged_description_is_one_error(recipe, blimp, bert, tmp_path, capsys):
    (tmp_path / "run.json").write_text("{")
    assert run(recipe, blimp, bert, tmp_path, "--seeds") == 1
    assert "run.json is damaged" in capsys.readouterr().err


@pytest.mark.usefixtures("undrawn")
def test_a_causal_model_is_asked_where_it_predicts_and_not_about_later_cues(
    recipe, blimp, gpt2, tmp_path, capsys
):
    assert run(recipe, blimp, gpt2, tmp_path, "--seeds") == 0
    printed = capsys.readouterr().out
    assert "globenc cannot be taken here (tiny-gpt2)" in printed
    left_out = pd.read_csv(tmp_path / "left_out.csv")
    assert (left_out["why"] == "cue after target").sum() == 2
    table = pd.read_csv(tmp_path / "cue_alignment.csv")
    assert set(table["paradigm"]) == {"regular_plural_subject_verb_agreement_1"}
    assert set(table["measure"]) == {"value_zeroing", "attention"}
    one = table[
        (table["item"] == "regular_plural_subject_verb_agreement_1-1")
        & (table["measure"] == "attention")
    ]
    model = speechmix.load(str(gpt2), device="cpu")
    scores = speechmix.mix(model, "A lot of cashiers were here.", measures=["attention"])[
        "attention", "decoder"
    ].scores
    assert one["dot_product"].to_numpy() == pytest.approx(
        scores[:, 3, 3], abs=1e-6
    )  # "cashiers" predicts "were"
    assert one["chance_dot_product"].to_numpy() == pytest.approx(1 / 4, abs=1e-6)


@pytest.mark.usefixtures("undrawn")
def test_gradients_are_of_the_targets_logit_or_of_its_contrast_with_the_foil(
    recipe, blimp, bert, gpt2, tmp_path
):
    found = {}
    for model in (bert, gpt2):
        for objective in ("logit", "contrast"):
            out = tmp_path / f"{model.name}-{objective}"
            more = ["--measures", "gradient_input", "--objective", objective, "--seeds"]
            assert run(recipe, blimp, model, out, *more) == 0
            found[model.name, objective] = pd.read_csv(out / "cue_alignment.csv")["dot_product"]
            assert found[model.name, objective].between(0, 1).all()
        assert not np.allclose(found[model.name, "logit"], found[model.name, "contrast"])


def test_mistakes_end_with_a_message(recipe, blimp, bert, tmp_path, capsys):
    assert run(recipe, tmp_path, bert, tmp_path / "a") == 1
    assert "expected one or more of anaphor_number_agreement.jsonl" in capsys.readouterr().err
    assert run(recipe, blimp, bert, tmp_path / "b", "--measures", "vibes") == 1
    assert "unknown measure 'vibes'" in capsys.readouterr().err
    assert run(recipe, blimp, tmp_path / "no-model", tmp_path / "c") == 1
    assert "no such folder" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


@pytest.mark.long
@pytest.mark.usefixtures("undrawn")
def test_on_the_real_sentences(recipe, shared, tmp_path, capsys):
    folder = shared / "data" / "blimp"
    items, _ = read_blimp(folder)
    words = vocabulary([text for item in items for text in (item.text, item.foil)])
    model = save_bert(tmp_path / "tiny-bert", words)
    assert run(recipe, folder, model, tmp_path / "run", "--items", "2", "--seeds") == 0
    printed = capsys.readouterr().out
    assert "10 done" in printed
    assert len(re.findall(r" 1000 +1000 +1000 +2\n", printed)) == 4
    assert re.search(r"regular_plural_subject_verb_agreement_1 +1000 +990 +990 +2\n", printed)
    table = pd.read_csv(tmp_path / "run" / "cue_alignment.csv")
    assert (table.groupby(["paradigm", "number"])["item"].nunique() == 1).all()


@pytest.mark.usefixtures("undrawn")
def test_accuracy_is_that_of_transformers_alone_and_stands_beside_every_map(bert, finished):
    decisions = pd.read_csv(finished / "decisions.csv").set_index("item")
    module = transformers.BertForMaskedLM.from_pretrained(bert).eval()
    tokenizer = transformers.BertTokenizer.from_pretrained(bert)
    right = []
    for paradigm, pairs in PAIRS.items():
        for number, (good, bad) in enumerate(pairs):
            words, others = (
                re.findall(r"\w+|\.", expand_contractions(text).lower()) for text in (good, bad)
            )
            place = next(i for i, (a, b) in enumerate(zip(words, others, strict=True)) if a != b)
            forms = tokenizer.convert_tokens_to_ids([words[place], others[place]])
            if tokenizer.unk_token_id in forms:
                continue
            ids = tokenizer(
                " ".join([*words[:place], "[MASK]", *words[place + 1 :]]), return_tensors="pt"
            )
            with torch.no_grad():
                logits = module(**ids).logits[0, place + 1]
            right.append(bool(logits[forms[0]] > logits[forms[1]]))
            margin = decisions.loc[f"{paradigm}-{number}", "margin"]
            assert margin == pytest.approx(float(logits[forms[0]] - logits[forms[1]]), abs=1e-5)
    assert len(right) == len(decisions) == 6
    shares = pd.read_csv(finished / "accuracy.csv")
    assert shares.loc[shares["paradigm"] == "all", "accuracy"].tolist() == [
        pytest.approx(np.mean(right))
    ]
    assert pd.read_csv(finished / "means.csv")["accuracy"].unique().tolist() == [
        pytest.approx(np.mean(right))
    ]


def many(folder: Path) -> Path:
    """Sentences enough for two halves; the noun before the verb tells the number, behind "of" it
    misleads."""
    folder.mkdir()
    names = "bird lady boy girl actor waiter".split()
    for paradigm, between in (
        ("regular_plural_subject_verb_agreement_1", ""),
        ("distractor_agreement_relational_noun", "of the {}"),
    ):
        lines = []
        for noun, other in itertools.permutations(names, 2):
            for good, bad in (("has", "have"), ("have", "has")):
                s = "" if good == "has" else "s"
                middle = between.format(other + ("" if s else "s"))
                start = " ".join(f"The {noun}{s} {middle}".split())
                pair = {
                    key: f"{start} {form} left the {other}."
                    for key, form in (("sentence_good", good), ("sentence_bad", bad))
                }
                lines.append(json.dumps({**pair, "pairID": str(len(lines))}))
        (folder / f"{paradigm}.jsonl").write_text("\n".join(lines))
    return folder


@pytest.mark.long
@pytest.mark.usefixtures("undrawn")
def test_fine_tuning_on_one_half_is_scored_on_the_other(recipe, tmp_path, capsys):
    folder = many(tmp_path / "blimp")
    items, _ = read_blimp(folder)
    model = save_bert(
        tmp_path / "tiny-bert",
        vocabulary([text for item in items for text in (item.text, item.foil)]),
    )
    more = [
        "--fine-tune",
        "--learning-rate",
        "0.01",
        "--epochs",
        "12",
        "--batch-size",
        "8",
        "--seeds",
        "--items",
        "4",
    ]
    out = tmp_path / "run"
    assert run(recipe, folder, model, out, *more) == 0
    printed = capsys.readouterr().out
    assert "fine-tune on 60 sentences of the training half" in printed
    decisions = pd.read_csv(out / "decisions.csv")
    right = decisions.groupby("init")["right"].mean()
    assert right["fine-tuned"] > max(right["trained"], 0.8)
    train, test = split_halves(items)
    assert set(decisions["item"]) <= {item.name for item in test}
    facts = json.loads((out / "fine_tuned" / "training.json").read_text())
    assert facts["sentences_used"] == len(train)
    table = pd.read_csv(out / "cue_alignment.csv")
    of = table[table["paradigm"] == "distractor_agreement_relational_noun"]
    assert of["share_attractor"].between(0, 1).all()
    assert (of["dot_product"] + of["share_attractor"] + of["share_special"] <= 1 + 1e-9).all()
    assert (
        table.loc[table["paradigm"] != "distractor_agreement_relational_noun", "share_attractor"]
        .isna()
        .all()
    )
    stamp = (out / "fine_tuned" / "model.safetensors").stat().st_mtime_ns
    assert run(recipe, folder, model, out, *more) == 0  # again: nothing is trained or scored
    assert (out / "fine_tuned" / "model.safetensors").stat().st_mtime_ns == stamp
    assert run(recipe, folder, model, out, "--fine-tune", "--half", "all", "--overwrite") == 1
    assert "leave --half out, found all" in capsys.readouterr().err


@pytest.mark.usefixtures("undrawn")
@pytest.mark.long
def test_distances_of_value_zeroing_in_one_command(recipe, blimp, bert, tmp_path, capsys):
    assert run(recipe, blimp, bert, tmp_path, "--seeds", "--distances") == 0
    assert "rank correlation, tiny-bert (trained), 6 sentences\n" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "cue_alignment.csv")
    assert set(table["measure"]) == {f"value_zeroing, {name}" for name in DISTANCES}
    means = pd.read_csv(tmp_path / "means.csv")
    rank = means[means["metric"] == "rank_correlation"].groupby("measure")["mean"].min()
    assert rank["value_zeroing, cosine"] == 1
    assert rank["value_zeroing, unit_euclidean"] == pytest.approx(1)


def test_the_unified_set_needs_the_published_paradigms(recipe, blimp, bert, tmp_path, capsys):
    assert run(recipe, blimp, bert, tmp_path / "a", "--unified") == 1
    assert "found none of anaphor_number_agreement" in capsys.readouterr().err

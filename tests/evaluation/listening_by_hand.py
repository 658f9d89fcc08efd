"""Items, and listening reports compared with runs of the model by hand, for any kind of model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import speechmix
from speechmix.extensions.listening.effects import CONDITIONS, PLAYERS
from speechmix.extensions.listening.items import ListeningItem
from speechmix.extensions.listening.listening import estimate_listening
from speechmix.extensions.listening.questions import Question


def make_clip(number, seconds):
    samples = 0.1 * np.random.default_rng(number).standard_normal(round(16_000 * seconds))
    return speechmix.Clip.from_array(samples, 16_000, name=f"clip{number}", language="fr")


def make_items():
    return [
        ListeningItem(make_clip(0, 1.5), "qui dort", "chat", ("chat", "chien")),
        ListeningItem(
            make_clip(1, 1.0), "qui dort", "chien", ("chat", "chien"), "le chat dort", "chat"
        ),
        ListeningItem(make_clip(2, 1.2), "que dit la voix", "le chat dort"),
    ]


def report(model, asked):
    """The report, with what must hold for any model."""
    found = speechmix.listening(model, asked)
    assert not found.skipped
    for item in asked:
        rows = found.conditions[found.conditions["item"] == item.name].set_index("condition")
        assert tuple(rows.index) == CONDITIONS
        assert rows["passes"].eq(1).all()
        assert rows["log_probability"].map(np.isfinite).all()
        assert rows["log_probability"].nunique() == len(CONDITIONS)  # each changes the answer
        total = sum(rows.loc["sound", f"shapley_{player}"] for player in PLAYERS)
        nothing = answer_behind_prompt(model, item)
        assert total == pytest.approx(rows.loc["sound", "log_probability"] - nothing, abs=1e-9)
    assert estimate_listening(model, asked).passes == 6 * len(asked)
    return found


def answer_behind_prompt(model, item):
    """Log-probability of the answer without sound and prompt, each of its tokens as if it were the first."""
    question = Question(model, item)
    inputs = question.remove_prompt("silence", question.inputs("silence"))
    [rows] = question.log_probabilities(inputs)
    ids = {option: token_ids(model, option) for option in item.options or (item.answer,)}
    if not item.options:
        return sum(float(rows[0, 0, token]) for token in ids[item.answer])
    depth = first_difference(*ids.values())
    scores = rows[0, 0, [tokens[depth] for tokens in ids.values()]].log_softmax(dim=0)
    return float(scores[item.options.index(item.answer)])


def first_difference(one, other):
    return next(depth for depth, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)


def token_ids(model, text):
    space = "" if model.takes_chat else " "
    return model.tokenizer(space + text, add_special_tokens=False)["input_ids"]


def teacher_forced(model, inputs, name, answer):
    """Log-probability of each token of an answer, from a run of the module itself."""
    ids = token_ids(model, answer)
    fed = {key: x.to(model.dtype) if x.is_floating_point() else x for key, x in inputs.items()}
    start = fed[name].shape[1]
    fed[name] = torch.cat([fed[name], torch.tensor([ids])], dim=1)
    if "attention_mask" in fed and name == "input_ids":
        fed["attention_mask"] = torch.ones_like(fed[name])
    with torch.no_grad():
        rows = model.module(**fed).logits[0, start - 1 : -1].double().log_softmax(dim=-1)
    return [float(row[token]) for row, token in zip(rows, ids, strict=True)]


def compare_with_runs_by_hand(model, found, asked, inputs_by_hand, name):
    """The probabilities of a report, and those of the module with each answer behind the prompt.

    In 32 bits, sums over another number of positions are rounded otherwise.
    """
    tolerance = 1e-9 if model.dtype == torch.float64 else 1e-4
    for item in asked:
        own = found.conditions.query("item == @item.name and condition == 'sound'").iloc[0]
        inputs = inputs_by_hand(item)
        right = teacher_forced(model, inputs, name, item.answer)
        if not item.options:
            assert own["log_probability"] == pytest.approx(sum(right), abs=tolerance)
            continue
        [wrong] = [option for option in item.options if option != item.answer]
        depth = first_difference(token_ids(model, item.answer), token_ids(model, wrong))
        odds = right[depth] - teacher_forced(model, inputs, name, wrong)[depth]
        assert own["log_odds"] == pytest.approx(odds, abs=tolerance)
        expected = 1 / (1 + np.exp(-odds))
        assert own["probability"] == pytest.approx(expected, abs=tolerance)

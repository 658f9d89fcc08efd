"""A word's own sound can be set aside; what the sound contributes is told from a CTC model's bonus
for a shorter spelling."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import speechmix
from speechmix.extensions.explain.page import explanation_view
from speechmix.inputs import bundled
from tests.conftest import trained
from tests.explanations.test_explain import CTC, WHISPER, clip_named, log_probabilities, model_named
from tests.reports.chromium import EXECUTABLE, Browser


@pytest.fixture(scope="module")
def explained():
    measures = ["occlusion", "alti_logit", "attention"]
    return speechmix.explain(
        model_named(WHISPER), clip_named(), measures=measures, against=("foil", "reference")
    )


def test_it_is_the_segment_of_the_very_word(explained):
    table = explained.to_dataframe()
    assert {
        (row.written, row.label, row.side) for row in table[table["own_sound"]].itertuples()
    } == {
        ("nos", "nos", "sound"),
        ("maisons", "maisons", "sound"),
    }
    assert not table[(table["written"] == "(end)") & (table["against"] == "")]["own_sound"].any()


def test_errors_pauses_and_words_that_nobody_said():
    clip = clip_named()
    (start, end), (begin, stop) = ((word.start, word.end) for word in clip.words)
    misheard = clip.replace(
        text=None,
        words=[("nos", start, end), ("saisons", begin, stop)],
        cue=None,
        target=None,
        foil=None,
    )
    why = speechmix.explain(model_named(CTC), misheard, measures="occlusion", include=["silence"])
    own = {
        choice.name: [why.sources[i].label for i in np.flatnonzero(why.own_sound[place])]
        for place, choice in enumerate(why.choices)
    }
    assert list(own.values()) == [["saisons"], ["nos"], ["saisons"]]  # the error, and both words
    made_up = clip.replace(
        text=None, words=[("maisons", begin, stop)], cue=None, target=None, foil=None
    )
    why = speechmix.explain(model_named(CTC), made_up, measures="occlusion")
    assert not why.own_sound[why.choice("nos")].any()


def test_without_it_shares_are_of_the_others_and_ranks_and_effects_follow(explained):
    place, others = explained.choice("maisons"), explained.without_own_sound()
    own = int(np.flatnonzero(explained.own_sound[place])[0])
    shares, left = (
        explained.attributions["attention"].values[place],
        others.attributions["attention"].values[place],
    )
    known = np.delete(np.arange(len(shares)), own)
    np.testing.assert_allclose(left[known], shares[known] / (1 - shares[own]), equal_nan=True)
    for values in (left, others.drops[place], others.attributions["alti_logit"].values[place]):
        assert np.isnan(values[own])
    np.testing.assert_allclose(
        others.attributions["alti_logit"].rest, explained.attributions["alti_logit"].rest
    )
    table = explained.to_dataframe(own_sound=False)
    assert not table["own_sound"].any()
    assert (table.groupby(["unit", "against", "measure"])["rank"].min() == 1).all()
    assert (
        others.top("maisons", "alti_logit").name
        != explained.top("maisons", "alti_logit").name
        == "maisons"
    )
    assert "; other sources only: nos " in explained.details()


def path_margin(model, clip, texts):
    """By torch's own CTC loss, in double precision."""
    scores, blank = log_probabilities(model, clip), model.config.pad_token_id
    ids = [torch.tensor([model.tokenizer(text).input_ids]) for text in texts]
    lengths = torch.tensor([len(scores)])
    losses = [
        torch.nn.functional.ctc_loss(
            scores[:, None],
            labels,
            lengths,
            torch.tensor([labels.shape[1]]),
            blank=blank,
            reduction="sum",
        )
        for labels in ids
    ]
    return float(losses[1] - losses[0])


@pytest.mark.parametrize("name", ["left_00_sg", "left_00_pl"])
def test_the_margin_of_two_spellings_with_and_without_the_sound(name):
    model, clip = model_named(CTC), clip_named(name)
    why = speechmix.explain(model, clip, measures="occlusion", against=("foil", "runner_up"), top=0)
    place = next(place for place, choice in enumerate(why.choices) if choice.against == "foil")
    texts = (clip.text, f"{clip.words[0].text} {clip.foil}")
    assert why.spellings.margin[place] == pytest.approx(path_margin(model, clip, texts), abs=1e-8)
    prior = [
        path_margin(model, speechmix.mute(clip, (0, 1), fill=fill), texts)
        for fill in ("zeros", "room", "noise")
    ]
    np.testing.assert_allclose(why.spellings.prior_by_fill[:, place], prior, atol=1e-8)
    evidence = why.spellings.margin[place] - np.median(prior)
    assert why.spellings.evidence[place] == pytest.approx(evidence)
    assert f"So the sound changes this difference by {evidence:+.1f} nats" in why.details()
    assert np.isnan(
        np.delete(why.spellings.evidence, place)
    ).all()  # a runner-up is a letter, and no spelling
    row = why.to_dataframe().query("against == 'foil'").iloc[0]
    assert (row["spelling_margin"], row["spelling_prior"]) == pytest.approx(
        (why.spellings.margin[place], np.median(prior))
    )


def test_without_the_sound_the_shorter_spelling_is_preferred_by_as_much_as_its_margin():
    """So the margin of the singular is a bonus, and only the plural's comes from the sound."""
    model, found = trained(CTC), []
    clips = [
        clip for clip in bundled.clips() if clip.name.startswith("left_0") and clip.foil is not None
    ]
    for clip in clips[:10]:
        why = speechmix.explain(model, clip, measures="occlusion", against="foil", top=0)
        places = [place for place, choice in enumerate(why.choices) if choice.against == "foil"]
        letters = len(clip.words[clip.target].text) - len(clip.foil)
        found += [
            (letters, why.spellings.margin[p], why.spellings.prior[p], why.spellings.evidence[p])
            for p in places
        ]
    letters, margins, priors, evidence = np.array(found).T
    assert len(found) >= 8
    assert (np.sign(priors) == -np.sign(letters)).all()
    shorter, longer = letters < 0, letters > 0
    assert margins[shorter].mean() == pytest.approx(margins[longer].mean(), abs=4)
    assert np.abs(evidence[shorter]).mean() < 0.4 * margins[shorter].mean()
    assert evidence[longer].mean() > 1.5 * margins[longer].mean()


def test_other_models_have_no_prior(explained):
    assert explained.spellings.prior_by_fill.shape == (0, len(explained.choices))
    assert np.isnan(explained.spellings.evidence).all()


def test_the_view_has_both(explained):
    view = json.loads(json.dumps(explanation_view(explained, sound=False)))
    for place, choice in enumerate(view["choices"]):
        assert choice["own"] == np.flatnonzero(explained.own_sound[place]).tolist()
        assert set(choice["remarks"]) == {"all", "besides"}


@pytest.mark.skipif(EXECUTABLE is None, reason="needs Chromium")
@pytest.mark.long
class TestInChromium:
    ROW = (
        "[...document.querySelectorAll('.w-line')].find((line) => line.innerText.startsWith('{}'))"
    )
    CHIPS = (
        "[...{}.querySelectorAll('.w-chip')]"
        ".map((chip) => [chip.innerText, parseFloat(chip.style.getPropertyValue('--depth'))])"
    )

    def chips(self, browser, title):
        return browser.evaluate(self.CHIPS.format(self.ROW.format(title)))

    def test_the_effect_that_is_printed_is_the_one_that_is_coloured_and_sorted(
        self, explained, tmp_path
    ):
        with Browser() as browser:
            browser.open(explained.save(tmp_path / "why.html"))
            browser.until("document.querySelectorAll('.w-words .w-word').length > 0")
            browser.evaluate("document.querySelectorAll('.w-words .w-word')[1].click()")
            place = explained.choice("maisons")
            drops = np.sort(explained.drops[place][np.isfinite(explained.drops[place])])[::-1]
            chips = self.chips(browser, "effect of removal")
            printed = [float(text.split("\n")[1].split(" ")[0]) for text, _ in chips]
            np.testing.assert_allclose(printed, drops, rtol=0.06)
            np.testing.assert_allclose(
                [depth for _, depth in chips], 0.7 * np.abs(drops) / drops[0], atol=6e-4
            )
            assert not browser.messages

    def test_the_own_sound_is_set_aside(self, explained, tmp_path):
        with Browser(420, 900) as browser:
            browser.open(explained.save(tmp_path / "why.html"))
            browser.until("document.querySelectorAll('.w-words .w-word').length > 0")
            browser.evaluate("document.querySelectorAll('.w-words .w-word')[1].click()")
            with_it = self.chips(browser, "attention")
            assert any("(own sound)" in text for text, _ in with_it)
            browser.evaluate("document.querySelector('.w-own').click()")
            others, place = explained.without_own_sound(), explained.choice("maisons")
            shares = others.attributions["attention"].values[place]
            chips = self.chips(browser, "attention")
            assert not any("(own sound)" in text for text, _ in chips)
            printed = [int(text.split("\n")[1].split(" ")[0]) for text, _ in chips]
            expected = np.sort(shares[np.isfinite(shares)])[::-1]
            assert printed == [round(100 * share) for share in expected]
            assert "besides" not in browser.evaluate(
                "document.querySelector('.w-heading').innerText"
            )
            assert browser.evaluate("document.documentElement.scrollWidth") <= 420
            assert not browser.messages

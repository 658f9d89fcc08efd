"""Explanations: the model's own words and probabilities, interventions to the last digit, parts
that add up, planted truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

import speechmix
from speechmix.adapters.generation.greedy_generation import transcribe
from speechmix.errors import InputError
from speechmix.extensions.explain.generated_tokens import decode_pieces, token_label
from speechmix.extensions.explain.removals import FrozenPadding, make_removals, read_without
from speechmix.extensions.explain.tables import COLUMNS
from speechmix.extensions.planted.case_table import CUE, OTHER, TARGET
from speechmix.inputs import bundled
from tests.models.shared_models import shared
from tests.models.text_models import bart, bert, gpt2

CTC, WHISPER = "tiny-french-ctc", "tiny-french-whisper"


def model_named(name):
    return shared(
        (name, "float64"),
        lambda: speechmix.load(bundled.models()[name], device="cpu", dtype="float64"),
    )


def clip_named(name="left_00_pl"):
    return next(clip for clip in bundled.clips() if clip.name == name)


@pytest.fixture(scope="module", params=[CTC, WHISPER])
def explained(request):
    """One clip with each bundled model, and what of it can be computed cheaply."""
    model = model_named(request.param)
    measures = [
        "occlusion",
        "gradient_input",
        "alti_logit",
        *(["decompx"] if request.param == CTC else []),
    ]
    return (
        model,
        clip_named(),
        speechmix.explain(
            model,
            clip_named(),
            measures=measures,
            against=("runner_up", "foil"),
            sound_fill="zeros",
        ),
    )


def log_probabilities(model, clip, ids=None):
    """Log-probabilities [T, V] by the unmodified model."""
    inputs = dict(model.features(clip.audio(model.sample_rate)))
    inputs = {name: torch.as_tensor(value).to(model.dtype) for name, value in inputs.items()}
    further = {} if ids is None else {"decoder_input_ids": torch.tensor([ids]), "use_cache": False}
    with torch.no_grad():
        return model.module(**inputs, **further).logits[0].log_softmax(dim=-1)


def fed_ids(model, clip):
    from speechmix.adapters.generation.text_tokens import generate_text

    return None if "decoder" not in model.stacks else list(generate_text(model, clip).ids)


@pytest.fixture(scope="module", autouse=True)
def whole_passes():
    """Whisper's padding is computed again, as by hand; what it costs to freeze it: test_frozen_padding."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FrozenPadding, "of", lambda decision: None)
        yield


class TestWriting:
    def test_a_part_of_a_character_is_named_by_its_bytes_and_not_by_a_letter(self):
        tokenizer = model_named(WHISPER).tokenizer
        labels = [
            token_label(model_named(WHISPER), id_)
            for id_ in tokenizer("là", add_special_tokens=False).input_ids
        ]
        assert labels == ["l", "<0xC3>", "<0xA0>"]

    def test_a_character_in_several_tokens_is_written_once_and_is_no_error(self):
        model, clip = model_named(WHISPER), clip_named("right_01_pl")
        why = speechmix.explain(model, clip, measures="occlusion")
        assert why.text == transcribe(model, clip) == "quels légumes sont là"
        assert why.errors == ()
        of_word = [why.tokens[place].word for unit in why.units[:-1] for place in unit.tokens]
        assert of_word == [token.word for token in why.tokens[:-1]]
        ids = model.tokenizer("là", add_special_tokens=False).input_ids
        assert decode_pieces(model, ids[:-1]) == ["l", "\ufffd"]  # cut within the character

    def test_words_are_those_that_the_model_writes_by_itself(self, explained):
        model, clip, why = explained
        assert why.text == transcribe(model, clip)
        assert [unit.label for unit in why.units][:2] == why.text.split()

    def test_probabilities_are_those_of_the_unmodified_model(self, explained):
        model, clip, why = explained
        scores = log_probabilities(model, clip, fed_ids(model, clip))
        for token in why.tokens:
            assert token.probability == pytest.approx(
                float(scores[token.position, token.id].exp()), abs=1e-12
            )
            others = [other.probability for other in token.runners_up]
            assert others == sorted(others, reverse=True)
            assert token.id not in [other.id for other in token.runners_up]
        for unit in why.units:
            assert unit.probability == pytest.approx(
                np.prod([why.tokens[place].probability for place in unit.tokens])
            )

    def test_whisper_writes_what_generate_does_with_its_logits(self):
        model, clip = model_named(WHISPER), clip_named()
        why = speechmix.explain(model, clip, measures="occlusion")
        features = torch.as_tensor(model.features(clip.audio(16_000))["input_features"]).double()
        made = model.module.generate(
            features, num_beams=1, do_sample=False, output_logits=True, return_dict_in_generate=True
        )
        ids = [token.id for token in why.tokens]
        sequence = made.sequences[0].tolist()
        assert (
            sequence[-len(ids) :] == ids or sequence[-len(ids) + 1 :] == ids[:-1]
        )  # with its end or without
        logits = [step[0].double().log_softmax(dim=-1) for step in made.logits][: len(ids)]
        own = [float(step[id_].exp()) for step, id_ in zip(logits, ids, strict=False)]
        written = [token.probability for token in why.tokens][: len(own)]
        assert (
            made.logits[0].dtype is torch.float32
        )  # so generate rounds them: logits near 20 by up to 1e-6
        np.testing.assert_allclose(written, own, rtol=4e-6, atol=0)

    def test_with_pauses_the_target_and_its_foil_are_still_those_of_the_clip(self):
        plain = speechmix.explain(
            model_named(CTC), clip_named(), measures="occlusion", against="foil"
        )
        paused = speechmix.explain(
            model_named(CTC),
            clip_named(),
            measures="occlusion",
            against="foil",
            include=["silence"],
        )
        assert [choice.name for choice in paused.choices] == [
            choice.name for choice in plain.choices
        ]
        assert paused.choices[-1].against == "foil"

    def test_a_text_that_is_given_is_explained_instead(self):
        for name in (CTC, WHISPER):
            why = speechmix.explain(
                model_named(name), clip_named(), text="nos maison", measures="occlusion"
            )
            assert (why.text, why.by) == ("nos maison", "given")
            assert [error.wrote for error in why.errors] == ["maison"]

    def test_without_words_its_own_transcript_is_placed_and_nothing_is_an_error(self):
        clip = clip_named().replace(words=None, text=None, cue=None, target=None, foil=None)
        why = speechmix.explain(model_named(CTC), clip, measures="occlusion")
        assert [source.label for source in why.sources] == ["nos", "maisons"]
        assert (why.said, why.errors) == ((), ())

    def test_pauses_can_be_sources(self):
        why = speechmix.explain(
            model_named(CTC), clip_named(), measures="occlusion", include=["silence"]
        )
        assert [source.label for source in why.sources] == [
            "<silence>",
            "nos",
            "maisons",
            "<silence>",
        ]
        assert why.said == ("nos", "maisons")


class TestShown:
    def test_occlusion_is_the_intervention_to_the_bit(self):
        """The very batch that is run: the clip, and the clip without each word."""
        model, clip = model_named(CTC), clip_named()
        why = speechmix.explain(model, clip, measures="occlusion", by="token", sound_fill="zeros")
        sounds = [clip, *(speechmix.mute(clip, word) for word in range(2))]
        features = torch.cat(
            [model.features(one.audio(16_000))["input_values"] for one in sounds]
        ).double()
        with torch.no_grad():
            scores = model.module(features).logits.log_softmax(dim=-1).numpy()
        for place, token in enumerate(why.tokens):
            drops = scores[0, token.position, token.id] - scores[1:, token.position, token.id]
            np.testing.assert_array_equal(why.attributions["occlusion"].values[place], drops)

    def test_words_of_the_sound_are_taken_away_by_silence(self, explained):
        model, clip, why = explained
        ids = fed_ids(model, clip)
        for index, source in enumerate(why.sources):
            if source.side != "sound":
                continue
            scores = log_probabilities(model, speechmix.mute(clip, source.source.index), ids)
            for place, choice in enumerate(why.choices):
                if choice.contrast is not None:
                    at = scores[choice.contrast.position]
                    value = float(at[choice.contrast.id] - at[choice.contrast.foil])
                else:
                    tokens = [why.tokens[token] for token in choice.tokens]
                    value = sum(float(scores[token.position, token.id]) for token in tokens)
                assert why.value_without[place, index] == pytest.approx(value, abs=1e-8)

    def test_what_was_written_before_is_blanked(self):
        model, clip = model_named(WHISPER), clip_named()
        why = speechmix.explain(model, clip, measures="occlusion", token_fill="unk")
        ids, place = fed_ids(model, clip), why.choice("maisons")
        index = next(i for i, source in enumerate(why.sources) if source.side == "written")
        for position in why.sources[index].source.positions:
            ids[position] = model.tokenizer.unk_token_id
        scores = log_probabilities(model, clip, ids)
        tokens = [why.tokens[token] for token in why.choices[place].tokens]
        expected = sum(float(scores[token.position, token.id]) for token in tokens)
        assert why.value_without[place, index] == pytest.approx(expected, abs=1e-9)

    def test_pairs_are_the_interventions_of_both(self):
        model, clip = model_named(WHISPER), clip_named()
        why = speechmix.explain(
            model, clip, measures="occlusion", pairs=3, sound_fill="zeros", token_fill="unk"
        )
        ids, place = fed_ids(model, clip), why.choice("maisons")
        tokens = [why.tokens[token] for token in why.choices[place].tokens]
        pairs = [pair for pair in why.pairs if pair.choice == place]
        assert len(pairs) == 3
        for pair in pairs:
            units, changed = [why.sources[index] for index in (pair.first, pair.second)], list(ids)
            quiet = [unit.source.index for unit in units if unit.side == "sound"]
            for position in (
                p for unit in units if unit.side == "written" for p in unit.source.positions
            ):
                changed[position] = model.tokenizer.unk_token_id
            scores = log_probabilities(
                model, speechmix.mute(clip, quiet) if quiet else clip, changed
            )
            value = sum(float(scores[token.position, token.id]) for token in tokens)
            assert pair.drop_both == pytest.approx(why.values[place] - value, abs=1e-8)
            assert pair.probability_without == pytest.approx(np.exp(value))
            assert [pair.drop_first, pair.drop_second] == why.drops[
                place, [pair.first, pair.second]
            ].tolist()
            assert pair.beyond == pytest.approx(pair.drop_both - pair.drop_first - pair.drop_second)
        assert speechmix.explain(model, clip, measures="attention").pairs == ()

    def test_pairs_are_of_sources_that_are_taken_alone_too(self):
        why = speechmix.explain(
            model_named(CTC), clip_named("right_01_pl"), measures="attention", top=1, pairs=4
        )
        assert len(why.pairs) == 6 * len(why.choices)
        assert np.isfinite(
            [[pair.drop_first, pair.drop_second, pair.drop_both] for pair in why.pairs]
        ).all()

    def test_a_sound_is_encoded_once_for_transcript_and_logits_and_once_where_layers_are_read(self):
        model, passes = model_named(WHISPER), []
        model.generated_texts.clear()
        hook = model.module.get_encoder().register_forward_hook(lambda *_: passes.append(1))
        try:
            why = speechmix.explain(model, clip_named(), measures="alti_logit", top=0)
        finally:
            hook.remove()
        assert len(passes) == 2
        assert np.isnan(why.value_without).all()
        scores = log_probabilities(model, clip_named(), fed_ids(model, clip_named()))
        tokens = [why.tokens[token] for token in why.choices[0].tokens]
        assert why.values[0] == pytest.approx(
            sum(float(scores[token.position, token.id]) for token in tokens), abs=1e-9
        )

    def test_occlusion_claims_what_is_shown(self, explained):
        _, _, why = explained
        np.testing.assert_array_equal(why.attributions["occlusion"].values, why.drops)

    def test_only_the_first_of_a_measure_are_taken_away_without_occlusion(self):
        why = speechmix.explain(
            model_named(CTC), clip_named(), measures="attention", top=1, include=["silence"]
        )
        first = {why.ranked(unit.unit)[0].source.index for unit in why.units}
        assert set(np.flatnonzero(np.isfinite(why.value_without).any(axis=0)).tolist()) == first

    def test_what_is_written_behind_a_word_is_no_source_of_it(self):
        why = speechmix.explain(
            model_named(WHISPER), clip_named(), measures=["occlusion", "attention"], by="token"
        )
        for attribution in why.attributions.values():
            for place, choice in enumerate(why.choices):
                reads = why.tokens[choice.tokens[0]].position
                for index, source in enumerate(why.sources):
                    if source.side == "written":
                        assert np.isnan(attribution.values[place, index]) == (
                            source.source.positions[0] > reads
                        )


class TestClaims:
    def test_parts_and_rest_are_the_logit(self, explained):
        model, clip, why = explained
        inputs = dict(model.features(clip.audio(model.sample_rate)))
        inputs = {name: torch.as_tensor(value).to(model.dtype) for name, value in inputs.items()}
        ids = fed_ids(model, clip)
        with torch.no_grad():
            further = (
                {}
                if ids is None
                else {"decoder_input_ids": torch.tensor([ids]), "use_cache": False}
            )
            scores = model.module(**inputs, **further).logits[0]
        for name in {"alti_logit", "decompx"} & set(why.attributions):
            attribution = why.attributions[name]
            for place, choice in enumerate(why.choices):
                if choice.contrast is not None:
                    at = scores[choice.contrast.position]
                    logit = float(at[choice.contrast.id] - at[choice.contrast.foil])
                else:
                    logit = sum(
                        float(scores[why.tokens[t].position, why.tokens[t].id])
                        for t in choice.tokens
                    )
                assert np.nansum(attribution.values[place]) + attribution.rest[
                    place
                ] == pytest.approx(logit, abs=1e-10)
                assert attribution.totals[place] == pytest.approx(logit, abs=1e-10)

    def test_the_rest_is_what_belongs_to_no_source(self):
        model, clip = model_named(CTC), clip_named()
        why = speechmix.explain(model, clip, measures="alti_logit", by="token")
        token = why.tokens[0]
        view = speechmix.logit_contributions(model, clip, objective=(token.position, token.id))
        table = view.to_dataframe()
        np.testing.assert_allclose(
            why.attributions["alti_logit"].values[0], view.total("encoder"), atol=1e-12
        )
        rest = table.loc[table["part"] != "source", "contribution"].sum()
        assert why.attributions["alti_logit"].rest[0] == pytest.approx(rest, abs=1e-10)

    def test_shapley_values_of_a_side_add_up_to_what_all_of_it_does(self):
        from speechmix.extensions.explain.choices import Readings
        from speechmix.extensions.explain.model_text import write_about_clip

        model, clip = model_named(WHISPER), clip_named()
        why = speechmix.explain(model, clip, measures="shapley")
        writing = write_about_clip(model, clip, text=None, by_token=False)
        readings = Readings.of(writing, why.choices)
        sound, text = (
            next(fill for fill in why.fills if fill.side == side) for side in ("sound", "text")
        )
        for side in ("sound", "written"):
            players = [i for i, source in enumerate(why.sources) if source.side == side]
            removals = [(), make_removals(writing, players, [sound, text])]
            clean, without = read_without(writing, removals, readings.read) @ readings.of_choices
            added = np.nansum(why.attributions["shapley"].values[:, players], axis=1)
            reached = np.isfinite(why.attributions["shapley"].values[:, players]).all(axis=1)
            np.testing.assert_allclose(added[reached], (clean - without)[reached], atol=1e-8)

    def test_gradients_are_those_of_mix(self):
        model = bert()
        why = speechmix.explain(model, "the cats <mask> here", measures="gradient_input")
        (token,) = why.tokens
        read = lambda output: output.logits[0, token.position].log_softmax(dim=-1)[token.id]  # noqa: E731
        inputs = dict(model.tokenizer("the cats [MASK] here", return_tensors="pt"))
        by_hand = speechmix.mix(model, inputs, measures="gradient_input", layers=0, objective=read)
        row = by_hand["gradient_input", "encoder"].scores[0, 0]
        positions = [source.source.positions[0] for source in why.sources]
        np.testing.assert_allclose(
            why.attributions["gradient_input"].values[0], row[positions], rtol=1e-9
        )

    def test_a_measure_that_is_not_defined_is_an_error_only_if_it_was_asked_for(self):
        model = bert()
        with pytest.raises(InputError, match="alti_logit is defined for pre-norm"):
            speechmix.explain(model, "the cats <mask> here", measures="alti_logit")
        assert "alti_logit" not in speechmix.explain(model, "the cats <mask> here").attributions


class TestChoices:
    def test_an_error_is_held_against_what_was_said(self):
        for name, written, foil in ((CTC, "s", "(nothing)"), (WHISPER, "s", "(end)")):
            clip = clip_named()
            words = [
                ("nos", clip.words[0].start, clip.words[0].end),
                ("maison", clip.words[1].start, clip.words[1].end),
            ]
            said = clip.replace(text="nos maison", words=words, cue=None, target=None, foil=None)
            why = speechmix.explain(model_named(name), said, measures="occlusion")
            first = why.choices[0]
            assert (first.against, first.label, first.error) == ("reference", "maisons", 0)
            assert (first.contrast.label, first.contrast.foil_label) == (written, foil)
            scores = log_probabilities(model_named(name), clip, fed_ids(model_named(name), clip))
            at = scores[first.contrast.position]
            assert why.values[0] == pytest.approx(
                float(at[first.contrast.id] - at[first.contrast.foil]), abs=1e-9
            )
            assert first.contrast.foil_probability == pytest.approx(
                float(at[first.contrast.foil].exp())
            )

    @pytest.mark.parametrize("name", [CTC, pytest.param(WHISPER, marks=pytest.mark.long)])
    def test_a_missing_and_a_made_up_word(self, name):
        clip = clip_named()
        (start, end), (begin, stop) = ((word.start, word.end) for word in clip.words)
        words = [("oui", 0.0, 0.3), ("nos", start, end), ("maisons", begin, stop)]
        missing = clip.replace(text=None, words=words, cue=None, target=None, foil=None)
        why = speechmix.explain(model_named(name), missing, measures="occlusion")
        assert [(error.kind, error.said) for error in why.errors] == [("deletion", "oui")]
        contrast = why.choices[0].contrast
        assert contrast.foil_label == "o"
        if name == CTC:  # read while it was said
            assert (contrast.label, contrast.position < 0.3 * 50) == ("(nothing)", True)
        made_up = clip.replace(
            text=None, words=[("maisons", begin, stop)], cue=None, target=None, foil=None
        )
        why = speechmix.explain(model_named(name), made_up, measures="occlusion")
        assert [(error.kind, error.wrote) for error in why.errors] == [("insertion", "nos")]
        assert (why.choices[0].label, why.choices[0].against) == ("nos", "reference")

    def test_the_runner_up_is_held_against_where_the_word_was_least_sure(self, explained):
        _, _, why = explained
        for choice in (choice for choice in why.choices if choice.against == "runner_up"):
            token = min(
                (why.tokens[place] for place in choice.tokens), key=lambda token: token.probability
            )
            assert (choice.contrast.position, choice.contrast.foil) == (
                token.position,
                token.runners_up[0].id,
            )

    def test_the_foil_of_the_target(self, explained):
        _, clip, why = explained
        (foil,) = [choice for choice in why.choices if choice.against == "foil"]
        assert (clip.foil, foil.label, foil.contrast.label) == ("maison", "maisons", "s")
        masked = speechmix.Sentence("the cats are here", target="are", foil="is")
        assert (
            speechmix.explain(bert(), masked, against="foil").choices[-1].contrast.foil_label
            == "is"
        )


class TestTexts:
    def test_a_causal_model_goes_on_and_prompt_and_own_words_are_its_sources(self):
        model = gpt2()
        model.tokenizer.pad_token = "<pad>"
        why = speechmix.explain(
            model, "the cats", text=" are very", measures=["occlusion", "value_zeroing"]
        )
        assert [(source.side, source.label) for source in why.sources] == [
            ("read", "the"),
            ("read", "cats"),
            ("written", "are"),
            ("written", "very"),
        ]
        values = why.attributions["occlusion"].values
        assert np.isfinite(values).tolist() == [
            [True, True, False, False],
            [True, True, True, False],
        ]
        own = speechmix.explain(model, "the cats", max_tokens=3, measures="occlusion")
        assert len(own.tokens) == 3

    def test_a_measure_that_says_nothing_of_a_word_has_no_first_source(self):
        why = speechmix.explain(gpt2(), "the cats", text=" are", measures="value_zeroing")
        silent = replace(
            why.attributions["value_zeroing"],
            values=np.full_like(why.attributions["value_zeroing"].values, np.nan),
        )
        with pytest.raises(InputError, match="has no attribution for any source of 0"):
            replace(why, attributions={"value_zeroing": silent}).top(0)

    def test_a_translation_has_both_texts_as_sources(self):
        why = speechmix.explain(bart(), "the cats", text="ab cd", measures="value_zeroing")
        assert [source.side for source in why.sources] == ["read", "read", "written", "written"]
        assert why.units[-1].label == "(end)"


class TestPlanted:
    """GPT-2 whose weights make it say "no" because of one word of seven."""

    MEASURES = ("occlusion", "shapley", "gradient_input", "value_zeroing", "alti_logit")

    @staticmethod
    def planted_reader(seed, case="copy"):
        planted = speechmix.planted.plant(case, family="gpt2", layer=1, seed=seed)
        words = ["<s>", "plus", "minus", "yes", "no", "more", "less", "and"]
        tokenizer = Tokenizer(
            models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<s>")
        )
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)]
        )
        fast = PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, bos_token="<s>", unk_token="<s>", eos_token="<s>"
        )
        contents = planted.contents["decoder"][1 : TARGET + 1]
        prompt = " ".join("plus" if content > 0 else "minus" for content in contents)
        return planted.model, fast, prompt

    @pytest.mark.parametrize(
        "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
    )
    def test_the_word_that_decides_is_named_first_and_its_loss_is_shown(self, seed):
        model, model.tokenizer, prompt = self.planted_reader(seed)
        why = speechmix.explain(
            model,
            prompt,
            max_tokens=1,
            measures=self.MEASURES,
            against="runner_up",
            token_fill="unk",
        )
        assert why.text == "no"
        for name in self.MEASURES:
            against = "runner_up" if name in ("gradient_input", "alti_logit", "shapley") else ""
            ranked = [
                source
                for source in why.ranked(0, name, against)
                if TARGET not in source.source.positions
            ]
            assert ranked[0].source.positions == (CUE,), name
        drops = why.drops[why.choice(0, "runner_up")]
        assert np.nanargmax(drops) == CUE - 1
        assert np.nanmax(np.abs(np.delete(drops, CUE - 1))) < 0.1 * drops[CUE - 1]

    @pytest.mark.parametrize(
        "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
    )
    def test_of_two_cues_that_agree_either_is_enough_and_the_pair_says_so(self, seed):
        model, model.tokenizer, prompt = self.planted_reader(seed, "redundant")
        for measures, most in (
            (["occlusion", "attention"], 4),
            (["occlusion"], 8),
        ):  # four that attention names, or all there are
            why = speechmix.explain(
                model,
                prompt,
                max_tokens=1,
                measures=measures,
                against="runner_up",
                pairs=most,
                token_fill="unk",
            )
            pairs = why.pairs_to_dataframe().query("against == 'runner_up'")
            assert len(pairs) == (6 if most == 4 else 15)
            drops = why.drops[why.choice(0, "runner_up")]
            positions = [source.source.positions for source in why.sources]
            cue, other = (positions.index((place,)) for place in (CUE, OTHER))
            first = next(
                pair for pair in why.pairs if why.choices[pair.choice].against == "runner_up"
            )
            assert ({first.first, first.second}, first.kind) == ({cue, other}, "either-or")
            assert first.drop_both > 100 * max(
                abs(drops[cue]), abs(drops[other])
            )  # alone neither is missed
            assert pairs["kind"].tolist() == ["either-or", *[""] * (len(pairs) - 1)]

    def test_where_one_cue_decides_no_pair_tells_more(self):
        model, model.tokenizer, prompt = self.planted_reader(0)
        why = speechmix.explain(
            model,
            prompt,
            max_tokens=1,
            measures=["occlusion"],
            against="runner_up",
            pairs=4,
            token_fill="unk",
        )
        assert set(why.pairs_to_dataframe().query("against == 'runner_up'")["kind"]) == {""}

    def test_untrained_twins_do_not_agree_on_it(self):
        model, tokenizer, prompt = self.planted_reader(0)
        named = []
        for seed in range(8):
            twin = speechmix.load(model.module, processor=tokenizer, init="random", seed=seed)
            why = speechmix.explain(
                twin,
                prompt,
                max_tokens=1,
                measures="occlusion",
                against="runner_up",
                token_fill="unk",
            )
            named.append(why.top(0, "occlusion", "runner_up").source.positions)
        assert named.count((CUE,)) <= 4
        assert len(set(named)) > 1


class TestForms:
    def test_the_table_has_a_row_for_each_word_source_and_measure(self, explained):
        _, _, why = explained
        table = why.to_dataframe()
        assert tuple(table.columns) == COLUMNS
        known = sum(
            int(np.isfinite(attribution.values).sum()) for attribution in why.attributions.values()
        )
        assert len(table) == known
        shown = table[table["measure"] == "occlusion"]
        np.testing.assert_array_equal(shown["attribution"], shown["drop"])
        alone = shown[shown["against"] == ""]
        np.testing.assert_allclose(
            np.exp(alone["value_without"]), alone["probability_without"], rtol=1e-9
        )
        assert (
            table.groupby(["unit", "against", "foil", "measure"], dropna=False)["rank"].min() == 1
        ).all()

    @pytest.mark.long
    def test_files_by_their_endings(self, explained, tmp_path):
        _, _, why = explained
        for ending in ("csv", "parquet", "html", "png"):
            assert why.save(tmp_path / f"why.{ending}").stat().st_size > 1000
        read = pd.read_parquet(tmp_path / "why.parquet")
        pd.testing.assert_frame_equal(read, why.to_dataframe(), check_dtype=False)
        with pytest.raises(InputError, match=r"ends in one of \.html"):
            why.save(tmp_path / "why.doc")

    def test_as_text(self, explained):
        _, _, why = explained
        assert "maisons" in str(why)
        lines = str(why).splitlines()
        assert len(lines) <= 3 + len(why.choices)
        assert "without it p = " in why.details()
        assert "units of 'nos maisons'" in repr(why)

    def test_figures(self, explained):
        _, _, why = explained
        by_frame = [
            attribution
            for attribution in why.attributions.values()
            if attribution.by_frame is not None
        ]
        assert len(why.show("maisons").axes) == len(why.attributions) + 1 + len(by_frame)
        _, ax = pyplot.subplots()
        assert why.plot(measure="gradient_input", ax=ax) is ax
        assert ax.get_yticklabels()[0].get_text().startswith("nos")
        pyplot.close("all")

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"by": "frame"}, "by should be one of"),
            ({"against": "random"}, "against should be some of"),
            ({"measures": "taste"}, "taste"),
            ({"measures": []}, "no measure asked for"),
            ({"sound_fill": "music"}, "sound_fill should be some of"),
            ({"token_fill": "mask"}, "reads sound only: choose among"),
            ({"include": ["padding"]}, "include takes 'silence'"),
            ({"top": -1}, "expected top as how many"),
            ({"pairs": 1}, "expected pairs as 0, or of how many"),
        ],
    )
    def test_what_cannot_be_asked_is_said(self, options, said):
        with pytest.raises(InputError, match=said):
            speechmix.explain(model_named(CTC), clip_named(), **options)

    def test_a_word_that_is_not_there(self, explained):
        _, _, why = explained
        with pytest.raises(InputError, match="one of the written words"):
            why.top("livres")
        with pytest.raises(InputError, match="no attributions of"):
            why.top("nos", "taste")

    def test_a_masked_model_needs_a_mask(self):
        with pytest.raises(InputError, match="write <mask> where"):
            speechmix.explain(bert(), "the cats are here")


def test_doubtful_word_times_are_said_wherever_it_is_read():
    model = speechmix.load(bundled.models()["tiny-french-ctc"], device="cpu")
    clip = next(clip for clip in bundled.clips() if clip.name == "left_00_pl").with_doubts(
        ["the letters fit badly"]
    )
    why = speechmix.explain(model, clip, measures="occlusion", include=["silence"])
    assert why.doubts == ("the letters fit badly",)
    assert "The word times may be wrong: the letters fit badly" in str(why)
    assert "The word times may be wrong: the letters fit badly" in why.to_html()
    assert "occlusion (loss, nats)" in why.details()


def test_a_text_that_came_with_a_clip_is_not_placed_by_the_model_that_is_explained():
    pytest.importorskip("espeakng_loader")
    model = speechmix.load(bundled.models()["tiny-french-ctc"], device="cpu")
    clip = next(clip for clip in bundled.clips() if clip.name == "left_00_pl").replace(
        words=None, cue=None, target=None
    )
    spoken = speechmix.explain(model, clip.replace(language="fr"), measures="occlusion").clip
    assert (spoken.alignment, spoken.words) == (
        "synthesis",
        speechmix.align(clip.replace(language="fr")).words,
    )
    assert (
        speechmix.explain(model, clip.replace(language=None), measures="occlusion").clip.alignment
        == "ctc"
    )

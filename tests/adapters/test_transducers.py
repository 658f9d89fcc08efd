"""Transducers (RNN-T, TDT): decoding, times, grounding, explanations and knock-out.

Oracles: a slow decoder written here from the definitions (Graves 2012, section 2; Xu et al. 2023,
section 3), which shares nothing with the package but the encoder's states; transformers' own
`generate`; all paths of a small lattice, counted out; ablation by hand.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch

import speechmix
from speechmix.adapters.generation.emission_paths import (
    align_emissions,
    decode_emissions,
    run_along_path,
)
from speechmix.adapters.generation.greedy_generation import transcribe
from speechmix.adapters.generation.text_tokens import generate_text
from speechmix.errors import AlignmentError, InputError
from speechmix.extensions.synthetic_french.synthetic_corpus import log_likelihoods
from speechmix.interventions.decision import Decision
from speechmix.interventions.removals import mute
from tests.models import transducers

KINDS = transducers.KINDS
# Models that write something about the tones, as words: seeds were tried.
WRITES = {"rnnt": {"seed": 8, "blank_bias": 3.0}, "tdt": {"seed": 6, "blank_bias": 1.0}}
TONES = [(0, 0.2, 0.36), (1, 0.5, 0.66), (2, 0.8, 0.96), (3, 1.1, 1.3), (0, 1.4, 1.6)]
SPOKEN = [("le", 0.4, 0.56), ("chats", 0.8, 1.1), ("dort", 1.5, 1.7)]
SPOKEN_TONES = [(0, 0.4, 0.56), (1, 0.8, 0.96), (2, 1.0, 1.1), (3, 1.5, 1.7)]


@cache
def writing_model(kind):
    return transducers.random_model(kind, **WRITES[kind])


@cache
def planted_model(kind):
    return transducers.planted_model(kind)


def spoken_clip(**options):
    return transducers.tones(*SPOKEN_TONES, words=SPOKEN, **options)


def choice_clip():
    """Text, cue, target and foil: "le chats dort" or "le chat dort"."""
    return spoken_clip(text="le chats dort", cue=0, target=1, foil="chat")


# ---- the slow decoder --------------------------------------------------------------------------


class SlowTransducer:
    """Prediction and joint network in numpy, by their equations."""

    def __init__(self, module):
        self.config = module.config
        self.weights = {
            name: weight.detach().double().numpy() for name, weight in module.named_parameters()
        }

    def predict(self, tokens):
        """State behind a blank and these tokens: an LSTM (Hochreiter and Schmidhuber 1997)."""
        w, size = self.weights, self.config.decoder_hidden_size
        layers = range(self.config.num_decoder_layers)
        h, c = np.zeros((len(layers), size)), np.zeros((len(layers), size))
        for token in [self.config.blank_token_id, *tokens]:
            x = w["decoder.embedding.weight"][token]
            for layer in layers:
                gates = sum(
                    w[f"decoder.lstm.weight_{name}_l{layer}"] @ value
                    + w[f"decoder.lstm.bias_{name}_l{layer}"]
                    for name, value in (("ih", x), ("hh", h[layer]))
                )
                i, f, g, o = np.split(gates, 4)
                c[layer] = sigmoid(f) * c[layer] + sigmoid(i) * np.tanh(g)
                h[layer] = x = sigmoid(o) * np.tanh(c[layer])
        return w["decoder.decoder_projector.weight"] @ x + w["decoder.decoder_projector.bias"]

    def logits(self, sound, tokens):
        """z(t, u) of tokens, and of durations."""
        hidden = np.maximum(sound + self.predict(tokens), 0)
        z = self.weights["joint.head.weight"] @ hidden + self.weights["joint.head.bias"]
        return z[: self.config.vocab_size], z[self.config.vocab_size :]

    def decode(self, sound, count):
        """Tokens with the frame where each was emitted, in the first frames of a batch's row.

        As many steps as `generate` makes room for.
        """
        blank, durations = self.config.blank_token_id, getattr(self.config, "durations", None)
        tokens, frames, t, at_frame = [], [], 0, 0
        for _ in range(self.config.max_symbols_per_step * len(sound) - 1):
            if t >= count:
                break
            z, of_duration = self.logits(sound[t], tokens)
            k = int(np.argmax(z))
            if k != blank:
                tokens, frames, at_frame = [*tokens, k], [*frames, t], at_frame + 1
            if durations is not None:
                skip = durations[int(np.argmax(of_duration))]
                t += max(skip, 1) if k == blank else skip
            elif k == blank or at_frame == self.config.max_symbols_per_step:
                t, at_frame = t + 1, 0
        return list(zip(tokens, frames, strict=True))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def log_softmax(z):
    return z - np.log(np.exp(z - z.max()).sum()) - z.max()


def feature_batch(lengths, seed):
    """Features of clips of several lengths [B, T, bins], and the mask of what is no padding."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(len(lengths), max(lengths), transducers.MEL_BINS, generator=generator)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return {"input_features": (features * mask[..., None]).double(), "attention_mask": mask}


def encoded(module, inputs):
    """Projected states and lengths of each clip of a batch."""
    with torch.no_grad():
        output = module.get_audio_features(**inputs)
    return [
        states[: int(mask.sum())]
        for states, mask in zip(output.pooler_output, output.attention_mask, strict=True)
    ]


def emitted(module, output, row, frame_count):
    """Tokens and frames of what `generate` returns, as far as the clip goes."""
    frame, found = 0, []
    steps = zip(output.sequences[row].tolist(), output.durations[row].tolist(), strict=True)
    for token, advance in list(steps)[1:]:
        if frame >= frame_count:
            break
        if token != module.config.blank_token_id:
            found.append((token, frame))
        frame += advance
    return found


def check_decoding(kind, seed, blank_bias):
    """Compare a batch of clips of several lengths with both oracles; return how much was emitted."""
    module = transducers.random_module(kind, seed, blank_bias=blank_bias).double()
    inputs, slow = feature_batch((160, 97, 56), seed), SlowTransducer(module)
    output = module.generate(**inputs)
    with torch.no_grad():
        sound = module.get_audio_features(**inputs)
    counts, emission_count = sound.attention_mask.sum(-1).tolist(), 0
    for row, (states, count) in enumerate(zip(sound.pooler_output, counts, strict=True)):
        with torch.no_grad():
            emissions, ended = decode_emissions(module, states, count)
        found = [(emission.token, emission.start) for emission in emissions]
        assert found == slow.decode(states.numpy(), count)
        assert found == emitted(module, output, row, count)
        assert ended or len(found) > count
        emission_count += len(found)
    assert counts == [20, 13, 7]
    return emission_count


@pytest.mark.parametrize("kind", KINDS)
def test_decodes_as_the_definition_and_as_generate(kind):
    assert sum(check_decoding(kind, seed, seed % 3) for seed in range(3)) > 25


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_decodes_as_the_definition_and_as_generate_with_many_seeds(kind):
    assert sum(check_decoding(kind, seed, seed % 4) for seed in range(100)) > 1500


@pytest.mark.parametrize("kind", KINDS)
def test_a_given_text_gets_its_likeliest_path(kind):
    module = transducers.random_module(kind, 1).double()
    sound = encoded(module, feature_batch((40,), 1))[0][:4]
    slow, config = SlowTransducer(module), module.config
    durations, blank = getattr(config, "durations", None), config.blank_token_id
    for ids in ([3], [2, 5], [4, 4, 2]):

        def paths(t, u, ids=ids):
            """Score and emitting frames of every path from (t, u) to the end."""
            if t >= len(sound):
                return [(0.0, [])] if u == len(ids) else []
            z, of_duration = slow.logits(sound[t].numpy(), ids[:u])
            scores, found = log_softmax(z), []
            skips = enumerate(log_softmax(of_duration)) if durations else [(0, 0.0), (1, 0.0)]
            for skip, score in skips:
                if skip and (durations or skip == 1):
                    found += [
                        (rest + score + scores[blank], frames)
                        for rest, frames in paths(t + skip, u)
                    ]
                if u < len(ids) and (durations or skip == 0):
                    found += [
                        (rest + score + scores[ids[u]], [t, *frames])
                        for rest, frames in paths(t + skip, u + 1)
                    ]
            return found

        _, expected = max(paths(0, 0), key=lambda path: path[0])
        with torch.no_grad():
            emissions = align_emissions(module, sound, ids)
        assert [emission.start for emission in emissions] == expected
        assert [emission.token for emission in emissions] == ids


def test_a_text_that_no_path_has_is_refused():
    module = transducers.random_module("tdt", 1, durations=[1, 2]).double()
    sound = encoded(module, feature_batch((40,), 1))[0][:2]
    with torch.no_grad(), pytest.raises(InputError, match="3 tokens does not fit into 2 frames"):
        align_emissions(module, sound, [2, 3, 4])


@pytest.mark.parametrize("kind", KINDS)
def test_logits_along_a_path_are_those_of_the_lattice(kind):
    module = transducers.random_module(kind, 2).double()
    inputs = {**feature_batch((72,), 2), "decoder_input_ids": torch.tensor([[16, 3, 4, 2]])}
    frames, states = torch.tensor([[1, 4, 4, 8, 0]]), torch.tensor([[0, 1, 2, 3, 1]])
    with torch.no_grad():
        lattice = module(**inputs).logits[0, :, :, : module.config.vocab_size]
        path = {"decoder_frames": frames, "decoder_states": states}
        logits = run_along_path(module, {**inputs, **path}).logits[0]
    torch.testing.assert_close(logits, lattice[frames[0], states[0]], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "name", ["NemotronAsrStreaming", pytest.param("Nemotron3_5Asr", marks=pytest.mark.long)]
)
def test_a_transducer_with_a_traced_encoder_decodes_and_is_explained(name):
    module = transducers.nemotron_module(name)
    model = speechmix.load(module)
    assert model.output_kind == "transducer"
    mask = torch.arange(160) < torch.tensor([[160], [100]])
    features = torch.randn(2, 160, 16, generator=torch.Generator().manual_seed(0))
    inputs = {"input_features": features, "attention_mask": mask}
    output = module.generate(**inputs)
    with torch.no_grad():
        sound = module.get_audio_features(**inputs)
    for row, count in enumerate(sound.attention_mask.sum(-1).tolist()):
        emissions, _ = decode_emissions(module, sound.pooler_output[row], count)
        found = [(emission.token, emission.start) for emission in emissions]
        assert found == emitted(module, output, row, count) != []
    path = {
        "decoder_input_ids": torch.tensor([[30, 3, 4]]),
        "decoder_frames": torch.tensor([[1, 4, 6]]),
        "decoder_states": torch.tensor([[0, 1, 2]]),
    }
    item, objective = {"input_features": features[:1], **path}, (1, 2, 5)
    decision = Decision.prepare(model, item, objective=objective)
    with torch.no_grad():
        lattice = module(features[:1], decoder_input_ids=path["decoder_input_ids"]).logits[0]
    assert decision.margin == pytest.approx((lattice[4, 1, 2] - lattice[4, 1, 5]).item(), abs=1e-4)
    table = speechmix.knock_out(model, item, objective=objective, window="all").table
    assert table["drop"].abs().max() > 1e-4


# ---- clips ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_text_and_times_are_those_of_transformers(kind):
    model, processor = writing_model(kind), transducers.processor()
    for seconds in (2.0, 1.3):
        clip = transducers.tones(*TONES, seconds=seconds)
        features = model.features(clip.audio(transducers.RATE))
        features["input_features"] = features["input_features"].double()
        output = model.module.generate(**features)
        _, times = processor.decode(
            output.sequences, durations=output.durations, skip_special_tokens=True
        )
        kept = output.sequences[0][output.sequences[0] != transducers.BLANK]
        text = processor.tokenizer.decode(kept, group_tokens=False, skip_special_tokens=True)
        written = generate_text(model, clip)
        assert transcribe(model, clip) == written.text == text.strip() != ""
        starts = [time["start"] for time in times[0]]
        np.testing.assert_allclose(
            [0.08 * start for start, _ in written.frames][: len(starts)], starts, atol=1e-9
        )


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_transducer_writes_its_words_where_its_tones_sound(kind):
    model = planted_model(kind)
    written = generate_text(model, transducers.tones(*SPOKEN_TONES))
    assert (written.text, written.ended) == ("le chats dort", True)
    for (_, start, end), (frame, _) in zip(SPOKEN_TONES, written.frames, strict=True):
        assert start - 0.04 <= 0.08 * frame <= end


@pytest.mark.parametrize("kind", KINDS)
def test_words_of_a_text_are_placed_where_their_tones_sound(kind):
    clip = transducers.tones(*SPOKEN_TONES, text="le chats dort")
    aligned = speechmix.align(clip, model=planted_model(kind), method="transducer")
    assert (aligned.alignment, aligned.doubts) == ("transducer", ())
    for word, (text, start, end) in zip(aligned.words, SPOKEN, strict=True):
        assert word.text == text
        assert start - 0.05 <= word.start < word.end <= end + 0.05
        assert word.score > 0.99
    wrong, ctc = clip.replace(text="o a t"), speechmix.load("bundled:tiny-french-ctc")
    with pytest.warns(UserWarning, match="tokens fit badly"):
        speechmix.align(wrong, model=planted_model(kind), method="transducer")
    at_one_frame = speechmix.align(clip, model=writing_model(kind), method="transducer").words
    assert all(word.start < word.end for word in at_one_frame)
    assert all(a.end <= b.start for a, b in pairwise(at_one_frame))
    with pytest.raises(AlignmentError, match="expected an RNN-T or TDT"):
        speechmix.align(clip, model=ctc, method="transducer")


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_word_is_grounded_in_its_own_tone(kind):
    grounding = speechmix.ground(planted_model(kind), transducers.tones(*SPOKEN_TONES))
    assert [word.text for word in grounding.words] == ["le", "chats", "dort"]
    for word, (_, start, end) in zip(grounding.words, SPOKEN, strict=True):
        assert word.start <= start + 0.04
        assert word.end >= end - 0.12
        assert word.silence > 10
        assert word.is_in_sound()


# ---- explanations ------------------------------------------------------------------------------------


def log_probability_by_hand(model, clip, token, frame, history):
    """log p of a token at a frame behind a history, by the slow network."""
    inputs = model.features(clip.audio(transducers.RATE))
    inputs["input_features"] = inputs["input_features"].double()
    sound = encoded(model.module, inputs)[0].numpy()
    return log_softmax(SlowTransducer(model.module).logits(sound[frame], list(history))[0])[token]


@pytest.mark.parametrize("kind", KINDS)
def test_explain_removes_sound_and_text_as_by_hand(kind):
    model, clip = (
        writing_model(kind),
        transducers.tones(*TONES).with_words(
            [(f"w{index}", start, end) for index, (_, start, end) in enumerate(TONES)]
        ),
    )
    written = generate_text(model, clip)
    explanation = speechmix.explain(
        model,
        clip,
        by="token",
        measures="occlusion",
        against=(),
        sound_fill="zeros",
        token_fill="remove",
    )
    frames, ids = [start for start, _ in written.frames], written.ids[1:]
    assert [token.id for token in explanation.tokens] == list(ids)
    labels = [source.name for source in explanation.sources]
    last = len(ids) - 1
    assert explanation.values[last] == pytest.approx(
        log_probability_by_hand(model, clip, ids[last], frames[last], ids[:last]), abs=1e-8
    )
    muted = mute(clip, 3, fill="zeros")
    assert explanation.value_without[last, 3] == pytest.approx(
        log_probability_by_hand(model, muted, ids[last], frames[last], ids[:last]), abs=1e-8
    )
    for removed in (0, last - 1):
        source = len(TONES) + removed
        assert labels[source].endswith("(written)")
        history = [*ids[:removed], *ids[removed + 1 : last]]
        assert explanation.value_without[last, source] == pytest.approx(
            log_probability_by_hand(model, clip, ids[last], frames[last], history), abs=1e-8
        )
    assert np.isnan(explanation.value_without[0, len(TONES)])  # no token is its own source


@pytest.mark.parametrize("measures", ["occlusion", "shapley", "value_zeroing", "gradient_input"])
def test_a_planted_word_is_explained_by_its_own_tone(measures):
    explanation = speechmix.explain(
        planted_model("rnnt"), spoken_clip(), measures=measures, sound_fill="zeros"
    )
    assert explanation.text == "le chats dort"
    for word in explanation.text.split():
        assert explanation.top(word).label == word
    values = explanation.attributions[measures].values
    has_text = measures in ("occlusion", "shapley")
    assert np.isfinite(values[2, 3:5]).all() == has_text  # written before; not in an encoder's map


def test_what_was_said_is_the_alternative_at_the_emitting_frame():
    model = planted_model("rnnt")
    clip = transducers.tones(
        *SPOKEN_TONES, text="les chats dort", words=[("les", 0.4, 0.56), *SPOKEN[1:]]
    )
    explanation = speechmix.explain(model, clip, measures="occlusion", against="reference", top=0)
    contrast = explanation.choices[0].contrast
    # "le s chats": the s is missing, and at the frame of the next token that was read instead
    assert (contrast.label, contrast.foil_label) == ("chat", "s")
    superfluous = clip.replace(
        text="le chat dort", words=[*SPOKEN[:1], ("chat", 0.8, 1.1), *SPOKEN[2:]]
    )
    explanation = speechmix.explain(model, superfluous, measures="occlusion", top=0)
    contrast = explanation.choices[0].contrast
    assert (contrast.label, contrast.foil_label) == ("s", "(nothing)")


@pytest.mark.parametrize("kind", KINDS)
def test_the_margin_is_the_contrast_at_the_emitting_frame(kind):
    model, clip = writing_model(kind), choice_clip()
    decision = Decision.prepare(model, clip)
    details = decision.objective.details
    pieces = transducers.VOCABULARY
    assert (pieces[details["token"]], pieces[details["foil"]]) == ("s", "▁dort")
    frame = int(decision.prepared.inputs["decoder_frames"][0, details["position"]])
    history = [pieces.index("▁le"), pieces.index("▁chat")]
    target, foil = (
        log_probability_by_hand(model, clip, details[name], frame, history)
        for name in ("token", "foil")
    )
    assert decision.margin == pytest.approx(target - foil, abs=1e-8)
    table = speechmix.ablate_input(model, clip, sides=["sound"], fills=["zeros"]).table
    muted = mute(clip, 0, fill="zeros")
    target, foil = (
        log_probability_by_hand(model, muted, details[name], frame, history)
        for name in ("token", "foil")
    )
    assert table.margin[0] == pytest.approx(target - foil, abs=1e-8)
    text = speechmix.ablate_input(model, clip, sides=["text"], fills=["remove"], words=[0]).table
    target, foil = (
        log_probability_by_hand(model, clip, details[name], frame, history[1:])
        for name in ("token", "foil")
    )
    assert text.margin[0] == pytest.approx(target - foil, abs=1e-8)
    values = speechmix.shapley(model, clip)
    total = values.margin - values.provenance["nothing"]
    assert values.table["drop"].sum() == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_knock_out_in_the_encoder_as_by_hand(kind):
    model, clip = writing_model(kind), choice_clip()
    decision = Decision.prepare(model, clip)
    table = speechmix.knock_out(model, clip).table
    assert set(table["stack"]) == {"encoder"}
    positions = list(decision.sources["encoder"][0].positions)

    def zero(module, args, output):
        changed = output.clone()
        changed[:, positions] = 0
        return changed

    projection = model.module.encoder.layers[1].self_attn.v_proj
    handle = projection.register_forward_hook(zero)
    by_hand = decision.input_margin(decision.prepared.inputs)
    handle.remove()
    row = table[(table.word == 0) & (table.layer == 1)]
    assert row.margin.item() == pytest.approx(by_hand, abs=1e-9)
    assert abs(row["drop"].item()) > 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_the_cue_contributes_to_the_frame_that_decides(kind):
    model, clip = writing_model(kind), choice_clip()
    maps = speechmix.mix(model, clip, measures=["value_zeroing", "gradient_input"], units="frame")
    by_layer = maps["value_zeroing", "encoder"]
    frame = by_layer.provenance["deciding_frame"]
    share = speechmix.cue_contribution(by_layer, cue=0, target=1, rows="deciding")
    normalized = by_layer.without("silence", "padding").normalized()
    row = next(i for i, span in enumerate(by_layer.targets) if frame in span.positions)
    columns = [i for i, span in enumerate(normalized.sources) if span.word == 0]
    by_hand = by_layer.scores[:, row][:, [s.word == 0 for s in by_layer.sources]].sum(axis=1)
    by_hand /= by_layer.scores[:, row].sum(axis=1)
    assert len(columns) > 0
    np.testing.assert_allclose(share, by_hand, rtol=1e-9)
    contrast = maps["gradient_input", "encoder"]
    assert [span.word for span in contrast.targets] == [1]
    assert speechmix.cue_contribution(contrast, cue=0, target=1).shape == (2,)


def test_gradients_of_the_contrast_are_those_of_autograd():
    model, clip = writing_model("rnnt"), choice_clip()
    mixing_map = speechmix.mix(model, clip, measures="gradient_input", units="frame")[
        "gradient_input", "encoder"
    ]
    decision, states = Decision.prepare(model, clip), []

    def enter(module, args, kwargs):
        states.append(args[0].detach().requires_grad_(True))
        return (states[0], *args[1:]), kwargs

    handle = model.module.encoder.layers[0].register_forward_pre_hook(enter, with_kwargs=True)
    details = decision.objective.details
    logits = run_along_path(model.module, decision.prepared.inputs | _doubles(decision)).logits
    handle.remove()
    scores = logits[0, details["position"]]
    (scores[details["token"]] - scores[details["foil"]]).backward()
    expected = (states[0] * states[0].grad).sum(-1).abs()[0].detach().numpy()
    values = mixing_map.scores[0, 0]
    np.testing.assert_allclose(
        values / values.sum(), expected[: len(values)] / expected[: len(values)].sum(), rtol=1e-6
    )


def _doubles(decision):
    return {"input_features": decision.prepared.inputs["input_features"].double()}


# ---- what is not defined ---------------------------------------------------------------------------


def test_what_is_not_defined_says_what_to_do_instead():
    model, clip = writing_model("rnnt"), choice_clip()
    with pytest.raises(InputError, match="joint network: ask occlusion"):
        speechmix.logit_contributions(model, clip)
    with pytest.raises(InputError, match=r"no attention layers in its decoder.*ablate_input"):
        speechmix.knock_out(model, clip, stacks=["decoder"])
    with pytest.raises(InputError, match="not computed for a transducer; compare target and foil"):
        log_likelihoods(model, clip, ["le chat"])
    features = dict(model.features(clip.audio(transducers.RATE)))
    with pytest.raises(InputError, match="give decoder_frames"):
        speechmix.mix(
            model,
            {**features, "decoder_input_ids": torch.tensor([[16, 2]])},
            measures="gradient_input",
            objective=(1, 2),
        )
    twin = speechmix.load(
        transducers.build("rnnt"), init="random", processor=transducers.processor()
    )
    with pytest.raises(InputError, match="give text="):
        speechmix.explain(twin, clip)
    assert (
        speechmix.explain(twin, clip, text="le chat", measures="gradient_input").text == "le chat"
    )


def test_clips_of_a_batch_are_those_alone():
    model, clips = writing_model("rnnt"), [choice_clip(), transducers.tones(*TONES, seconds=1.3)]
    together = speechmix.mix(model, clips, units="frame", clips_at_once=2)
    for maps, clip in zip(together, clips, strict=True):
        alone = speechmix.mix(model, clip, units="frame")["value_zeroing", "encoder"]
        np.testing.assert_allclose(
            maps["value_zeroing", "encoder"].scores, alone.scores, atol=1e-10
        )

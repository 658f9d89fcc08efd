"""Lenses: the last layer is the model's own output, layers agree with runs by hand, planted layers are found."""

from __future__ import annotations

import copy
import functools

import numpy as np
import pandas as pd
import pytest
import torch
from transformers.modeling_outputs import BaseModelOutput

import speechmix
from speechmix import plots
from speechmix.adapters.capture.device_copy import inputs_to_device
from speechmix.adapters.generation.greedy_generation import transcribe
from speechmix.errors import InputError
from speechmix.extensions.lens.lens import LayerReplay
from speechmix.extensions.lens.lens_result import TunedLens, decided_layers
from speechmix.extensions.planted.planting import plant
from speechmix.inputs import bundled
from speechmix.interfaces.cli.command_line import create_parser
from speechmix.interfaces.cli.score_options import collect_score_arguments
from speechmix.interventions.decision import Decision
from speechmix.runs.score_clips import compute_kinds
from tests.models import inputs_of, tiny, trained, transducers, translators

CLIPS = bundled.clips()
HEADS = {
    "wav2vec2-post": "encoder",
    "wav2vec2-adapters": "encoder",
    "hubert-post": "encoder",
    "wavlm-post": "encoder",
    "data2vec-audio": "encoder",
    "whisper-80": "decoder",
    "bart": "decoder",
    "marian": "encoder",
    "bert": "encoder",
    "gpt2": "decoder",
    "llama": "decoder",
}
SINGLE = ("wav2vec2-post", "whisper-80", "gpt2")  # of which single precision is always tried


@functools.cache
def twin(name, seed=0):
    return speechmix.load(bundled.models()[name], init="random", seed=seed, device="cpu")


def replayed(model, stack, inputs, read=lambda output: output.logits):
    """Logits of the model, and of it ending at each layer."""
    inputs = inputs_to_device(inputs, model.device, model.state_dtype)
    with model.in_use(model.state_dtype), torch.no_grad():
        intact = read(model.run_with_head(inputs))
        replay = LayerReplay.record(model, stack, inputs)
        ended = []
        for layer in range(-1, len(model.stacks[stack])):
            with replay.ending_at(layer):
                ended.append(read(model.run_with_head(inputs)))
        assert torch.equal(read(model.run_with_head(inputs)), intact)  # nothing of it stays
    return intact, ended


@pytest.mark.parametrize(
    ("name", "stack", "dtype"),
    [(*head, torch.float64) for head in HEADS.items()]
    + [
        pytest.param(*head, torch.float32, marks=[pytest.mark.long] * (head[0] not in SINGLE))
        for head in HEADS.items()
    ],
)
def test_the_last_layer_is_the_output_of_the_model(name, stack, dtype):
    model = tiny(name, dtype)
    intact, ended = replayed(model, stack, inputs_of(model))
    assert torch.equal(ended[-1], intact)
    assert not any(torch.allclose(each, intact) for each in ended[:-1])


def test_layers_of_decoders_and_ctc_encoders_agree_with_norm_and_head_by_hand():
    readouts = {
        "gpt2": ("decoder", lambda m, h: m.lm_head(m.transformer.ln_f(h))),
        "llama": ("decoder", lambda m, h: m.lm_head(m.model.norm(h))),
        "wav2vec2-post": ("encoder", lambda m, h: m.lm_head(h)),
        "wav2vec2-adapters": ("encoder", lambda m, h: m.lm_head(m.wav2vec2.encoder.layer_norm(h))),
    }
    for name, (stack, read) in readouts.items():
        model = tiny(name)
        inputs = inputs_of(model)
        _, ended = replayed(model, stack, inputs)
        states = model.module(**inputs, output_hidden_states=True).hidden_states
        for layer in range(len(ended) - 1):  # transformers put the norm behind the last one
            torch.testing.assert_close(ended[layer], read(model.module, states[layer]))


def test_the_decoder_reads_an_early_encoder_layer_as_by_hand():
    model = tiny("whisper-80")
    inputs = inputs_of(model)
    _, ended = replayed(model, "encoder", inputs)
    encoder = model.module.model.encoder
    states = encoder(inputs["input_features"], output_hidden_states=True).hidden_states
    for layer in range(len(ended) - 1):
        read = BaseModelOutput(encoder.layer_norm(states[layer]))
        by_hand = model.module(encoder_outputs=read, decoder_input_ids=inputs["decoder_input_ids"])
        torch.testing.assert_close(ended[layer], by_hand.logits)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("tiny-french-ctc", "logit"),
        ("tiny-french-whisper", "logit"),
        ("tiny-french-whisper", "encoder"),
    ],
)
def test_margin_and_text_of_the_last_layer_are_the_models(name, kind):
    model, clip = trained(name), CLIPS[1]
    with model.unchanged():  # which remembers what an encoder gives
        assert transcribe(model, clip) == "nos maisons"
        result = speechmix.lens(model, clip, kind=kind)
        assert transcribe(model, clip) == "nos maisons"
    assert result.choices[0].against == "foil"
    assert result.margins[-1, 0] == Decision.prepare(model, clip).margin
    assert result.texts[-1] == transcribe(model, clip)
    assert len(set(result.texts)) > 1
    assert [choice.label for choice in result.choices[1:]] == ["nos", "maisons"]
    assert (result.margins[-1] > 0).all()
    table = result.to_dataframe()
    assert len(table) == result.margins.size
    assert table.groupby("layer").error_rate.first().iloc[-1] == 0
    assert plots.lens_panel(result) is not None


def test_transducers_and_translators_write_at_the_last_layer_what_they_write():
    transducer = transducers.random_model("rnnt", seed=8, blank_bias=3.0)
    tones = transducers.tones(
        (0, 0.4, 0.56), (1, 0.8, 0.96), (2, 1.0, 1.1), words=[("le", 0.4, 0.56)], text="le"
    )
    translator, sentence = translators.trained_translator(), translators.pairs()[1][0]
    item = speechmix.Sentence(sentence)
    for model, given, written in (
        (transducer, tones, transcribe(transducer, tones)),
        (translator, item, translator.translate(item).translation),
    ):
        result = speechmix.lens(model, given, kind="encoder")
        assert result.texts[-1] == written != ""
    result = speechmix.lens(translator, item)
    assert result.texts == ("les chats rouges", "les chats rouges tombent")
    assert result.ranks[-1].tolist() == [1, 1, 1, 1]


def test_a_ctc_margin_is_that_of_torchs_loss():
    model, clip = trained("tiny-french-ctc"), CLIPS[1]
    result = speechmix.lens(model, clip)
    inputs = model.family.prepare(model, clip, ("encoder",)).inputs
    encoder = model.module.wav2vec2.encoder
    with torch.no_grad():
        states = model.module(**inputs, output_hidden_states=True).hidden_states[2]
        normed = encoder.layer_norm(states) if model.config.do_stable_layer_norm else states
        scores = model.module.lm_head(normed)[0].double().log_softmax(-1)
    losses = [
        torch.nn.functional.ctc_loss(
            scores[:, None],
            torch.tensor([ids]),
            torch.tensor([len(scores)]),
            torch.tensor([len(ids)]),
            blank=model.config.pad_token_id,
            reduction="sum",
        )
        for ids in (model.tokenizer(text).input_ids for text in ("nos maisons", "nos maison"))
    ]
    assert result.margins[2, 0] == pytest.approx(float(losses[1] - losses[0]), abs=1e-4)


def found_layer(family, layer, seed, preferred):
    """Layer that the lens says decides in a planted model, the planted one being `layer`; before it,
    the model prefers one answer, which is the right one if `preferred`."""
    planted = plant("copy", family=family, layer=layer, seed=seed, rotation_seed=seed, noise=0.02)
    position, target, foil = planted.objective
    item, objective = planted.item, planted.objective
    if preferred:
        item, objective = planted.negate_contents(), (position, foil, target)
    result = speechmix.lens(planted.model, item, objective=objective)
    assert (result.margins[0, 0] > 0) == preferred
    return float(result.decided_layers[0])


@pytest.mark.parametrize("preferred", [False, True])
@pytest.mark.parametrize("family", ["gpt2", "wav2vec2", "whisper"])
def test_a_planted_layer_is_found(family, preferred):
    assert [found_layer(family, layer, layer, preferred) for layer in range(3)] == [0, 1, 2]


@pytest.mark.long
@pytest.mark.parametrize("family", ["gpt2", "wav2vec2", "whisper", "bert"])
def test_planted_layers_are_found_in_95_of_100_models(family):
    layers = np.random.default_rng(0).integers(3, size=100)
    hits = [
        found_layer(family, int(layer), seed, bool(seed % 2)) == layer
        for seed, layer in enumerate(layers)
    ]
    assert sum(hits) >= 95


def test_idle_layers_behind_the_last_do_not_move_the_layer_that_decides():
    module = copy.deepcopy(plant("copy", family="gpt2", layer=1).model.module)
    before = plant("copy", family="gpt2", layer=1)
    for _ in range(2):
        idle = copy.deepcopy(module.transformer.h[0])
        for projection in (idle.attn.c_proj, idle.mlp.c_proj):
            projection.weight.data.zero_()
            projection.bias.data.zero_()
        module.transformer.h.append(idle)
    module.config.n_layer += 2
    model = speechmix.load(module, check=False, device="cpu")
    longer = speechmix.lens(model, before.item, objective=before.objective)
    shorter = speechmix.lens(before.model, before.item, objective=before.objective)
    assert len(longer.texts) == len(shorter.texts) + 2
    assert longer.decided_layers[0] == shorter.decided_layers[0] == 1


def test_the_sign_alone_would_be_found_too_early_and_an_unsure_end_has_no_layer():
    margins = np.array([[0.1, -0.1, 0, 1], [0.2, 2, 0, np.nan], [4, -3, 0, np.nan]])
    assert decided_layers(margins).tolist()[:2] == [1, 1]
    assert np.isnan(decided_layers(margins)[2:]).all()


def test_a_trained_model_decides_in_a_layer_and_an_untrained_twin_in_none():
    clips = [clip for clip in CLIPS if clip.meta["control"] == "no"][:12]
    name = "tiny-french-ctc"
    table = pd.concat(
        speechmix.lens(model, clip).to_dataframe()
        for model in (trained(name), twin(name), twin(name, 1))
        for clip in clips
    )
    curves = speechmix.lens_curves(table, clips)
    assert curves["decides"].tolist() == [False, False, False, True, True]
    assert (curves["chance"] == 0.5).all()
    assert curves["error_rate"].iloc[-1] < 0.1 < curves["error_rate"].iloc[1]
    assert curves["difference"].iloc[-1] == 0
    assert (curves["twin_accuracy"] <= 0.75).all()
    assert (curves["twin_error_rate"] > 0.5).all()
    as_trained = table[table["init"] == "random"].assign(init="trained")
    assert not speechmix.lens_curves(as_trained, clips)["decides"].any()
    twice = pd.concat([table, table.assign(clip=table["clip"] + " (2)")])
    repeated = speechmix.lens_curves(twice, [*clips, *clips])
    columns = ["accuracy", "accuracy_low", "accuracy_high"]  # copies are no new evidence
    pd.testing.assert_frame_equal(repeated[columns], curves[columns])
    # Plural alone: an untrained model that prefers the longer spelling is always right.
    plural = [clip for clip in clips if clip.name.endswith("_pl")]
    is_plural = table["clip"].isin([clip.name for clip in plural]) & (table["init"] == "random")
    preferring = table[is_plural].assign(init=lambda t: t["init"].mask(t["seed"] == 0, "trained"))
    unbalanced = speechmix.lens_curves(preferring, plural)
    assert (unbalanced["accuracy_low"].iloc[1:] > unbalanced["twin_accuracy"].iloc[1:]).all()
    assert (unbalanced["chance"] == 1).all()
    assert not unbalanced["decides"].any()
    one_name = table.assign(clip=table["clip"].str.replace("_pl", "_sg"))
    with pytest.raises(InputError, match="different results of 'left_00_sg' by the same model"):
        speechmix.lens_curves(one_name, clips)


def test_a_clip_with_a_text_and_no_times_is_read_by_word():
    clip = CLIPS[1].replace(words=None, cue=None, target=None, foil=None)
    for kind in ("logit", "encoder"):
        result = speechmix.lens(trained("tiny-french-whisper"), clip, kind=kind)
        assert [choice.label for choice in result.choices] == ["nos", "maisons"]
        timed = speechmix.lens(trained("tiny-french-whisper"), CLIPS[1], kind=kind)
        np.testing.assert_array_equal(result.margins, timed.margins[:, 1:])
    accented = speechmix.lens(trained("tiny-french-whisper"), clip.replace(text="la lumière"))
    assert accented.choices[1].label == "lumière"  # the tokens are bytes


def test_a_run_has_the_table_of_the_calls(tmp_path):
    clips, name = CLIPS[:2], "tiny-french-whisper"
    options = {"lens": {"kind": "logit"}}
    models = [trained(name), twin(name)]
    compute_kinds(models, clips, tmp_path, options, progress=False, report=lambda line: None)
    stored = pd.read_parquet(tmp_path / "lens.parquet")
    assert set(stored["init"]) == {"trained", "random"}
    by_command = create_parser().parse_args("score a.wav --model m --out run --lens logit".split())
    assert collect_score_arguments(by_command)["kinds"] == options
    called = speechmix.lens(models[0], clips[0]).to_dataframe()
    of_clip = stored[(stored["clip"] == clips[0].name) & (stored["init"] == "trained")]
    assert of_clip["text"].tolist() == called["text"].tolist()
    np.testing.assert_allclose(of_clip["margin"].astype(float), called["margin"], rtol=1e-6)


def test_an_explanation_lists_the_text_of_each_layer():
    model, clip = trained("tiny-french-ctc"), CLIPS[1]
    explanation = speechmix.explain(model, clip, measures="occlusion", lens="logit")
    assert explanation.layer_texts == speechmix.lens(model, clip).texts
    assert explanation.layer_texts[0] in explanation.to_html()
    whisper = trained("tiny-french-whisper")
    wrong = clip.replace(text="nos maison", words=None, cue=None, target=None, foil=None)
    texts = speechmix.explain(
        whisper, wrong, measures="gradient_input", top=0, lens="logit", aligner=model
    )
    assert texts.layer_texts[-1] == texts.text == "nos maisons"  # not what was said


def test_an_identity_is_the_logit_lens_and_a_lens_of_another_model_is_refused(tmp_path):
    model, clip = trained("tiny-french-ctc"), CLIPS[1]
    width, count = model.stacks["encoder"].width, len(model.stacks["encoder"])
    identity = np.stack([np.eye(width + 1, width, dtype=np.float32)] * count)
    path = TunedLens("encoder", model.fingerprint, identity).save(tmp_path / "lens.npz")
    result, plain = speechmix.lens(model, clip, tuned=path), speechmix.lens(model, clip)
    assert result.kind == "tuned logit"
    assert result.texts == plain.texts
    np.testing.assert_allclose(result.margins, plain.margins, atol=1e-4)
    zeros = TunedLens("encoder", model.fingerprint, 0 * identity)
    blank = speechmix.lens(model, clip, tuned=zeros)
    assert len(set(blank.texts[:-1])) == 1
    assert blank.texts[-1] == plain.texts[-1]
    with pytest.raises(InputError, match="fit one to this model"):
        speechmix.lens(twin("tiny-french-ctc"), clip, tuned=path)
    with pytest.raises(InputError, match=r"expected finite maps \[4, 145, 144\]"):
        speechmix.lens(model, clip, tuned=zeros._replace(maps=identity[:2]))


def test_damaged_tuned_lenses_are_errors(tmp_path):
    rng = np.random.default_rng(0)
    tuned = TunedLens("encoder", "abc", rng.normal(size=(2, 4, 3)))
    path = tuned.save(tmp_path / "lens.npz")
    written = path.read_bytes()
    damaged = [b"", b"no numbers", written[: len(written) // 2], written[:-30]]
    for place in rng.integers(8 * len(written), size=300):
        flipped = bytearray(written)
        flipped[place // 8] ^= 1 << place % 8
        damaged.append(bytes(flipped))
    errors = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            read = TunedLens.load(path)
        except InputError:
            errors += 1
        else:  # a bit of a date or the like
            assert read[:2] == tuned[:2]
            np.testing.assert_array_equal(read.maps, tuned.maps)
    assert errors > 150
    np.savez(tmp_path / "changed.npz", **{**np.load(tuned.save(path)), "weights": "other"})
    with pytest.raises(InputError, match="not those that were written"):
        TunedLens.load(tmp_path / "changed.npz")


def test_what_has_no_lens_is_refused():
    model = trained("tiny-french-ctc")
    with pytest.raises(InputError, match="no decoder behind an encoder"):
        speechmix.lens(model, CLIPS[1], kind="encoder")
    with pytest.raises(InputError, match="kind should be one of"):
        speechmix.lens(model, CLIPS[1], kind="tuned")
    result = speechmix.lens(model, CLIPS[1].replace(cue=None, target=None, foil=None))
    assert [choice.against for choice in result.choices] == ["absence", "absence"]
    with pytest.raises(InputError, match="not among the items"):
        speechmix.lens_curves(result.to_dataframe(), CLIPS[2:4])

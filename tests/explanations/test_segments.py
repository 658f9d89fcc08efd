"""Explain a clip in which nobody speaks: segments of its sound, and the padding, are the sources."""

import functools

import numpy as np
import pytest

import speechmix
from speechmix import Clip, Sentence
from speechmix.errors import InputError
from speechmix.inputs import bundled
from speechmix.interventions.decision import Decision

RATE = 16_000
LABELS = [f"{0.25 * i:.2f}-{0.25 * (i + 1):.2f} s" for i in range(8)]


def noise(seed=0, **details):
    samples = np.random.default_rng(seed).normal(0, 0.1, 2 * RATE).astype(np.float32)
    return Clip.from_array(samples, RATE, **{"name": "noise", **details})


@pytest.fixture(scope="module")
def whisper():
    return speechmix.load(bundled.models()["tiny-french-whisper"])


@pytest.fixture(scope="module")
def ctc():
    return speechmix.load(bundled.models()["tiny-french-ctc"])


@pytest.fixture(scope="module")
def of_noise(whisper, ctc):
    """Explains `noise()` by occlusion, once for all tests."""
    models = {"whisper": whisper, "ctc": ctc}
    return functools.cache(
        lambda name: speechmix.explain(models[name], noise(), measures="occlusion")
    )


@pytest.mark.parametrize("name", ["whisper", "ctc"])
def test_noise_is_explained_by_segments_and_said_to_be_no_speech(name, of_noise, request):
    model = request.getfixturevalue(name)
    clips = [noise(), noise(language="fr"), noise(text="nos maisons")]
    for clip in clips:
        is_first = clip is clips[0]
        why = of_noise(name) if is_first else speechmix.explain(model, clip, measures="occlusion")
        sound = [source.label for source in why.sources if source.side == "sound"]
        assert sound == LABELS
        [remark] = why.remarks
        assert remark.startswith("Nobody seems to speak here: ")
        assert "segments of the sound, 0.25 s each" in remark
        assert remark in str(why)
        assert remark in why.to_html()
        said = tuple((clip.text or "").split())  # the reference counts without a placed word, too
        assert (why.said, len(why.errors), why.own_sound.any()) == (said, bool(said), False)
        assert np.isfinite(why.drops[:, :8]).all()


def test_the_padding_is_a_source_that_cannot_be_removed(whisper, of_noise):
    why = speechmix.explain(whisper, noise(), measures=["occlusion", "gradient_input", "lrp"])
    [padding] = [index for index, source in enumerate(why.sources) if source.side == "padding"]
    assert why.sources[padding].label == "<padding>"
    assert np.isnan(why.drops[:, padding]).all()
    assert np.isnan(why.attributions["occlusion"].values[:, padding]).all()
    assert len(why.frames) == 100  # frames of the sound alone
    for name in ("gradient_input", "lrp"):
        attribution = why.attributions[name]
        assert np.isfinite(attribution.values[:, padding]).all()
        assert attribution.by_frame.values.shape[1] == 100
    # of a sum of parts the padding's is all that is in no frame and no earlier word
    lrp = why.attributions["lrp"]
    parts = np.nan_to_num(lrp.values).sum(axis=1) + np.nan_to_num(lrp.rest)
    np.testing.assert_allclose(parts, lrp.totals, rtol=1e-4, atol=1e-4)
    sides = {source.side for source in of_noise("ctc").sources}
    assert sides == {"sound"}


def test_segments_of_speech_keep_the_reference_and_the_written_words(whisper):
    clip = bundled.clips()[1]
    words = speechmix.explain(whisper, clip, measures="occlusion")
    divided = speechmix.explain(whisper, clip, measures="occlusion", segments=0.25)
    assert (divided.text, divided.said, divided.errors) == (words.text, words.said, words.errors)
    assert divided.remarks == ()
    assert divided.sources[0].label == "0.00-0.25 s"
    assert not divided.own_sound.any()


def test_the_effect_of_a_segment_is_that_of_its_samples():
    # in 64 bits: sets of sources run in a batch, a clip alone, which rounds otherwise
    ctc = speechmix.load(bundled.models()["tiny-french-ctc"], dtype="float64")
    clip = noise()
    values = speechmix.shapley(ctc, clip, segments=0.5)
    intact = Decision.prepare(ctc, speechmix.segment_clip(clip, 0.5))
    for index, alone in enumerate(values.table["alone"]):
        samples = clip.audio(RATE).copy()
        samples[8_000 * index : 8_000 * (index + 1)] = 0
        other = Clip.from_array(samples, RATE, text=intact.objective.details["texts"][0])
        muted = Decision.prepare(ctc, speechmix.segment_clip(other, 0.5))
        assert intact.margin - muted.margin == pytest.approx(alone, abs=1e-6)


@pytest.mark.parametrize("name", ["whisper", "ctc"])
def test_without_a_target_the_whole_text_is_the_decision(name, of_noise, request):
    model = request.getfixturevalue(name)
    values = speechmix.shapley(model, noise(), segments=0.5)
    assert values.table["label"].tolist() == [
        f"{0.5 * i:.2f}-{0.5 * (i + 1):.2f} s" for i in range(4)
    ]
    total = values.margin - values.provenance["nothing"]
    assert values.table["drop"].sum() == pytest.approx(total, abs=1e-9)
    if name == "whisper":  # log-probabilities of all tokens but the end
        why = of_noise(name)
        logs = [np.log(token.probability) for token in why.tokens if token.label != "(end)"]
        assert values.margin == pytest.approx(sum(logs), abs=1e-4)
    options = {"metrics": ["spearman"], "aggregations": ["last"], "segments": 0.5}
    results = speechmix.faithfulness(model, [noise()], measures="gradient_input", **options)
    assert results.left_out.empty
    assert {"mute", "knock-out"} <= set(results.values["perturbation"])


@pytest.mark.parametrize("name", ["whisper", "ctc"])
def test_maps_have_segments_and_the_padding_as_units(name, request):
    model = request.getfixturevalue(name)
    measures = ["attention", "value_zeroing"]
    divided = speechmix.segment_clip(noise(), 0.25)
    maps = speechmix.mix(model, divided, measures=measures)
    encoder = maps["attention", "encoder"]
    labels = [*LABELS, "<padding>"] if name == "whisper" else LABELS
    assert [span.label for span in encoder.sources] == labels
    assert [span.label for span in encoder.targets] == labels
    covered = [position for span in encoder.sources for position in span.positions]
    assert covered == list(range(len(covered)))  # every frame, once
    frames = np.array([len(span) for span in encoder.sources])
    for (measure, stack), mixing_map in maps.items():
        if measure == "attention" and stack != "decoder":  # a word's is the mean of its frames
            np.testing.assert_allclose(mixing_map.scores @ frames, 1, atol=1e-5)
    shares = maps["value_zeroing", "encoder"].normalized().scores
    np.testing.assert_allclose(shares.sum(axis=-1), 1, atol=1e-6)
    renamed = speechmix.mix(
        model, [speechmix.segment_clip(noise(name="b"), 0.25)], measures=measures
    )[0]
    for key, mixing_map in maps.items():
        np.testing.assert_array_equal(mixing_map.scores, renamed[key].scores)


def test_a_name_changes_no_number(whisper, of_noise):
    first = of_noise("whisper")
    second = speechmix.explain(whisper, noise(name="b"), measures="occlusion")
    np.testing.assert_array_equal(first.value_by_fill, second.value_by_fill)


def test_a_model_that_writes_nothing_says_so(ctc):
    silent = noise(seed=1)
    for compute in (speechmix.explain, speechmix.shapley):
        with pytest.raises(InputError, match="so there is no word to explain"):
            compute(ctc, silent, segments=0.25)
    assert speechmix.explain(ctc, silent, text="nos", measures="occlusion").text == "nos"


def test_bad_values_and_texts_are_errors(whisper):
    for segments in (0, -1, float("nan"), "abc", 3.0):
        for compute in (speechmix.explain, speechmix.shapley):
            with pytest.raises(InputError, match="expected segments as seconds"):
                compute(whisper, noise(), segments=segments)
    with pytest.raises(InputError, match="divides the sound of a clip"):
        speechmix.explain(whisper, Sentence("nos maisons"), segments=0.25)


def test_words_that_an_aligner_cannot_place_give_way_to_segments(whisper):
    speech = bundled.clips()[1].replace(words=None, text=None, language=None, cue=None, target=None)
    why = speechmix.explain(whisper, speech, measures="occlusion")
    assert why.remarks[0].startswith("No words were found in the sound: ")
    with pytest.raises(InputError, match="in which language"):
        speechmix.explain(whisper, speech, measures="occlusion", align_method="synthesis")

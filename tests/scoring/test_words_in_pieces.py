"""Words in several pieces through models: their units, what is silenced, the decoder's tokens, run
folders, figures."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.inputs.words.spans import Word
from speechmix.interventions.removals import scale_words
from speechmix.reporting.plots import sound_and_map
from speechmix.reporting.plots.map_figures import timed_map
from speechmix.runs.score_clips import score_clips
from tests.conftest import build
from tests.models.text_models import bert, gpt2
from tests.scoring.test_mix import audio, whisper_that_hears

SAID = [("il", 0.10, 0.20), ("ne", 0.20, 0.40), ("mange", 0.40, 0.80), ("pas", 0.80, 1.10)]


def clip_of(cue="ne ... pas", words=SAID, **facts):
    facts = {
        "text": "il ne mange pas",
        "target": "mange",
        "foil": "manges",
        "language": "fr",
        "name": "clip",
        **facts,
    }
    return speechmix.Clip.from_array(audio(), 16_000, words=words, cue=cue, **facts)


@pytest.fixture(scope="module")
def whisper():
    return whisper_that_hears()


@pytest.fixture(scope="module")
def maps(whisper):
    return speechmix.mix(whisper, clip_of(), measures=["value_zeroing", "attention"])


def test_words_of_a_clip_have_the_scores_of_the_same_frames_given_as_spans(whisper, maps):
    encoder = maps["value_zeroing", "encoder"]
    assert [(span.label, span.ranges) for span in encoder.sources] == [
        ("il", ((5, 10),)),
        ("ne … pas", ((10, 20), (40, 55))),
        ("mange", ((20, 40),)),
    ]
    spans = [(5, 10), [(40, 55), (10, 20)], (20, 40)]
    given = speechmix.mix(whisper, clip_of(), spans=spans)["value_zeroing", "encoder"]
    assert np.array_equal(given.scores, encoder.scores)
    told = json.loads(json.dumps(encoder.provenance))
    assert (told["in_pieces"], told["words"][1]) == (
        [1],
        ["ne … pas", 0.2, 1.1, None, [[0.2, 0.4], [0.8, 1.1]]],
    )


def test_the_cue_is_one_column_and_not_the_sum_of_two(whisper, maps):
    def contribution(clip):
        encoder = speechmix.mix(whisper, clip, stacks="encoder")["value_zeroing", "encoder"]
        return speechmix.cue_contribution(encoder, cue=clip.cue, target=clip.target)

    joined, summed = contribution(clip_of()), contribution(clip_of("ne pas"))
    row = maps["value_zeroing", "encoder"].normalized().scores[:, 2]
    assert np.array_equal(joined, row[:, 1])
    assert np.abs(joined - summed).min() > 1e-4


def test_a_decoders_tokens_know_the_word_that_they_are_part_of(maps):
    decoder = maps["attention", "decoder"]
    held = {
        span.label + str(span.start): span.word for span in decoder.sources if span.word is not None
    }
    assert "".join(label[0] for label, word in held.items() if word == 1) == "nepas"
    pooled = decoder.pooled(sources="sum")
    (word,) = [span for span in pooled.sources if span.word == 1]
    assert (word.label, len(word), len(word.ranges)) == ("ne … pas", 5, 2)
    columns = [i for i, span in enumerate(decoder.sources) if span.word == 1]
    by_word = pooled.scores[..., [span.word for span in pooled.sources].index(1)]
    rows = [i for i, span in enumerate(decoder.targets) if span.word == 2]
    target = [span.word for span in pooled.targets].index(2)
    assert np.allclose(by_word[:, target], decoder.scores[:, rows][:, :, columns].sum(-1).mean(-1))


def test_frames_know_their_word_and_pool_into_it(whisper, maps):
    frames = speechmix.mix(
        whisper, clip_of(), stacks="encoder", units="frame", measures="attention"
    )["attention", "encoder"]
    assert [span.start for span in frames.sources if span.word == 1] == [
        *range(10, 20),
        *range(40, 55),
    ]
    pooled = frames.pooled(sources="mean")
    places = [i for i, span in enumerate(pooled.sources) if span.kind == "word"]
    assert [pooled.sources[i].ranges for i in places] == [
        span.ranges for span in maps["attention", "encoder"].sources
    ]
    assert np.allclose(pooled.scores[:, places][:, :, places], maps["attention", "encoder"].scores)
    assert len(pooled.sources[places[1]].intervals) == 2


def test_text_models_take_words_in_pieces_and_token_ranges():
    for model, text in ((bert(), "the cats are here"), (gpt2(), "the cats are here")):
        sentence = speechmix.Sentence(text, cue="the ... are", target="here")
        by_word = speechmix.mix(model, sentence)
        (key,) = by_word
        word = next(span for span in by_word[key].sources if span.label == "the … are")
        assert len(word.ranges) == 2
        tokens = [list(span.ranges) for span in by_word[key].sources]
        given = speechmix.mix(model, text, spans=tokens)[key]
        assert np.array_equal(given.scores, by_word[key].scores)
        assert speechmix.cue_contribution(
            by_word[key], cue=sentence.cue, target=sentence.target
        ).shape == (3,)
        assert by_word[key].provenance["in_pieces"] == [0]
        by_token = speechmix.mix(model, sentence, units="token", measures="attention")[
            "attention", key[1]
        ]
        pooled = by_token.pooled(sources="mean")
        assert [s.ranges for s in pooled.sources if s.word == 0] == [word.ranges]


@pytest.mark.parametrize("kind", ["clip", "sentence"])
def test_a_joined_word_is_taken_away_as_its_parts_are_together(kind, whisper):
    """Knock-out, occlusion and Shapley values know several words taken away together: the same, by
    another way."""
    if kind == "clip":
        model, plain, joined = whisper, clip_of("ne pas"), clip_of()
    else:
        sentence = {"text": "the cats are here", "target": "are", "foil": "is"}
        model = bert()
        plain, joined = (
            speechmix.Sentence(**sentence, cue="the here"),
            speechmix.Sentence(**sentence, cue="the ... here"),
        )
    for take in (speechmix.knock_out, speechmix.ablate_input):
        together, one = (
            take(model, plain, words=[plain.cue]),
            take(model, joined, words=[joined.cue]),
        )
        assert together.margin == one.margin
        for stack in one.stacks:
            assert np.array_equal(together.scores(stack), one.scores(stack), equal_nan=True)
    columns = ["ablated", "margin"]
    pd.testing.assert_frame_equal(
        speechmix.ablate(model, plain)[columns], speechmix.ablate(model, joined)[columns]
    )
    values = speechmix.shapley(model, joined, words=[0, 1])
    parts = [0, plain.cue] if kind == "clip" else [plain.cue, 1]
    expected = speechmix.shapley(model, plain, words=parts)
    assert np.allclose(values.scores(values.stacks[0]), expected.scores(expected.stacks[0]))


@pytest.mark.parametrize("fill", ["zeros", "room", "noise", "word"])
def test_silencing_replaces_every_piece_and_nothing_between(fill):
    joined, plain = clip_of(), clip_of("ne pas")
    silenced = speechmix.mute(joined, fill=fill).audio(16_000)
    changed = silenced != joined.audio(16_000)
    assert changed[3_200:6_400].mean() > 0.9
    assert changed[12_800:17_600].mean() > 0.9
    assert not changed[6_400:12_800].any()
    assert not changed[:3_200].any()
    if fill != "word":
        assert np.array_equal(silenced, speechmix.mute(plain, fill=fill).audio(16_000))
    quieter = scale_words(joined, {1: 0.5}).audio(16_000)
    assert np.array_equal(quieter[6_400:12_800], joined.audio(16_000)[6_400:12_800])
    assert np.allclose(quieter[12_800:17_600], joined.audio(16_000)[12_800:17_600] / 2)


def test_what_needs_one_piece_says_so(whisper):
    with pytest.raises(
        InputError,
        match="'ne … pas' is in 2 parts, and another spelling in its place needs a word in one",
    ):
        speechmix.mix(whisper, clip_of("il", target="ne ... pas", foil="ne plus"), stacks="decoder")
    sentence = speechmix.Sentence("the cats are here", cue="cats", target="the ... are", foil="is")
    with pytest.raises(InputError, match="'the … are' is in 2 parts"):
        speechmix.knock_out(bert(), sentence)


def test_a_run_keeps_pieces_and_gives_them_back(tmp_path):
    import transformers

    model = speechmix.load(
        build("wav2vec2-post"), processor=transformers.Wav2Vec2FeatureExtractor()
    )
    hesitating = [("il", 0.1, 0.2), ("mange", [(0.3, 0.5), (0.7, 0.9)])]
    clips = [clip_of(), clip_of("il", hesitating, name="hesitating", text="il mange")]
    run = score_clips(
        [model], clips, tmp_path, progress=False, report=lambda line: None, maps=True, figures=0
    )
    assert (run.done, run.skipped) == (2, [])
    opened = speechmix.open_run(tmp_path)
    for clip in clips:
        (by_model,) = opened.maps(clip.name).values()
        stored, computed = (
            by_model["value_zeroing", "encoder"],
            speechmix.mix(model, clip)["value_zeroing", "encoder"],
        )
        assert np.array_equal(stored.scores, computed.scores)
        assert (stored.targets, stored.sources) == (computed.targets, computed.sources)
        assert [Word(*word) for word in stored.provenance["words"]] == list(clip.words)
    shares = pd.read_parquet(tmp_path / "scores")
    assert {"ne … pas", "il", "mange"} <= set(shares["source_label"])
    again = score_clips(
        [model], clips, tmp_path, progress=False, report=lambda line: None, maps=True, figures=0
    )
    assert again.done == 2


def test_figures_draw_each_piece(whisper, maps):
    clip, encoder = clip_of(), maps["value_zeroing", "encoder"]
    ax = timed_map(encoder, layer=0)
    (cells,) = [part for part in ax.collections if hasattr(part, "get_coordinates")]
    edges = cells.get_coordinates()[0, :, 0]
    values = cells.get_array().reshape(3, -1)
    columns = {round(float(edge), 2): column for column, edge in enumerate(edges[:-1])}
    assert sorted(columns) == [0.1, 0.2, 0.4, 0.8]
    assert np.array_equal(values[:, columns[0.2]], values[:, columns[0.8]])
    assert not np.array_equal(values[:, columns[0.2]], values[:, columns[0.4]])
    figure = sound_and_map(clip, encoder)
    labels = [text.get_text() for ax in figure.axes for text in ax.get_xticklabels()]
    assert [label for label in labels if label in ("il", "ne", "mange", "pas")] == [
        "il",
        "ne",
        "mange",
        "pas",
    ]

"""The published ablation of speech: held against a plain loop over transformers, and against
answers known by construction."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.speech_ablation.speech_ablation import _reading_rows, ablate_speech
from speechmix.inputs import bundled
from tests.conftest import trained

CLIPS = {clip.name: clip for clip in bundled.clips()}
TWO = (
    "left_00_pl",
    next(
        name for name, clip in CLIPS.items() if clip.meta["side"] == "right" and clip.text.isascii()
    ),
)
RATE = 16_000


def double(name: str, **changes) -> speechmix.adapters.Model:
    """A bundled model of one's own, in float64."""
    return speechmix.load(bundled.models()[name], dtype="float64", device="cpu", **changes)


def without(clip: speechmix.Clip, word: int | None) -> np.ndarray:
    """The clip's samples, those of a word at zero."""
    audio = np.array(clip.audio(RATE))
    if word is not None:
        audio[round(clip.words[word].start * RATE) : round(clip.words[word].end * RATE)] = 0
    return audio


class PlainWhisper:
    """Whisper by transformers alone: probabilities of a target's letters, for clips whose every
    (ASCII) letter is a token."""

    def __init__(self):
        folder = bundled.models()["tiny-french-whisper"]
        self.model = (
            transformers.WhisperForConditionalGeneration.from_pretrained(folder).double().eval()
        )
        self.features = transformers.WhisperFeatureExtractor.from_pretrained(folder)
        self.tokenizer = transformers.WhisperTokenizerFast.from_pretrained(folder)

    def ids(self, text: str) -> list[int]:
        starts = ["<|startoftranscript|>", "<|fr|>", "<|transcribe|>", "<|notimestamps|>"]
        letters = self.tokenizer(" " + text, add_special_tokens=False).input_ids
        assert len(letters) == len(text) + 1
        return [*self.tokenizer.convert_tokens_to_ids(starts), *letters]

    def probabilities(self, audio: np.ndarray, ids: list[int]) -> torch.Tensor:
        """[T, V]: what comes behind each token that is fed."""
        heard = self.features(
            audio, sampling_rate=RATE, return_tensors="pt"
        ).input_features.double()
        with torch.no_grad():
            return (
                self.model(input_features=heard, decoder_input_ids=torch.tensor([ids]))
                .logits[0]
                .softmax(-1)
            )


def place_in_text(clip: speechmix.Clip, word: int) -> range:
    """Places of a word's letters among the tokens: four that start, one space, then letters and
    spaces."""
    start = 5 + len(" ".join(other.text for other in clip.words[:word])) + (word > 0)
    return range(start, start + len(clip.words[word].text))


@pytest.fixture(scope="module")
def whisper():
    return double("tiny-french-whisper")


@pytest.mark.parametrize("name", TWO)
def test_every_drop_of_whisper_is_that_of_a_plain_loop(whisper, name):
    clip, plain = CLIPS[name], PlainWhisper()
    table = (
        ablate_speech(whisper, clip)
        .set_index(["silenced", "condition", "fill", "reading", "aggregation"])["drop"]
        .sort_index()
    )
    ids, target = plain.ids(clip.text), place_in_text(clip, clip.target)
    unknown = plain.tokenizer.unk_token_id
    clean = plain.probabilities(without(clip, None), ids)
    likeliest = {place: int(clean[place - 1].argmax()) for place in target}
    own = {place: ids[place] for place in target}
    cases = {
        "cue": (clip.cue, list(place_in_text(clip, clip.cue))),
        "target": (clip.target, [target[0] - 1]),
    }
    for silenced, (word, blanked) in cases.items():
        replaced = [unknown if place in blanked else token for place, token in enumerate(ids)]
        shorter = [token for place, token in enumerate(ids) if place not in blanked]
        for condition, fill, heard, fed in (
            ("sound", "zeros", word, ids),
            ("tokens", "unk", None, replaced),
            ("both", "zeros + unk", word, replaced),
            ("tokens", "remove", None, shorter),
            ("both", "zeros + remove", word, shorter),
        ):
            probabilities = plain.probabilities(without(clip, heard), fed)
            for reading, tokens in (("arg-max", likeliest), ("transcript", own)):
                drops = []
                for place, token in tokens.items():
                    before = sum(
                        1 for other in range(place) if fed is not shorter or other not in blanked
                    )
                    drops.append(
                        (clean[place - 1, token] - probabilities[before - 1, token]).item()
                    )
                rows = table.loc[silenced, condition, fill, reading]
                assert rows["mean"] == pytest.approx(sum(drops) / len(drops), abs=1e-10)
                assert rows["max"] == pytest.approx(max(drops, key=abs), abs=1e-10)
                assert rows["signed max"] == pytest.approx(max(drops), abs=1e-10)


def letters_of(
    logits: torch.Tensor, ids: list[int], letters: range, blank: int = 0
) -> dict[int, list[int]]:
    """Frames of some labels on the best CTC path, by dynamic programming over all paths (label by
    label, frame by frame)."""
    scores = logits.float().log_softmax(-1).double()
    states = [blank] + [label for token in ids for label in (token, blank)]
    best = {(0, s): (scores[0, states[s]].item(), None) for s in (0, 1)}
    for t in range(1, len(scores)):
        for s, label in enumerate(states):
            before = [s, s - 1]
            if s > 1 and label != blank and label != states[s - 2]:
                before.append(s - 2)
            ways = [(best[t - 1, b][0], b) for b in before if (t - 1, b) in best]
            if ways:
                score, came_from = max(ways)
                best[t, s] = (score + scores[t, label].item(), came_from)
    last = len(scores) - 1
    state = max((len(states) - 1, len(states) - 2), key=lambda s: best[last, s][0])
    frames: dict[int, list[int]] = {letter: [] for letter in letters}
    for t in range(last, -1, -1):
        if state % 2 and (state - 1) // 2 in frames:
            frames[(state - 1) // 2].append(t)
        state = best[t, state][1]
    return frames


@pytest.mark.parametrize("name", TWO)
def test_every_drop_of_a_ctc_model_is_that_of_a_plain_loop(name):
    clip, model = CLIPS[name], double("tiny-french-ctc")
    table = ablate_speech(model, clip)
    assert set(table.condition) == {"sound"}
    drop_of = table.set_index(["silenced", "reading", "aggregation"])["drop"]
    plain = (
        transformers.Wav2Vec2ForCTC.from_pretrained(bundled.models()["tiny-french-ctc"])
        .double()
        .eval()
    )

    def logits(word: int | None) -> torch.Tensor:
        with torch.no_grad():
            return plain(torch.from_numpy(without(clip, word)).double()[None]).logits[0]

    clean = logits(None)
    vocabulary = model.tokenizer.get_vocab()
    ids = [vocabulary[letter.replace(" ", "|")] for letter in clip.text]
    place = place_in_text(clip, clip.target).start - 5
    by_letter = letters_of(clean, ids, range(place, place + len(clip.words[clip.target].text)))
    span = speechmix.mix(model, clip, stacks=["encoder"])["value_zeroing", "encoder"].targets[
        clip.target
    ]
    own_frames = range(span.start, span.stop)
    for silenced, word in (("cue", clip.cue), ("target", clip.target)):
        changed = logits(word).softmax(-1)
        drops = [
            (clean.softmax(-1)[t, k] - changed[t, k]).item()
            for t in own_frames
            for k in [int(clean[t].argmax())]
        ]
        assert drop_of[silenced, "arg-max", "mean"] == pytest.approx(np.mean(drops), abs=1e-10)
        letters = [
            np.mean(
                [
                    (clean.softmax(-1)[t, ids[letter]] - changed[t, ids[letter]]).item()
                    for t in frames
                ]
            )
            for letter, frames in by_letter.items()
        ]
        assert drop_of[silenced, "transcript", "mean"] == pytest.approx(np.mean(letters), abs=1e-10)
        assert drop_of[silenced, "transcript", "max"] == pytest.approx(
            max(letters, key=abs), abs=1e-10
        )


def test_an_encoder_is_read_at_the_target_not_at_the_cue():
    model = (
        transformers.Wav2Vec2ForCTC.from_pretrained(bundled.models()["tiny-french-ctc"])
        .eval()
        .requires_grad_(False)
    )
    for layer in model.wav2vec2.encoder.layers:  # nothing goes from frame to frame
        layer.attention.out_proj.weight.zero_()
    # the norm of its weights
    model.wav2vec2.encoder.pos_conv_embed.conv.parametrizations.weight.original0.zero_()
    model.wav2vec2.encoder.pos_conv_embed.conv.bias.zero_()
    kept = trained("tiny-french-ctc")
    # Whatever is in the sound: 0.2 s between the words, so that no frame hears of both.
    words = [("notre", 0.10, 0.30), ("maison", 0.50, 0.80)]
    audio = 0.1 * np.random.default_rng(0).standard_normal(RATE).astype(np.float32)
    clip = speechmix.Clip.from_array(
        audio, RATE, text="notre maison", words=words, cue=0, target=1, foil="maisons"
    )
    processor = transformers.Wav2Vec2Processor(kept.feature_extractor, kept.tokenizer)
    alone = speechmix.load(model, processor=processor, check=False)
    table = ablate_speech(alone, clip).set_index(["silenced", "reading", "aggregation"])["drop"]
    assert abs(table["cue", "arg-max", "max"]) < 1e-9
    assert abs(table["target", "arg-max", "max"]) > 1e-6
    assert abs(table["cue", "text", ""]) > 1e-3  # the text is that of all frames


def test_blanked_tokens_take_the_left_cue_away_from_the_decoder_and_silence_does_not():
    model = trained("tiny-french-whisper")
    pairs = sorted(
        {
            name[:7]
            for name, clip in CLIPS.items()
            if clip.meta["side"] == "left" and clip.meta["control"] == "no"
        }
    )
    clips = [CLIPS[f"{pair}_{number}"] for pair in pairs[:4] for number in ("sg", "pl")]
    margins = {"sound": [], "tokens": []}
    for clip in clips:
        table = ablate_speech(model, clip, fills_of_tokens=["unk"])
        margin = (
            table[(table.silenced == "cue") & (table.reading == "margin")]
            .set_index("condition")
            .ablated
        )
        for condition, right in margins.items():
            right.append(margin[condition] > 0)
    assert all(margins["sound"])  # the number is spelled from the tokens
    assert sum(margins["tokens"]) == len(clips) / 2  # chance: one number for all


def test_the_margin_is_that_of_the_house(whisper):
    clip = CLIPS[TWO[0]]
    table = ablate_speech(whisper, clip, sound_fills=["zeros", "noise"])
    mine = table[(table.silenced == "cue") & (table.reading == "margin")].set_index(
        ["condition", "fill"]
    )["drop"]
    drops = speechmix.ablate_input(whisper, clip, words=[clip.cue]).table.set_index("intervention")[
        "drop"
    ]
    for way, intervention in (
        (("sound", "zeros"), "mute (zeros)"),
        (("sound", "noise"), "mute (noise)"),
        (("tokens", "unk"), "blank (unk)"),
        (("tokens", "remove"), "blank (remove)"),
    ):
        assert mine[way] == pytest.approx(drops[intervention], abs=1e-9)


def test_the_control_of_the_target_is_the_one_token_before_it_and_tokens_can_be_pinned(whisper):
    clip = CLIPS[TWO[0]]
    space = whisper.tokenizer.convert_tokens_to_ids("Ġ")
    table = ablate_speech(whisper, clip, fills_of_tokens=[space])
    blanked = table[table.condition == "tokens"].drop_duplicates("silenced").set_index("silenced")
    assert blanked.tokens.to_dict() == {"cue": "n o s", "target": "␣"}
    assert set(blanked.blank) == {"Ġ"}
    # A space in the place of a space changes nothing.
    same = table[(table.silenced == "target") & (table.condition == "tokens")]
    assert same["drop"].abs().max() < 1e-12
    with pytest.raises(InputError, match="no token of id 999999"):
        ablate_speech(whisper, clip, fills_of_tokens=[999_999])


def test_a_cue_of_two_words_is_taken_away_whole():
    clip = next(
        clip for clip in CLIPS.values() if len(clip.words) == 3 and clip.meta["side"] == "left"
    )
    both = clip.replace(cue=(0, 1), target=2, foil=None)
    table = ablate_speech(trained("tiny-french-whisper"), both, fills_of_tokens=["unk"])
    cue = table[table.silenced == "cue"]
    assert set(cue.words) == {f"{clip.words[0].text} {clip.words[1].text}"}
    blanked = cue[cue.condition == "tokens"].tokens.iloc[0]
    assert blanked.replace(" ", "") == clip.words[0].text + clip.words[1].text
    assert "another word" not in set(table.silenced)  # there is none left


def test_sub_tokens_are_aggregated_as_it_says():
    intact = {"arg-max": [0.9, 0.3, 0.5], "margin": [4.0]}
    ablated = {"arg-max": [0.7, 0.8, 0.4], "margin": [1.0]}
    rows = {(row["reading"], row["aggregation"]): row for row in _reading_rows(intact, ablated)}
    assert rows["arg-max", "mean"]["drop"] == pytest.approx((0.2 - 0.5 + 0.1) / 3)
    assert rows["arg-max", "max"]["drop"] == pytest.approx(-0.5)  # the greatest change: it rose
    assert rows["arg-max", "signed max"]["drop"] == pytest.approx(0.2)  # as published
    assert rows["margin", ""]["drop"] == 3


def test_what_is_missing_is_said():
    clip = CLIPS[TWO[0]]
    with pytest.raises(InputError, match="a cue and a target"):
        ablate_speech(trained("tiny-french-ctc"), clip.replace(cue=None))
    with pytest.raises(InputError, match="sound_fills should be of"):
        ablate_speech(trained("tiny-french-ctc"), clip, sound_fills=["silence"])

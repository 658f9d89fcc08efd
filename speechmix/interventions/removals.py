"""Removal of input sources: what is removed, and what replaces it.

In: an item's inputs and `Removal`s. Out: other inputs, and which rows of their logits stand for the former positions.

Mute words in the audio of a clip: replace them by zeros, room noise, noise or another word.

No fill is neutral: zeros never occur in a room, noise is not speech, another word says something
else. So a conclusion should not rest on one fill. The clip keeps its length.

Blank a word's tokens: by a mask, unknown or padding token, or by deletion.

In: a tokenizer and prepared inputs of one item. Out: other inputs, and which positions are left.
What a tokenizer calls unknown may be no neutral blank (Whisper's is the end of text), so, as in the
sound, no conclusion should rest on one filler alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..adapters.generation.audio_prompt import audio_inputs
from ..adapters.generation.emission_paths import PATH_STATES
from ..errors import InputError
from ..inputs.clips.clip import SEGMENTS, Clip
from ..inputs.sentences.sentence import Sentence
from ..inputs.words.cue_and_target import cue_words
from ..mixing.passes.request import MixRequest
from ..mixing.passes.view_kinds import make_view

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from ..adapters.model import Model
    from ..inputs.clips.clip import Clip
    from ..inputs.sentences.sentence import Sentence
    from ..inputs.words.timed_words import Word


_Interval = tuple[float, float]  # of a word, or of one piece of it, in seconds
SOUND_FILLS = ("zeros", "room", "noise", "word")
FILL_SAMPLE_RATE = 16_000
_MIN_ROOM_SECONDS = 0.03  # seconds of a clip without words, below which its room cannot be heard
_FADE_SECONDS = 0.005  # seconds in which filler and clip cross over


def mute(
    clip: Clip, word: int | Sequence[int] | None = None, *, fill: str = "zeros", seed: int = 0
) -> Clip:
    """Return the clip with the audio of a word, or of several, replaced.

    The words keep their times. Each piece of a word in pieces is replaced; what lies between the
    pieces stays.

    Parameters
    ----------
    clip : Clip
        With words.
    word : int or sequence of int, optional
        Index of the word, or of several; the cue (all its words) by default. With
        ``fill="word"``, no muted word fills another.
    fill : {"zeros", "room", "noise", "word"}
        Zeros; the clip's own audio outside all words, repeated; noise with the word's spectrum and
        loudness (random phases); or the clip's word that is nearest in length (neither cue nor
        target if possible), cut or repeated to the length of this one.
    seed : int
        Seed of the noise.

    Returns
    -------
    Clip

    Raises
    ------
    InputError
        If the clip has no words, less than 30 ms outside words (for "room"), or no other word (for
        "word").

    Examples
    --------
    >>> clip = Clip.from_array(np.ones(16_000), 16_000, words=[("les", 0.2, 0.4), ("livres", 0.4, 0.9)], cue="les")
    >>> float(mute(clip).audio(16_000)[4_800])
    0.0
    """
    word_indices = _check_word_indices(
        clip, (clip.cue_words or [None]) if word is None else cue_words(word)
    )
    if fill not in SOUND_FILLS:
        raise InputError(f"fill should be one of {SOUND_FILLS}, found {fill!r}")
    audio = clip.audio(FILL_SAMPLE_RATE)
    muted = audio.copy()
    for interval in (
        interval for index in word_indices for interval in (clip.words or ())[index].intervals
    ):
        filler = _FILLERS[fill](clip, audio, word_indices, interval, seed)
        sample_range = _sample_range(interval)
        muted[sample_range] = (
            filler if fill == "zeros" else _blend_edges(filler, audio[sample_range])
        )
    return replace_sound(clip, muted)


def scale_words(clip: Clip, gains: Mapping[int, float]) -> Clip:
    """Return the clip with the samples of some words scaled: 1 keeps a word, 0 mutes it.

    `gains` are factors by word index; a word that the clip does not have is an InputError.
    """
    _check_word_indices(clip, gains)
    audio = clip.audio(FILL_SAMPLE_RATE).copy()
    for index, gain in gains.items():
        for interval in (clip.words or ())[index].intervals:
            audio[_sample_range(interval)] *= gain
    return replace_sound(clip, audio)


def splice_words(clip: Clip, other: Clip, words: Sequence[int]) -> Clip:
    """Return the clip with another clip's audio of some words, without word times.

    The audio keeps the other clip's length, so later words move. A word with more pieces in one
    clip than in the other is an InputError.
    """
    audio, donor = clip.audio(FILL_SAMPLE_RATE), other.audio(FILL_SAMPLE_RATE)
    interval_pairs: list[tuple[_Interval, _Interval]] = []
    for index in words:
        word, replacement = (clip.words or ())[index], (other.words or ())[index]
        if len(word.intervals) != len(replacement.intervals):
            raise InputError(
                f"{clip.name}: {word.text!r} has {len(word.intervals)} pieces, but "
                f"{replacement.text!r} in {other.name} has {len(replacement.intervals)}"
            )
        interval_pairs += zip(word.intervals, replacement.intervals, strict=True)
    # The last first: those before it have not moved yet.
    for interval, donor_interval in sorted(interval_pairs, reverse=True):
        sample_range, donor_samples = _sample_range(interval), donor[_sample_range(donor_interval)]
        audio = np.concatenate(
            [audio[: sample_range.start], donor_samples, audio[sample_range.stop :]]
        )
    return replace_sound(clip.replace(words=None, cue=None, target=None, foil=None), audio)


def _check_word_indices(clip: Clip, words: Iterable[int | None]) -> list[int]:
    requested = list(words)
    indices = [word for word in requested if word is not None and 0 <= word < len(clip.words or ())]
    if not clip.words or len(indices) < len(requested):
        raise InputError(
            f"{clip.name}: expected words with times and the index of one of them (or a cue), found "
            f"{len(clip.words or ())} words, word={requested}"
        )
    return indices


def replace_sound(clip: Clip, audio: np.ndarray) -> Clip:
    """Return the clip with other samples, at 16 kHz."""
    metadata = {
        name: getattr(clip, name)
        for name in ("name", "text", "cue", "target", "foil", "language", "meta")
    }
    changed = Clip.from_array(audio, FILL_SAMPLE_RATE, **metadata)
    return (
        changed
        if clip.words is None
        else changed.with_words(clip.words, alignment=SEGMENTS if clip.has_segments else None)
    )


def random_phase_noise(samples: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Make noise with the spectrum of a sound: the same magnitudes, random phases."""
    spectrum = np.abs(np.fft.rfft(samples))
    phases = np.exp(1j * generator.uniform(0, 2 * np.pi, len(spectrum)))
    return np.asarray(np.fft.irfft(spectrum * phases, len(samples)))


def _sample_range(interval: _Interval) -> slice:
    start, end = interval
    return slice(round(start * FILL_SAMPLE_RATE), round(end * FILL_SAMPLE_RATE))


def _word_samples(word: Word, audio: np.ndarray) -> np.ndarray:
    """Return the samples of all pieces of a word."""
    return np.concatenate([audio[_sample_range(interval)] for interval in word.intervals])


def _fill_with_zeros(
    clip: Clip, audio: np.ndarray, muted_indices: Sequence[int], interval: _Interval, seed: int
) -> np.ndarray:
    return np.zeros(len(audio[_sample_range(interval)]), audio.dtype)


def _fill_with_room(
    clip: Clip, audio: np.ndarray, muted_indices: Sequence[int], interval: _Interval, seed: int
) -> np.ndarray:
    is_spoken = np.zeros(len(audio), bool)
    for spoken_interval in (edges for word in clip.words or () for edges in word.intervals):
        is_spoken[_sample_range(spoken_interval)] = True
    if (~is_spoken).sum() < _MIN_ROOM_SECONDS * FILL_SAMPLE_RATE:
        raise InputError(
            f"{clip.name}: fill 'room' needs {_MIN_ROOM_SECONDS * 1000:.0f} ms outside words, found "
            f"{(~is_spoken).sum() / FILL_SAMPLE_RATE * 1000:.0f} ms; use 'zeros', 'noise' or 'word'"
        )
    return _fit_length(audio[~is_spoken], len(audio[_sample_range(interval)]))


def _fill_with_noise(
    clip: Clip, audio: np.ndarray, muted_indices: Sequence[int], interval: _Interval, seed: int
) -> np.ndarray:
    sound = audio[_sample_range(interval)]
    noise = random_phase_noise(sound, np.random.default_rng(seed))
    loudness, noise_loudness = np.sqrt(np.mean(sound**2)), np.sqrt(np.mean(noise**2))
    return (noise * (loudness / noise_loudness if noise_loudness > 0 else 0)).astype(audio.dtype)


def _fill_with_word(
    clip: Clip, audio: np.ndarray, muted_indices: Sequence[int], interval: _Interval, seed: int
) -> np.ndarray:
    words = clip.words or ()
    other_indices = [
        i
        for i in range(len(words))
        if i not in muted_indices and len(_word_samples(words[i], audio))
    ]
    neutral_indices = [i for i in other_indices if i not in (*clip.cue_words, clip.target)]
    if not other_indices:
        raise InputError(
            f"{clip.name}: fill 'word' needs another word; use 'zeros', 'room' or 'noise'"
        )
    seconds = interval[1] - interval[0]
    filler_index = min(
        neutral_indices or other_indices, key=lambda i: abs(words[i].seconds - seconds)
    )
    return _fit_length(
        _word_samples(words[filler_index], audio), len(audio[_sample_range(interval)])
    )


_FILLERS: dict[str, Callable[[Clip, np.ndarray, Sequence[int], _Interval, int], np.ndarray]] = {
    "zeros": _fill_with_zeros,
    "room": _fill_with_room,
    "noise": _fill_with_noise,
    "word": _fill_with_word,
}


def _fit_length(samples: np.ndarray, length: int) -> np.ndarray:
    """Cut samples to a length, or repeat them forwards and backwards (so without jumps)."""
    mirrored_samples = np.concatenate([samples, samples[::-1]])
    return np.resize(mirrored_samples, length) if length > len(samples) else samples[:length]


def _blend_edges(filler: np.ndarray, sound: np.ndarray) -> np.ndarray:
    """Cross-fade a filler with the audio at both edges."""
    ramp_length = min(round(_FADE_SECONDS * FILL_SAMPLE_RATE), len(sound) // 2)
    filler_weight = np.ones(len(sound), sound.dtype)
    ramp = np.linspace(0, 1, ramp_length, endpoint=False, dtype=sound.dtype)
    filler_weight[:ramp_length], filler_weight[len(filler_weight) - ramp_length :] = (
        ramp,
        ramp[::-1],
    )
    blended: np.ndarray = filler_weight * filler + (1 - filler_weight) * sound
    return blended


TOKEN_FILLS = ("mask", "unk", "pad", "remove")
_TEXT_INPUT = "input_ids"


def token_fills(model: Model) -> tuple[str, ...]:
    """List the fills for which a model's tokenizer has a token.

    Two that are the same token count once: in Whisper, unknown and padding are the end of text.
    """
    ids = {fill: fill_token_id(model, fill) for fill in TOKEN_FILLS[:-1]}
    fill_by_token_id = {id_: fill for fill, id_ in reversed(ids.items()) if id_ is not None}
    return (*(fill for fill in ids if fill in fill_by_token_id.values()), "remove")


def fill_token_id(model: Model, fill: str | int) -> int | None:
    """Return the id of a fill's token, or a given id; None if the model has no embedding of it."""
    token_id = fill if isinstance(fill, int) else getattr(model.tokenizer, f"{fill}_token_id", None)
    return (
        token_id
        if token_id is not None
        and 0 <= token_id < getattr(model.text_config, "vocab_size", token_id + 1)
        else None
    )


def blank(
    model: Model,
    item: Clip | Sentence | str,
    word: int | Sequence[int] | None = None,
    *,
    fill: str = "remove",
) -> dict[str, Tensor]:
    """Return what a model is fed for an item, with a word's tokens blanked: prepared inputs, for
    `mix` or one's own use.

    Parameters
    ----------
    model : Model
        With its tokenizer.
    item : Clip, Sentence or str
        Of a clip the transcript that the decoder is fed is changed; its sound is for `mute`.
    word : int or sequence of int, optional
        Index of the word, or of several; the cue (all its words) by default.
    fill : {"mask", "unk", "pad", "remove"}

    Returns
    -------
    dict of str to Tensor [1, ...]

    Raises
    ------
    InputError
        If there is no such word in the text, the tokenizer has no such token, or the model is fed
        no text.

    Examples
    --------
    >>> inputs = speechmix.blank(model, "the keys to the cabinet are here", 4, fill="mask")  # doctest: +SKIP
    """
    item = Sentence(item) if isinstance(item, str) else item
    word_indices = item.cue_words if word is None else cue_words(word)
    model.refuse_audio_tokens(
        f"{model.name} reads a prompt and an answer: say others with prompt= or answer=; "
        "silence is for its sound"
    )
    stacks = model.capabilities.prepared_stacks
    view = make_view(model, item, MixRequest(units="word"), stacks)
    side = model.capabilities.text_input
    if side not in view.prepared.inputs:
        raise InputError(f"{model.name} is fed no text: its sound is for speechmix.mute")
    stack = model.capabilities.stack_by_side["text"]
    text_words = {span.word for span in view.sources(stack)}
    if not word_indices or not text_words.issuperset(word_indices):
        raise InputError(
            f"{item.name}: expected the index of a word of the text (or a cue), found word={word!r}"
        )
    positions = [
        position
        for span in view.sources(stack)
        if span.word in word_indices
        for position in span.positions
    ]
    return blank_tokens(model, view.prepared.inputs, positions, fill=fill, side=side)[0]


def blank_tokens(
    model: Model,
    inputs: Mapping[str, Tensor],
    positions: Sequence[int],
    *,
    fill: str | int,
    side: str = _TEXT_INPUT,
) -> tuple[dict[str, Tensor], list[int]]:
    """Return inputs [1, T] with some tokens blanked, and the former positions of the tokens that
    remain.

    `fill` is "mask", "unk", "pad", "remove" or a token's id; padding is also excluded by the
    attention mask, where the model takes one. `side` is "input_ids" or "decoder_input_ids". An
    InputError says that the tokenizer has no such token, or that nothing would be left.
    """
    if fill not in TOKEN_FILLS and not isinstance(fill, int):
        raise InputError(f"fill should be one of {TOKEN_FILLS}, found {fill!r}")
    new_inputs, length = dict(inputs), inputs[side].shape[1]
    blank_positions = sorted(set(positions))
    if fill == "remove":
        kept_positions = [
            position for position in range(length) if position not in set(blank_positions)
        ]
        if not kept_positions:
            raise InputError("removing these tokens would leave none")
        names = [
            name
            for name in inputs
            if name == side
            or (side == _TEXT_INPUT and name in ("attention_mask", "token_type_ids"))
        ]
        return {
            **new_inputs,
            **{name: inputs[name][:, kept_positions] for name in names},
        }, kept_positions
    token = fill_token_id(model, fill)
    if token is None:
        description = f"token of id {fill}" if isinstance(fill, int) else f"{fill} token"
        raise InputError(
            f"{model.name}: its tokenizer has no {description}; there is {', '.join(token_fills(model))}"
        )
    new_inputs[side] = inputs[side].clone()
    new_inputs[side][:, blank_positions] = token
    if fill == "pad" and side == _TEXT_INPUT and "attention_mask" in inputs:
        new_inputs["attention_mask"] = inputs["attention_mask"].clone()
        new_inputs["attention_mask"][:, blank_positions] = 0
    return new_inputs, list(range(length))


SOUND, TEXT_IDS, DECODER_IDS = SIDES = ("sound", "input_ids", "decoder_input_ids")

# For each former position the row of the logits that stands for it, -1 for none; None: its own.
RowIndices = tuple[int, ...] | None


class SoundRemover(ABC):
    """Removes parts of a clip's sound that are no words, such as cells of its spectrum."""

    @abstractmethod
    def remove(self, indices: Sequence[int], clip: Clip) -> Clip:
        """Return the clip without the parts of these indices."""


@dataclass(frozen=True)
class Removal:
    """Sources that are removed from one side of an input, and what replaces them.

    Parameters
    ----------
    side : {"sound", "input_ids", "decoder_input_ids"}
        The sound, or the tokens of this input of the model.
    indices : tuple of int
        Indices of the clip's words, or positions of tokens.
    fill : str, float, Clip, SoundRemover, int or tuple of int
        Of a sound: a fill of `mute`, a factor for its samples, a clip whose sound of the same words is put in, or
        a `SoundRemover`, whose parts the indices are. Of tokens:
        a fill of `blank`, the id of a token, or one id for each position, None for a position that is removed.
    """

    side: str
    indices: tuple[int, ...]
    fill: str | int | float | Clip | SoundRemover | tuple[int | None, ...]


def change_inputs(
    model: Model,
    item: Clip | Sentence | None,
    inputs: Mapping[str, Tensor],
    removals: Sequence[Removal],
) -> tuple[dict[str, Tensor], RowIndices]:
    """Apply removals to the inputs [1, ...] of an item (None for prepared inputs), at most one to
    each input of tokens.

    The row indices say, for each position of the unchanged inputs, which row of the new logits
    stands for it: that of the last token up to it that is left. They are None where no row moves.
    An InputError says that a fill is not possible, that nothing would be left, or that the sound of
    something else than a clip should change.
    """
    new_inputs, row_indices = dict(inputs), None
    if any(removal.side == SOUND for removal in removals):
        new_inputs |= _change_sound(
            model, item, inputs, [removal for removal in removals if removal.side == SOUND]
        )
    generated_side = None if model.has_label_head else model.capabilities.generated_input
    for removal in removals:
        side, fill, indices = removal.side, removal.fill, removal.indices
        if isinstance(fill, tuple):
            new_inputs[side] = inputs[side].clone()
            for position, token in zip(indices, fill, strict=True):
                if token is not None:
                    new_inputs[side][:, position] = token
            indices = tuple(i for i, token in zip(indices, fill, strict=True) if token is None)
            fill = "remove"
            if not indices:
                continue
        if side != SOUND and isinstance(fill, str | int):
            new_inputs, kept_positions = blank_tokens(
                model, new_inputs, indices, fill=fill, side=side
            )
            if len(kept_positions) < inputs[side].shape[1] and side == generated_side:
                row_indices = tuple(
                    bisect_right(kept_positions, position) - 1
                    for position in range(inputs[side].shape[1])
                )
    if row_indices is not None and PATH_STATES in inputs:
        # Rows stay at their frames; behind fewer tokens the prediction network is in other states.
        new_inputs[PATH_STATES] = torch.tensor(row_indices)[inputs[PATH_STATES].cpu()]
        row_indices = None
    return new_inputs, row_indices


def prepare_sound_inputs(model: Model, clip: Clip) -> dict[str, Tensor]:
    """Prepare the inputs that a clip's sound is in, without those of its text."""
    inputs = audio_inputs(model.family.prepare(model, clip, ("encoder",)).inputs)
    return {name: torch.as_tensor(tensor) for name, tensor in inputs.items()}


def _change_sound(
    model: Model,
    item: Clip | Sentence | None,
    inputs: Mapping[str, Tensor],
    removals: Sequence[Removal],
) -> dict[str, Tensor]:
    if not isinstance(item, Clip):
        raise InputError(
            f"{'inputs' if item is None else item.name}: only the sound of a clip can be silenced"
        )
    clip = item
    for removal in removals:
        if isinstance(removal.fill, Clip):
            clip = splice_words(clip, removal.fill, removal.indices)
        elif isinstance(removal.fill, SoundRemover):
            clip = removal.fill.remove(removal.indices, clip)
        elif isinstance(removal.fill, str):
            clip = mute(clip, removal.indices, fill=removal.fill)
        elif isinstance(removal.fill, int | float):
            clip = scale_words(clip, dict.fromkeys(removal.indices, removal.fill))
        else:
            raise InputError(f"{item.name}: expected a fill of a sound, found {removal.fill!r}")
    new_inputs = prepare_sound_inputs(model, clip)
    mask_names = [name for name, tensor in new_inputs.items() if not tensor.is_floating_point()]
    if TEXT_IDS in inputs and any(
        not torch.equal(new_inputs[name], inputs[name]) for name in mask_names
    ):
        raise InputError(
            f"{item.name}: with the other's sound the clip has another length, and an audio language model another number "
            "of positions; take words of one length, or swap states or values instead"
        )
    return new_inputs

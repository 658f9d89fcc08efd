"""Was each word in the sound? Ground what a model writes about a recording of any length.

In: a trained recogniser, and a recording. Out: a `Grounding`. The recording is decoded as the model's own generation
does (`windows`), each word of each window is read without its sources (`readers`), its words are aligned with the sound by
synthesis, and a calibration of the model, if there is one, turns their log-probabilities into a confidence
(`calibration`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import isnan
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
from tqdm import tqdm

from ...adapters.generation.decoder_text import spoken_language
from ...alignment.alignment_result import aligned_words
from ...alignment.espeak import espeak_voices
from ...alignment.synthesis_aligner import words_by_synthesis
from ...errors import AlignmentError, InputError, MissingExtraError
from ...inputs.clips.clip import Clip
from ...inputs.clips.segments import file_part
from .calibration import WordCalibration, find_calibration
from .grounded_words import GroundedWord, ground_words
from .grounding import Grounding
from .loops import Loop, find_loops, select_copies, trace_loop
from .readers import WindowReader, find_reader
from .windows import (
    SHORTEST_SECONDS,
    DecodedWindow,
    DecodingOptions,
    decode_windows,
    has_timestamps,
    quietest_second,
)
from .word_readings import WordReadings

if TYPE_CHECKING:
    from ...adapters.model import Model

BLOCK_SECONDS = 300.0  # of a long recording that are in memory at a time
_SEARCH_SECONDS = 30.0  # at the end of a block, in which the quietest place is looked for
_RATE = 16_000


def ground(
    model: Model,
    audio: Clip | str | PathLike[str],
    *,
    language: str | None = None,
    calibration: WordCalibration | str | PathLike[str] | None = None,
    loop_heads: bool = True,
    align: bool = True,
    decoding: DecodingOptions | None = None,
    progress: bool = False,
) -> Grounding:
    """Find out which words of a transcript were in the sound.

    Parameters
    ----------
    model : Model
        A trained recogniser: Whisper or another encoder-decoder model, a CTC model, an audio language model. Its prompt
        (`Model.with_prompt`) is given in each window.
    audio : Clip or path
        Of any length. Its own words and text are not used.
    language : str, optional
        Of a multilingual Whisper; by default the clip's, or the one that the model detects.
    calibration : WordCalibration or path, optional
        From `speechmix.calibrate`, fitted on this model. Without one, words have no `right`.
    loop_heads : bool
        Look for the attention heads that carry a repetition loop: one run of the decoder for each layer and loop.
    align : bool
        Take word times from alignment with synthetic speech, where the language is known and the extra
        ``synthesis`` is installed. Else, and for words that are not in the sound, they come from the model: from
        cross-attention, or the frames of its tokens.
    decoding : DecodingOptions, optional
        How a Whisper with timestamps decodes: on the text of the windows before, at which temperatures.
    progress : bool
        Show a bar.

    Returns
    -------
    Grounding

    Raises
    ------
    InputError
        If the model does not transcribe, the recording cannot be read or is too short, or the calibration is of
        another model.

    Notes
    -----
    A word is in the sound if it, or one of the three words on each side in its phrase, loses at least 1 nat of
    log-probability both when silence and when white noise replaces all sound. A predictable word may lose little
    itself. In an encoder-decoder model the encoder's states are replaced, in other models the input.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load(bundled.models()["tiny-french-whisper"])
    >>> clip = next(clip for clip in bundled.clips() if clip.name == "left_00_pl")   # synthetic: "nos maisons"
    >>> [word.text for word in speechmix.ground(model, clip).words]
    ['nos', 'maisons']
    """
    clip = audio if isinstance(audio, Clip) else Clip.from_file(audio)
    clip = clip.replace(language=language or clip.language)
    decode = partial(decode_windows, options=decoding)
    return ground_windows(
        model, clip, decode, calibration, loop_heads=loop_heads, align=align, progress=progress
    )


def ground_windows(
    model: Model,
    clip: Clip,
    decode: Callable[[Model, Clip], Iterator[DecodedWindow]],
    calibration: WordCalibration | str | PathLike[str] | None = None,
    *,
    loop_heads: bool = True,
    align: bool = True,
    progress: bool = False,
) -> Grounding:
    """Ground what `decode` makes of a recording, block by block; the other parameters and errors are those of `ground`."""
    label = model.label  # without the timestamps, which each Whisper that has them gets here
    if has_timestamps(model):
        model = model.with_prefix(
            task=model.prefix.task, language=model.prefix.language, timestamps=True
        )
    reader = find_reader(model, clip.language)
    fitted = find_calibration(model, calibration)
    parts = []
    with model.unchanged(), tqdm(total=round(clip.duration), unit="s", disable=not progress) as bar:
        for start, block in recording_blocks(clip):
            parts.append(
                (start, _ground_block(model, block, decode, reader, fitted, loop_heads, align))
            )
            bar.update(round(start + block.duration) - bar.n)
    return replace(Grounding.join(parts, clip.name), clip=clip, model=label)


def recording_blocks(clip: Clip) -> Iterator[tuple[float, Clip]]:
    """Cut a long recording into blocks of about five minutes, at quiet places.

    Yields
    ------
    start : float
        Seconds.
    block : Clip
        Without words; a short recording is one block. The samples of a file are read when they are needed.
    """
    start = 0.0
    while clip.duration - start > BLOCK_SECONDS:
        first = start + BLOCK_SECONDS - _SEARCH_SECONDS
        last = min(start + BLOCK_SECONDS, clip.duration - 2 * SHORTEST_SECONDS)
        stop = first + quietest_second(file_part(clip, first, last).audio(_RATE), _RATE)
        yield start, file_part(clip, start, stop)
        start = stop
    yield start, clip if start == 0.0 else file_part(clip, start, clip.duration)


def _ground_block(
    model: Model,
    clip: Clip,
    decode: Callable[[Model, Clip], Iterator[DecodedWindow]],
    reader: WindowReader,
    calibration: WordCalibration | None,
    loop_heads: bool,
    align: bool,
) -> Grounding:
    words: list[GroundedWord] = []
    readings: list[WordReadings] = []
    loops: list[Loop] = []
    for window in decode(model, clip):
        read = reader.read(window)
        if read is not None:  # loops are found in each window: windows are transcribed apart
            grounded_words = ground_words(read, len(readings))
            copied = [select_copies(loop, grounded_words) for loop in find_loops(read.words)]
            loops += [loop.moved(len(words)) for loop in copied if loop]
            words += _align_words(model, clip, window, grounded_words) if align else grounded_words
            readings.append(read)
    if loop_heads:
        loops = [trace_loop(loop, words, readings, reader) for loop in loops]
    for index, loop in enumerate(loops):
        for at in range(loop.first, loop.stop):
            words[at] = replace(words[at], loop=index)
    if calibration is not None and words:
        right = calibration.probabilities(np.array([word.log_probability for word in words]))
        words = [replace(word, right=float(p)) for word, p in zip(words, right, strict=True)]
    return Grounding(
        clip.name,
        clip.duration,
        model.label,
        tuple(words),
        tuple(loops),
        calibration.fitted_on if calibration else "",
        clip,
    )


def _align_words(
    model: Model, clip: Clip, window: DecodedWindow, words: Sequence[GroundedWord]
) -> list[GroundedWord]:
    """Words with times from synthesis; as they are where they cannot be aligned, or the model knows no times."""
    aligned = list(words)
    indices = [
        index
        for index, word in enumerate(words)
        if word.is_in_sound() and not isnan(word.start) and len(aligned_words(word.text)) == 1
    ]
    language = spoken_language(model, clip.language, window.ids[: window.n_prefix])
    if not indices or language is None:
        return aligned
    text = " ".join(words[index].text for index in indices)
    try:
        if language not in espeak_voices():
            return aligned
        placed = words_by_synthesis(
            window.audio, text, language=language, sample_rate=window.sample_rate
        )
    except (AlignmentError, InputError, MissingExtraError):
        return aligned
    for index, word in zip(indices, placed, strict=True):
        start, end = (
            round(window.start + min(time, window.seconds), 3) for time in (word.start, word.end)
        )
        aligned[index] = replace(aligned[index], start=start, end=end)
    return aligned

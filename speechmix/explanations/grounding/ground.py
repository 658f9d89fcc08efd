"""Was each word in the sound? Ground what a model writes about a recording of any length.

In: a trained recogniser, and a recording. Out: a `Grounding`. The recording is decoded as the model's own generation
does (`windows`), each word of each window is read without its sources (`readers`), and a calibration turns what was read
into probabilities (`calibration`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
from tqdm import tqdm

from ...inputs.clips.clip import Clip
from ...inputs.clips.segments import file_part
from .calibration import WordCalibration, find_calibration
from .grounded_words import GroundedWord, ground_words
from .grounding import Grounding
from .loop_heads import trace_loop
from .loops import Loop, find_loops, select_copies
from .readers import WindowReader, find_reader
from .windows import SHORTEST_SECONDS, decode_windows, has_timestamps, quietest_second
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
    progress: bool = False,
) -> Grounding:
    """Find out which words of a transcript were in the sound.

    Parameters
    ----------
    model : Model
        A trained recogniser: Whisper or another encoder-decoder model, a CTC model, an audio language model.
    audio : Clip or path
        Of any length. Its own words and text are not used.
    language : str, optional
        Of a multilingual Whisper; by default the clip's, or the one that the model detects.
    calibration : WordCalibration or path, optional
        From `speechmix.calibrate`; by default one that comes with the package, fitted on synthetic speech.
    loop_heads : bool
        Look for the attention heads that carry a repetition loop: one run of the decoder for each layer and loop.
    progress : bool
        Show a bar.

    Returns
    -------
    Grounding

    Raises
    ------
    InputError
        If the model does not transcribe, or the recording cannot be read or is too short.

    Notes
    -----
    Removals replace the sound by silence: of an encoder-decoder model in the encoder's states, of other models in the
    input. Words that a model writes whatever it hears lose nothing by that.

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
    if has_timestamps(model):
        model = model.with_prefix(
            task=model.prefix.task, language=model.prefix.language, timestamps=True
        )
    reader = find_reader(model, clip.language)
    fitted = find_calibration(model, calibration)
    parts = []
    with model.unchanged(), tqdm(total=round(clip.duration), unit="s", disable=not progress) as bar:
        for start, block in recording_blocks(clip):
            parts.append((start, _ground_block(model, block, reader, fitted, loop_heads)))
            bar.update(round(start + block.duration) - bar.n)
    return replace(Grounding.join(parts, clip.name), clip=clip)


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
    reader: WindowReader,
    calibration: WordCalibration | None,
    loop_heads: bool,
) -> Grounding:
    words: list[GroundedWord] = []
    readings: list[WordReadings] = []
    loops: list[Loop] = []
    for window in decode_windows(model, clip):
        read = reader.read(window)
        if read is not None:  # loops are found in each window: windows are transcribed apart
            written = ground_words(read, len(readings))
            copied = [select_copies(loop, written) for loop in find_loops(read.words)]
            loops += [loop.moved(len(words)) for loop in copied if loop]
            words += written
            readings.append(read)
    if loop_heads:
        loops = [trace_loop(loop, words, readings, reader) for loop in loops]
    for index, loop in enumerate(loops):
        for at in range(loop.first, loop.stop):
            words[at] = replace(words[at], loop=index)
    if calibration is not None and words:
        features = np.array([word.features for word in words])
        made_up, right = calibration.probabilities(features)
        words = [
            replace(word, made_up=float(a), right=float(b))
            for word, a, b in zip(words, made_up, right, strict=True)
        ]
    return Grounding(
        clip.name,
        clip.duration,
        model.label,
        tuple(words),
        tuple(loops),
        calibration.fitted_on if calibration else "",
        clip,
        has_default_calibration=calibration is not None and calibration.is_default,
    )

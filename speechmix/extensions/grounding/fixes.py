"""Does a fix work? Transcribe again with one change at a time, and count made-up words, right words and seconds.

In: a recogniser, recordings, and names of fixes. Out: a `FixComparison`. Options are those of the model's own
generation, where it has them. Whether a word is made up is what `ground` says of it; with reference texts, word errors
are counted, too.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...adapters.patching.patches import silence_heads
from ...errors import InputError
from ...evaluation.statistics.intervals import bootstrap_interval
from ...inputs.clips.clip import Clip
from ...inputs.words.timed_words import merge_ranges
from ...inputs.words.transcript_accuracy import count_word_errors, normalize_language
from ..explain.source_words import find_speech
from ..explain.transcript_errors import align_words
from .ground import ground_windows
from .windows import DecodedWindow, DecodingOptions, decode_windows

if TYPE_CHECKING:
    from ...adapters.model import Model
    from .grounding import Grounding

BASELINE = "as it is"
FIXES = {
    "vad": "leave stretches without speech out before decoding (silero-vad)",
    "previous-text": "condition each window on the text of those before",
    "no-previous-text": "do not",
    "prompt": "another prompt, as prompt=TEXT",
    "hotwords": "other hotwords, as hotwords=TEXT",
    "no-prompt": "no prompt and no hotwords",
    "temperature": "these temperatures alone, as temperature=0 or temperature=0+0.4",
    "no-speech": "another threshold of no speech, as no-speech=0.3",
    "heads": "silence the heads that carry a repetition loop",
}
# Seconds: pauses that stay, and what stays around speech, as in faster-whisper.
_MAX_PAUSE, _MARGIN = 2.0, 0.4
_RATE = 16_000


@dataclass(frozen=True, eq=False)
class FixComparison:
    """What each fix does to the transcripts of some recordings.

    Parameters
    ----------
    clips : DataFrame
        A row for each fix and recording. Columns: fix, clip, text, made_up (words not in the sound), removed (made-up words of
        the baseline that are gone), added (made-up words that the baseline does not have), lost (right words of the baseline
        that are gone: words of the reference, or without one words in the sound), reference_words, errors (NaN without a
        reference), seconds (of processor time for decoding), skipped (why nothing was tried).
    """

    clips: pd.DataFrame = field(repr=False)

    def __str__(self) -> str:
        table = self.table
        cells = table.copy()
        for name in ("errors", "errors_low", "errors_high", "difference", "low", "high"):
            cells[name] = ["" if np.isnan(v) else f"{100 * v:.1f}" for v in table[name]]
        cells["cost"] = [f"{value:.2f}" for value in table["cost"]]
        cells = cells.loc[:, (cells != "").any()]
        skipped = self.clips[self.clips["skipped"] != ""]
        counts = Counter(zip(skipped["fix"], skipped["skipped"], strict=True))
        notes = [
            f"{fix}: {reason} ({count} recordings)" if count > 1 else f"{fix}: {reason}"
            for (fix, reason), count in counts.items()
        ]
        return "\n".join([cells.to_string(index=False), *notes])

    @property
    def table(self) -> pd.DataFrame:
        """A row for each fix: sums over recordings, word error rates (errors, with errors_low and errors_high) and their
        differences from the baseline (difference, low, high), cost (decoding time in units of the baseline's).

        Intervals are 95 %, by a bootstrap over recordings; NaN for fewer than five.
        """
        base = self.clips[self.clips["fix"] == BASELINE].reset_index(drop=True)
        rows = []
        for fix, rows_of_fix in self.clips.groupby("fix", sort=False):
            rows_of_fix = rows_of_fix.reset_index(drop=True)
            has_reference = rows_of_fix["errors"].notna().to_numpy()
            words = rows_of_fix["reference_words"].to_numpy(dtype=float)[has_reference]
            errors = rows_of_fix["errors"].to_numpy(dtype=float)[has_reference]
            more = errors - base["errors"].to_numpy(dtype=float)[has_reference]
            total = words.sum() or np.nan
            low, high = bootstrap_interval(np.stack([errors, more]), words)
            rows.append(
                {
                    "fix": fix,
                    **{
                        name: int(rows_of_fix[name].sum())
                        for name in ("made_up", "removed", "added", "lost")
                    },
                    "errors": errors.sum() / total,
                    "errors_low": low[0],
                    "errors_high": high[0],
                    "difference": more.sum() / total,
                    "low": low[1],
                    "high": high[1],
                    "cost": rows_of_fix["seconds"].sum() / base["seconds"].sum(),
                }
            )
        table = pd.DataFrame(rows)
        table.loc[table["fix"] == BASELINE, ["difference", "low", "high"]] = np.nan
        return table


def parse_fixes(text: str) -> list[str]:
    """Split the fixes of a command line at commas; a comma within a prompt stays.

    Examples
    --------
    >>> parse_fixes("vad,prompt=Nagg, Nell,temperature=0")
    ['vad', 'prompt=Nagg, Nell', 'temperature=0']
    """
    fixes: list[str] = []
    for part in text.split(","):
        if fixes and part.strip().partition("=")[0] not in FIXES:
            fixes[-1] += f",{part}"
        else:
            fixes.append(part.strip())
    return fixes


def try_fixes(
    model: Model,
    clips: Clip | Sequence[Clip],
    fixes: Sequence[str],
    *,
    decoding: DecodingOptions | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> FixComparison:
    """Transcribe recordings again with one change at a time.

    Parameters
    ----------
    model : Model
        A trained Whisper; of other recognisers "vad" alone can be tried.
    clips : Clip or sequence of Clip
        Recordings of any length; their texts are references.
    fixes : sequence of str
        Names of `FIXES`, some with a value: "vad", "previous-text", "no-previous-text", "prompt=TEXT", "hotwords=TEXT",
        "no-prompt", "temperature=0", "no-speech=0.3", "heads".
    decoding : DecodingOptions, optional
        Of the baseline.
    progress : callable, optional
        Called with a line before each transcription.

    Returns
    -------
    FixComparison

    Raises
    ------
    InputError
        For an unknown fix, or one that changes nothing, as "no-previous-text" where the baseline has none.

    Examples
    --------
    >>> print(try_fixes(model, clips, ["vad", "temperature=0"]))                          # doctest: +SKIP
    """
    clips = [clips] if isinstance(clips, Clip) else list(clips)
    baseline = decoding or DecodingOptions()
    trials = {fix: _make_trial(model, fix, baseline) for fix in dict.fromkeys(fixes)}
    rows = []
    with model.unchanged():
        for clip in clips:
            progress(f"{clip.name}: {BASELINE}")
            has_heads = any(trial.silences_loops for trial in trials.values())
            first = _Trial(model, baseline)
            grounding, seconds = first.ground(clip, loop_heads=has_heads)
            rows.append(_compare(clip, BASELINE, grounding, grounding, seconds))
            for fix, trial in trials.items():
                progress(f"{clip.name}: {fix}")
                heads = [head[:2] for loop in grounding.loops for head in loop.heads]
                if trial.silences_loops and not heads:
                    reason = "there is no loop that heads carry, so nothing is silenced"
                    row = _compare(clip, fix, grounding, grounding, seconds)
                    rows.append({**row, "skipped": reason})
                    continue
                changed, own_seconds = trial.ground(clip, heads=heads)
                rows.append(_compare(clip, fix, grounding, changed, own_seconds))
    order = {fix: index for index, fix in enumerate([BASELINE, *trials])}
    table = pd.DataFrame(rows).sort_values("fix", key=lambda fix: fix.map(order), kind="stable")
    return FixComparison(table.reset_index(drop=True))


@dataclass(frozen=True)
class _Trial:
    """A model and its options with one change."""

    model: Model
    decoding: DecodingOptions
    is_voice_alone: bool = False
    silences_loops: bool = False

    def ground(
        self, clip: Clip, *, loop_heads: bool = False, heads: Sequence[tuple[int, int]] = ()
    ) -> tuple[Grounding, float]:
        """Ground a recording; the seconds are those of decoding."""
        seconds: list[float] = []
        decode = partial(decode_windows, options=self.decoding)
        if self.is_voice_alone:
            decode = partial(_decode_voice, decode=decode)

        def decode_timed(model: Model, block: Clip) -> Iterator[DecodedWindow]:
            windows = decode(model, block)
            while True:
                start = time.process_time()
                with ExitStack() as changes:
                    if self.silences_loops:
                        changes.enter_context(silence_heads(model, [heads]))
                    window = next(windows, None)
                seconds.append(time.process_time() - start)
                if window is None:
                    return
                yield window

        grounding = ground_windows(
            self.model, clip, decode_timed, loop_heads=loop_heads, align=False
        )
        return grounding, sum(seconds)


def _make_trial(model: Model, fix: str, baseline: DecodingOptions) -> _Trial:
    name, _, value = fix.partition("=")
    needs_value = name in ("prompt", "hotwords", "temperature", "no-speech")
    if name not in FIXES or needs_value != bool(value):
        fixes = "; ".join(f"{fix_name}: {meaning}" for fix_name, meaning in FIXES.items())
        raise InputError(f"cannot try {fix!r}. Fixes are {fixes}")
    baseline_trial = _Trial(model, baseline)
    has_prompt = bool(model.prefix.prompt or model.prefix.hotwords)
    useless = {
        "previous-text": baseline.previous_text,
        "no-previous-text": not baseline.previous_text,
        "no-prompt": not has_prompt,
    }
    if useless.get(name):
        remedy = {
            "previous-text": "the transcript has it already",
            "no-previous-text": "windows are transcribed without the text before; give --previous-text to compare",
            "no-prompt": "there is no prompt",
        }
        raise InputError(f"trying {fix!r} changes nothing: {remedy[name]}")
    if name == "vad":
        return replace(baseline_trial, is_voice_alone=True)
    if name == "heads":
        return replace(baseline_trial, silences_loops=True)
    if name == "prompt":
        return replace(baseline_trial, model=model.with_prompt(value))
    if name == "hotwords":
        return replace(baseline_trial, model=model.with_prompt(hotwords=value))
    if name == "no-prompt":
        return replace(baseline_trial, model=model.with_prompt("", hotwords=""))
    if name.endswith("previous-text"):
        return replace(
            baseline_trial, decoding=replace(baseline, previous_text=name == "previous-text")
        )
    try:
        numbers = tuple(float(part) for part in value.split("+"))
    except ValueError as error:
        raise InputError(f"{fix!r}: expected numbers, as {name}=0.4") from error
    decoding = (
        replace(baseline, temperatures=numbers)
        if name == "temperature"
        else replace(baseline, no_speech_threshold=numbers[0])
    )
    return replace(baseline_trial, decoding=decoding)


def _decode_voice(
    model: Model, clip: Clip, decode: Callable[[Model, Clip], Iterator[DecodedWindow]]
) -> Iterator[DecodedWindow]:
    """Decode the stretches with speech, joined; pauses of more than 2 s are left out but for 0.4 s on each side."""
    stretches = [
        (max(0.0, start - _MARGIN), min(clip.duration, end + _MARGIN))
        for start, end in find_speech(clip)
    ]
    if not stretches:
        return
    audio = clip.audio(_RATE)
    ranges = merge_ranges(
        stretches, where=f"clip {clip.name!r}", tolerance=_MAX_PAUSE - 2 * _MARGIN
    )
    speech_parts = [audio[round(start * _RATE) : round(end * _RATE)] for start, end in ranges]
    joined = Clip.from_array(
        np.concatenate(speech_parts), _RATE, name=clip.name, language=clip.language
    )
    edges = np.cumsum([0.0, *(end - start for start, end in ranges)])
    for window in decode(model, joined):
        index = min(int(np.searchsorted(edges, window.start, side="right")) - 1, len(ranges) - 1)
        yield replace(window, start=ranges[index][0] + window.start - float(edges[index]))


def _compare(
    clip: Clip, fix: str, before: Grounding, after: Grounding, seconds: float
) -> dict[str, object]:
    """Count what a transcript has that another does not."""
    old_words, new_words = (
        [word.text for word in grounding.words] for grounding in (before, after)
    )
    old_made_up, new_made_up = set(before.doubtful()), set(after.doubtful())
    gone = _missing_words(old_words, new_words, clip.language)
    fresh = _missing_words(new_words, old_words, clip.language)
    row: dict[str, object] = {
        "fix": fix,
        "clip": clip.name,
        "text": " ".join(new_words),
        "made_up": len(new_made_up),
        "removed": len(gone & old_made_up),
        "added": len(fresh & new_made_up),
        "lost": len(gone - old_made_up),
        "reference_words": np.nan,
        "errors": np.nan,
        "seconds": seconds,
        "skipped": "",
    }
    if clip.text:
        reference = normalize_language(clip.text, clip.language).split()
        missed_before, missed_after = (
            _missing_words(reference, words, clip.language) for words in (old_words, new_words)
        )
        row |= {
            "lost": len(missed_after - missed_before),
            "reference_words": len(reference),
            "errors": count_word_errors(clip.text, " ".join(new_words), clip.language),
        }
    return row


def _missing_words(words: Sequence[str], others: Sequence[str], language: str | None) -> set[int]:
    """Indices of words that have no partner in another text; case and punctuation aside."""
    first, second = (
        ["".join(normalize_language(word, language).split()) or word for word in each]
        for each in (words, others)
    )
    return {row for kind, row, _ in align_words(first, second) if kind != "insertion"}

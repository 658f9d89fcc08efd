"""Which pairs become examples: those that every model under study spells right, balanced if that is
wanted.

In: a study folder with pairs, words and transcripts. Out: the annotated data set in `examples/`,
with counts of what was dropped at each stage and why, as tables and as a figure. Cue and target
must be right at their own places in the transcript (Mohebbi et al. 2023 asked only that the forms
occur in it). What is drawn for balance depends on the seed and the examples' names, never on the
corpus's order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path

from ...errors import InputError
from ...files.json_files import JsonObject
from ...files.locks import writing_to
from ...files.unfinished_files import clear_leftovers
from ...files.versions import package_versions
from ...runs.journal.stage_lines import lines, options_of
from .contrasts import CONTRASTS, INVARIANT
from .dataset import write_examples
from .example_rows import balanced_values, example_name, example_row
from .mining import RULES
from .pair_checks import balance_rules, check_spelling, reason_against
from .sampling import PUBLISHED_SEED, PairCandidate, draw_by_count, draw_evenly, lone_pair_names
from .selection_files import paths, transcribed
from .stage_counts import SelectionCounts, write_counts
from .study_folder import (
    EXAMPLES,
    PAIRS,
    WORDS,
    read_aligned_lines,
    refuse_other_pairs,
    transcript_digest,
)
from .template_tables import BALANCES
from .transcripts import compare_transcript


def select_examples(
    study: str | PathLike[str],
    *,
    models: Sequence[str] | None = None,
    contrasts: Sequence[str] | None = None,
    balance: Sequence[str] = (),
    most: int | None = None,
    draw: Mapping[str, int] | None = None,
    seed: int | None = None,
    audible_only: bool = False,
    keep_doubtful: bool = False,
    one_pair_per_sentence: bool = False,
) -> Path:
    """Choose the examples and write the annotated data set.

    Parameters
    ----------
    study : path
        Study folder with pairs, words and transcripts.
    models : sequence of str, optional
        Models that must spell cue and target right, as they are called in `transcripts/`; default:
        all that are there. An empty one asks nobody.
    contrasts : sequence of str, optional
        Kinds of contrast (`speechmix.studies.french.contrasts.CONTRASTS`) that become examples;
        default: those that a pair's template says, of the study's own the number in the third
        person. An empty one takes all.
    balance : sequence of str
        Columns of `speechmix.studies.french.template_tables.BALANCES`. Within each template and
        contrast, draw the same number of examples for each value, or combination of values.
    most : int, optional
        Draw at most so many examples per template and combination of values.
    draw : mapping of str to int, optional
        How many of each template, and none of the others
        (`speechmix.studies.french.sampling.draw_by_count`); half singular where the template says
        so. Where there are fewer, all are taken, and `draws.csv` says so. Not together with `most`.
    seed : int, optional
        Default: 0; with `draw` the published 42.
    audible_only : bool
        Keep only pairs whose cue can be told by ear and whose target's own onset does not betray
        the number, and balance the numbers: the plural of a pronoun is heard far more seldom (on
        parle; ils y pensent).
    keep_doubtful : bool
        Keep clips whose word times the aligner itself doubts.
    one_pair_per_sentence : bool
        Of what was drawn, keep only pairs that are alone in their sentence, as the published
        evaluation does. What is left may no longer be balanced.

    Returns
    -------
    Path
        The folder `examples`: examples.parquet, dataset/, about.json, counts.csv, counts.png,
        examples.csv, models.csv, dropped.csv.

    Raises
    ------
    InputError
        If a stage is missing or belongs to another corpus, or an option cannot be used.
    """
    study = Path(study)
    _check_choice(balance, most, draw)
    if seed is None:
        seed = 0 if draw is None else PUBLISHED_SEED
    if audible_only and "number" not in balance:
        balance = [*balance, "number"]
    taken = _contrasts(study, contrasts)
    names = transcribed(study) if models is None else list(models)
    for model, path in zip(names, paths(study, names), strict=True):
        refuse_other_pairs(study, path, f"transcripts of {model}", "transcribe again")
    refuse_other_pairs(study, study / WORDS, "words", "align again")
    counts = SelectionCounts(study, names)
    options: JsonObject = {
        "models": names,
        "balance": list(balance),
        "most": most,
        "seed": seed,
    }
    options |= {"audible_only": audible_only, "keep_doubtful": keep_doubtful, "contrasts": taken}
    if draw is not None:
        options["draw"] = dict(draw)
    if one_pair_per_sentence:
        options["one_pair_per_sentence"] = True

    def examples(counts: SelectionCounts | None = None) -> Iterator[JsonObject]:
        return _examples(
            study, names, counts, taken, audible_only=audible_only, keep_doubtful=keep_doubtful
        )

    candidates, folders = [], set()
    for example in examples(counts):
        candidates.append(
            PairCandidate(example["name"], example["template"], balanced_values(example))
        )
        folders.add(str(Path(example["audio"]).parent))
    if draw is None:
        drawn = draw_evenly(candidates, balance, most, seed)
    else:
        columns, readings = balance_rules(study, candidates, balance)
        drawn, counts.draws = draw_by_count(
            candidates, draw, balance=columns, readings=readings, seed=seed
        )
    if one_pair_per_sentence:
        drawn = lone_pair_names(drawn)
    root = os.path.commonpath(folders or {str(study.resolve())})

    def rows() -> Iterator[JsonObject]:
        for example in examples():
            if example["name"] in drawn:
                counts.example(example)
                yield {**example, "audio": Path(os.path.relpath(example["audio"], root)).as_posix()}
            else:
                counts.drop_pair(
                    example["name"],
                    "not drawn",
                    "for balance, beyond the number, or not alone in its sentence",
                )

    stages = {
        path.stem: options_of(path) for path in (study / PAIRS, study / WORDS, *paths(study, names))
    }
    about = {
        "audio_root": root,
        "select": options,
        "stages": stages,
        "versions": package_versions(),
    }
    with writing_to(study):
        clear_leftovers(study, below=False)
        return write_examples(
            study / EXAMPLES, rows(), about, also=lambda folder: write_counts(folder, counts)
        )


def _check_choice(balance: Sequence[str], most: int | None, draw: Mapping[str, int] | None) -> None:
    """Raise `InputError` where nothing can be chosen so."""
    if set(balance) - set(BALANCES) or (most is not None and most < 1):
        raise InputError(
            f"balance takes {', '.join(BALANCES)} and most a number from 1; found {list(balance)}, "
            f"{most}"
        )
    if draw is not None and (most is not None or not draw or min(draw.values()) < 1):
        raise InputError(
            f"draw takes counts from 1 by template, and not with most; found {dict(draw)}, "
            f"most={most}"
        )


def _contrasts(study: Path, asked: Sequence[str] | None) -> dict[str, list[str]]:
    """Contrasts that are taken, by template; of those that are not named all are."""
    mined = options_of(study / PAIRS)
    if mined.get("templates") and mined.get("rules") != RULES:
        raise InputError(
            f"{study / PAIRS} was mined by the balance_rules of another release, whose pairs are not the "
            "same: mine again (--overwrite)"
        )
    unknown = sorted(set(asked or ()) - {*CONTRASTS, INVARIANT})
    if unknown:
        raise InputError(
            f"contrasts are {', '.join((*CONTRASTS, INVARIANT))}; found {', '.join(unknown)}"
        )
    if asked is not None:
        return {"": list(asked)} if asked else {}
    return {
        template["name"]: list(template["contrasts"])
        for template in mined.get("templates", ())
        if template.get("contrasts")
    }


def _examples(
    study: Path,
    models: list[str],
    counts: SelectionCounts | None,
    contrasts: Mapping[str, Sequence[str]],
    *,
    audible_only: bool,
    keep_doubtful: bool,
) -> Iterator[JsonObject]:
    """Pairs that may become examples; the others are counted with their reason."""
    for line, transcripts in _lines_with_transcripts(study, models, counts):
        compared = {
            model: compare_transcript(line["text"], check_spelling["transcript"])
            for model, check_spelling in transcripts.items()
        }
        for pair in line["pairs"]:
            example = example_row(line, pair)
            taken = contrasts.get("", contrasts.get(example["template"]))
            if taken and example["contrast"] is not None and example["contrast"] not in taken:
                why, reason = (
                    f"contrast of {example['contrast'] or 'none'}",
                    f"only {', '.join(taken)} is asked for",
                )
            else:
                why, reason = reason_against(
                    example, pair, audible_only, keep_doubtful, line["doubts"]
                )
            if not why:
                why, reason = check_spelling(example, line, pair, transcripts, compared, counts)
            if not why:
                yield example
            elif counts is not None:
                counts.drop_pair(example["name"], why, reason)


def _lines_with_transcripts(
    study: Path, models: list[str], counts: SelectionCounts | None
) -> Iterator[tuple[JsonObject, dict[str, JsonObject]]]:
    """Lines with word times, each with its transcripts; lines that a model could not transcribe are
    counted."""
    files = {model: lines(path) for model, path in zip(models, paths(study, models), strict=True)}
    ended: JsonObject = {"key": None}
    for line in read_aligned_lines(study):
        transcripts = {model: next(file, ended) for model, file in files.items()}
        for model, spelled in transcripts.items():
            if spelled["key"] != line["key"]:
                raise InputError(
                    f"the transcripts of {model} belong to other clips than {study / WORDS}: "
                    "transcribe again"
                )
            if "of" in spelled and spelled["of"] != transcript_digest(line):
                raise InputError(
                    f"the transcript of {line['key']} by {model} is of another recording or text: "
                    "transcribe again"
                )
        failed = next(
            ((model, spelled) for model, spelled in transcripts.items() if "why" in spelled),
            None,
        )
        if failed is None:
            if counts is not None:
                counts.hear(line, transcripts)
            yield line, transcripts
        elif counts is not None:
            for pair in line["pairs"]:
                model, spelled = failed
                counts.drop_pair(
                    example_name(line, pair),
                    f"{spelled['why']} by {model}",
                    spelled["reason"],
                )

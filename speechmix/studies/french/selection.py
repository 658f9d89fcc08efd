"""Select the pairs that every model spells right.

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
from ...files.locks import hold_writing_lock
from ...files.unfinished_files import clear_leftovers
from ...files.versions import package_versions
from ...runs.journal.stage_lines import lines, read_stage_options
from .contrasts import CONTRASTS, INVARIANT
from .dataset import write_examples
from .example_rows import balance_values, example_name, make_example_row
from .mining import MINING_VERSION
from .pair_checks import balance_rules, check_spelling, find_exclusion_reason
from .sampling import (
    PUBLISHED_SEED,
    PairCandidate,
    check_draw_options,
    draw_by_count,
    draw_evenly,
    find_lone_pairs,
)
from .selection_files import list_transcribed_models, transcript_paths
from .stage_counts import SelectionCounts, write_counts
from .study_folder import (
    EXAMPLES,
    PAIRS,
    WORDS,
    read_aligned_lines,
    refuse_outdated_output,
    transcript_digest,
)
from .transcript_comparison import compare_transcript


def select_examples(
    study: str | PathLike[str],
    *,
    models: Sequence[str] | None = None,
    contrasts: Sequence[str] | None = None,
    balance: Sequence[str] = (),
    max_examples: int | None = None,
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
        all that are there. With an empty one no model is needed.
    contrasts : sequence of str, optional
        Kinds of contrast (`speechmix.studies.french.contrasts.CONTRASTS`) that become examples;
        default: those that a pair's template says, of the study's own the number in the third
        person. An empty one takes all.
    balance : sequence of str
        Columns of `speechmix.studies.french.pair_template.BALANCE_COLUMNS`. Within each template and
        contrast, draw the same number of examples for each value, or combination of values.
    max_examples : int, optional
        Draw at most so many examples per template and combination of values.
    draw : mapping of str to int, optional
        How many of each template, and none of the others
        (`speechmix.studies.french.sampling.draw_by_count`); half singular where the template says
        so. Where there are fewer, all are taken, and `draws.csv` says so. Not together with `max_examples`.
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
    check_draw_options(balance, max_examples, draw)
    if seed is None:
        seed = 0 if draw is None else PUBLISHED_SEED
    if audible_only and "number" not in balance:
        balance = [*balance, "number"]
    allowed_contrasts = _resolve_contrasts(study, contrasts)
    model_names = list_transcribed_models(study) if models is None else list(models)
    for model, path in zip(model_names, transcript_paths(study, model_names), strict=True):
        refuse_outdated_output(study, path, f"transcripts of {model}", "transcribe again")
    refuse_outdated_output(study, study / WORDS, "words", "align again")
    counts = SelectionCounts(study, model_names)
    options: JsonObject = {
        "models": model_names,
        "balance": list(balance),
        "most": max_examples,
        "seed": seed,
    }
    options |= {
        "audible_only": audible_only,
        "keep_doubtful": keep_doubtful,
        "contrasts": allowed_contrasts,
    }
    if draw is not None:
        options["draw"] = dict(draw)
    if one_pair_per_sentence:
        options["one_pair_per_sentence"] = True

    def iterate_examples(counts: SelectionCounts | None = None) -> Iterator[JsonObject]:
        return _iterate_examples(
            study,
            model_names,
            counts,
            allowed_contrasts,
            audible_only=audible_only,
            keep_doubtful=keep_doubtful,
        )

    candidates, folders = [], set()
    for example in iterate_examples(counts):
        candidates.append(
            PairCandidate(example["name"], example["template"], balance_values(example))
        )
        folders.add(str(Path(example["audio"]).parent))
    if draw is None:
        drawn_names = draw_evenly(candidates, balance, max_examples, seed)
    else:
        columns_by_template, reading_counts = balance_rules(study, candidates, balance)
        drawn_names, counts.draw_rows = draw_by_count(
            candidates, draw, balance=columns_by_template, readings=reading_counts, seed=seed
        )
    if one_pair_per_sentence:
        drawn_names = find_lone_pairs(drawn_names)
    root = os.path.commonpath(folders or {str(study.resolve())})

    def drawn_rows() -> Iterator[JsonObject]:
        for example in iterate_examples():
            if example["name"] in drawn_names:
                counts.count_example(example)
                yield {**example, "audio": Path(os.path.relpath(example["audio"], root)).as_posix()}
            else:
                counts.count_dropped_pair(
                    example["name"],
                    "not drawn",
                    "for balance, beyond the number, or not alone in its sentence",
                )

    stages = {
        path.stem: read_stage_options(path)
        for path in (study / PAIRS, study / WORDS, *transcript_paths(study, model_names))
    }
    metadata = {
        "audio_root": root,
        "select": options,
        "stages": stages,
        "versions": package_versions(),
    }
    with hold_writing_lock(study):
        clear_leftovers(study, below=False)
        return write_examples(
            study / EXAMPLES,
            drawn_rows(),
            metadata,
            write_extras=lambda folder: write_counts(folder, counts),
        )


def _resolve_contrasts(study: Path, requested: Sequence[str] | None) -> dict[str, list[str]]:
    """Contrasts that are taken, by template; of those that are not named all are."""
    mining_options = read_stage_options(study / PAIRS)
    if mining_options.get("templates") and mining_options.get("rules") != MINING_VERSION:
        raise InputError(
            f"{study / PAIRS} was mined by the rules of another release, which give other "
            "pairs: mine again (--overwrite)"
        )
    unknown_contrasts = sorted(set(requested or ()) - {*CONTRASTS, INVARIANT})
    if unknown_contrasts:
        raise InputError(
            f"contrasts are {', '.join((*CONTRASTS, INVARIANT))}; found {', '.join(unknown_contrasts)}"
        )
    if requested is not None:
        return {"": list(requested)} if requested else {}
    return {
        template["name"]: list(template["contrasts"])
        for template in mining_options.get("templates", ())
        if template.get("contrasts")
    }


def _iterate_examples(
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
        comparisons = {
            model: compare_transcript(line["text"], transcript["transcript"])
            for model, transcript in transcripts.items()
        }
        for pair in line["pairs"]:
            example = make_example_row(line, pair)
            allowed_contrasts = contrasts.get("", contrasts.get(example["template"]))
            if (
                allowed_contrasts
                and example["contrast"] is not None
                and example["contrast"] not in allowed_contrasts
            ):
                reason_kind, reason = (
                    f"contrast of {example['contrast'] or 'none'}",
                    f"only {', '.join(allowed_contrasts)} is asked for",
                )
            else:
                reason_kind, reason = find_exclusion_reason(
                    example, pair, audible_only, keep_doubtful, line["doubts"]
                )
            if not reason_kind:
                reason_kind, reason = check_spelling(
                    example, line, pair, transcripts, comparisons, counts
                )
            if not reason_kind:
                yield example
            elif counts is not None:
                counts.count_dropped_pair(example["name"], reason_kind, reason)


def _lines_with_transcripts(
    study: Path, models: list[str], counts: SelectionCounts | None
) -> Iterator[tuple[JsonObject, dict[str, JsonObject]]]:
    """Lines with word times, each with its transcripts; lines that a model could not transcribe are
    counted."""
    files = {
        model: lines(path)
        for model, path in zip(models, transcript_paths(study, models), strict=True)
    }
    end_line: JsonObject = {"key": None}
    for line in read_aligned_lines(study):
        transcripts = {model: next(file, end_line) for model, file in files.items()}
        for model, transcript in transcripts.items():
            if transcript["key"] != line["key"]:
                raise InputError(
                    f"the transcripts of {model} belong to other clips than {study / WORDS}: "
                    "transcribe again"
                )
            if "of" in transcript and transcript["of"] != transcript_digest(line):
                raise InputError(
                    f"the transcript of {line['key']} by {model} is of another recording or text: "
                    "transcribe again"
                )
        failure = next(
            (
                (model, transcript)
                for model, transcript in transcripts.items()
                if "why" in transcript
            ),
            None,
        )
        if failure is None:
            if counts is not None:
                counts.count_transcript_errors(line, transcripts)
            yield line, transcripts
        elif counts is not None:
            for pair in line["pairs"]:
                model, transcript = failure
                counts.count_dropped_pair(
                    example_name(line, pair),
                    f"{transcript['why']} by {model}",
                    transcript["reason"],
                )

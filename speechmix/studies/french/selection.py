"""Select the pairs that every model spells right.

In: a study folder with pairs, words and transcripts. Out: the annotated data set in `examples/`,
with counts of what was dropped at each stage and why, as tables and as a figure. Cue and target
must be right at their own places in the transcript (Mohebbi et al. 2023 asked only that the forms
occur in it). What is drawn for balance depends on the seed and the examples' names, never on the
corpus's order.

Transcripts and outputs that a selection reads and writes.

Reasons to exclude a pair: faults of the pair, or its spelling by models.

Make one row of the annotated data set from a pair.

In: a clip's line with words and times, and one of its pairs. Out: a dictionary with the columns of
`dataset.SCHEMA`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path

from ...errors import InputError
from ...files.cache_keys import package_versions
from ...files.json_files import Json, JsonObject
from ...files.whole_files import clear_leftovers, hold_writing_lock
from ...inputs.words.multipart_words import GAP
from ...runs.journal.stage_files import list_outputs
from ...runs.journal.stage_lines import lines, read_stage_options
from .contrasts import CONTRASTS, IMPERSONAL, INVARIANT, NUMBER_ACROSS_PERSONS, PERSON, TENSE
from .cue_number_pairs import find_cue_pair
from .dataset import write_examples
from .mining import MINING_VERSION
from .pair_template import BALANCE_COLUMNS
from .sampling import (
    PUBLISHED_SEED,
    PairCandidate,
    check_draw_options,
    draw_by_count,
    draw_evenly,
    find_lone_pairs,
)
from .stage_counts import SelectionCounts, write_counts
from .study_folder import (
    EXAMPLES,
    PAIRS,
    TRANSCRIPTS,
    WORDS,
    read_aligned_lines,
    refuse_outdated_output,
    transcript_digest,
)
from .transcript_comparison import (
    TranscriptComparison,
    compare_transcript,
    cue_and_target_positions,
)


def list_transcribed_models(study: Path) -> list[str]:
    names = list(_transcript_paths_by_model(study))
    if not names:
        raise InputError(
            f"no transcripts in {study / TRANSCRIPTS}: transcribe first, or select with models=[]"
        )
    return names


def _transcript_paths_by_model(study: Path) -> dict[str, Path]:
    """Transcripts by the names of their models."""
    outputs = {}
    for path in list_outputs(study / TRANSCRIPTS):
        model = read_stage_options(path).get("model")
        if model is None:
            raise InputError(
                f"{path.with_suffix('')}* does not say of which model it is: transcribe again, or "
                "delete it"
            )
        outputs[model] = path
    return outputs


def transcript_paths(study: Path, models: Iterable[str]) -> list[Path]:
    """Transcripts of the models, checked to belong to the pairs and words at hand."""
    outputs = _transcript_paths_by_model(study)
    missing_models = [model for model in models if model not in outputs]
    if missing_models:
        raise InputError(
            f"no transcripts of {', '.join(missing_models)}: there are those of "
            f"{', '.join(outputs) or 'no model'}"
        )
    return [outputs[model] for model in models]


_PAIR_FIELDS = ("template", "number", "person", "tense", "lemma", "contrast", "meaning", "foil")
_CUE_FIELDS = ("audible", "liaison", "distance", "numeral", "attractor")
_MAX_DISTANCE = 3  # words from cue to target, from which on distances count as one
# Both numbers exist in the others.
_ONE_NUMBER_CONTRASTS = (NUMBER_ACROSS_PERSONS, PERSON, TENSE, IMPERSONAL)


def make_example_row(line: Mapping[str, Json], pair: Mapping[str, Json]) -> JsonObject:
    """Row of the data set for a pair; cue and target are None if they are no single words."""
    text = line["text"]
    words = [
        {"text": text[a:b], "start": start, "end": end, "score": score, "from": a, "to": b}
        for a, b, start, end, score in line["words"]
    ]
    example = {
        "name": example_name(line, pair),
        "clip": line["key"],
        "audio": line["path"],
        **{name: line[name] for name in ("text", "language", "seconds", "alignment", "doubts")},
        "sound": line.get("sound"),
        "alignment_score": line["score"],
        "words": words,
        "meta": json.dumps(line["meta"], ensure_ascii=False, sort_keys=True),
        "models": [],
        **{name: pair.get(name) for name in (*_PAIR_FIELDS, *_CUE_FIELDS)},
    }
    for role in ("cue", "target", "via"):
        span = pair.get(role)
        example[role] = _find_word_index(words, span)
        example[f"{role}_word"] = text[slice(*span)] if span else None
    example["cue_indices"] = [_find_word_index(words, span) for span in cue_spans(pair)]
    separator = (
        GAP if pair.get("joined_cue") else " "
    )  # by which the reader knows a cue in several parts
    example["cue_word"] = separator.join(text[slice(*span)] for span in cue_spans(pair))
    target = example["target"]
    example["position"] = (
        None if target is None else ("start", "middle", "end")[3 * target // len(words)]
    )
    return example


def cue_spans(pair: Mapping[str, Json]) -> list[tuple[int, int]]:
    """Characters of each of the cue's words."""
    return [(start, stop) for start, stop in (pair["cue"], *(pair.get("further_cues") or ()))]


def _find_word_index(words: Sequence[Mapping[str, Json]], span: Sequence[int] | None) -> int | None:
    """Index of the one word that is at these characters; None if there are several, or none."""
    indices = [
        i
        for i, word in enumerate(words)
        if span and word["from"] < span[1] and span[0] < word["to"]
    ]
    return indices[0] if len(indices) == 1 else None


def example_name(line: Mapping[str, Json], pair: Mapping[str, Json]) -> str:
    """Name of an example: the clip's, the template's, and where in the text cue and target
    begin."""
    return f"{line['key']}.{pair['template']}.{pair['cue'][0]}-{pair['target'][0]}"


def balance_values(example: Mapping[str, Json]) -> dict[str, str]:
    """Return an example's values in the columns of `BALANCE_COLUMNS`.

    Distances of three words and more are one value. Where a contrast has one number alone (je
    parle, il fait), there is none to balance.

    Examples
    --------
    >>> values = balance_values({"contrast": "person", "number": "s", "distance": 4, "cue_word": "il"})
    >>> values["number"], values["distance"]
    ('', '3+')
    """
    values = {column: str(example.get(column)) for column in BALANCE_COLUMNS}
    distance = example.get("distance")
    values["cue_pair"] = find_cue_pair(example.get("cue_word"))
    values["distance"] = (
        str(distance) if distance is None or distance < _MAX_DISTANCE else f"{_MAX_DISTANCE}+"
    )
    if example.get("contrast") in _ONE_NUMBER_CONTRASTS:
        values["number"] = ""
    return values


def find_exclusion_reason(
    example: Mapping[str, Json],
    pair: Mapping[str, Json],
    audible_only: bool,
    keep_doubtful: bool,
    doubts: list[str],
) -> tuple[str, str]:
    """Kind of reason and reason why a pair is no example, before any model spells it; empty if it
    may be one."""
    indices = [*example["cue_indices"], example["target"]]
    if None in indices or len(set(indices)) < len(indices):
        return (
            "not two words",
            f"{example['cue_word']!r} and {example['target_word']!r} are not one word each",
        )
    for role, index in zip(
        [*["cue"] * len(example["cue_indices"]), "target"], indices, strict=True
    ):
        word = example["words"][index]
        if word["end"] <= word["start"]:
            return "no time", f"the {role} {word['text']!r} has no length in the alignment"
    if doubts and not keep_doubtful:
        return "doubtful alignment", " ".join(doubts)
    if audible_only and not (pair.get("audible") and not pair.get("liaison")):
        return (
            "not audible",
            "the cue cannot be told by ear, or liaison betrays the number at the target",
        )
    return "", ""


def check_spelling(
    example: Mapping[str, Json],
    line: Mapping[str, Json],
    pair: Mapping[str, Json],
    transcripts: Mapping[str, JsonObject],
    comparisons: dict[str, TranscriptComparison],
    counts: SelectionCounts | None,
) -> tuple[str, str]:
    """Note what each model wrote and where; say which model did not spell cue or target right."""
    reason_kind = reason = ""
    for model, transcript in transcripts.items():
        found_cues = [
            span for span in map(comparisons[model].find_span, cue_spans(pair)) if span is not None
        ]
        found_target = comparisons[model].find_span(tuple(pair["target"]))
        misspelled_roles = ["cue"] * (len(found_cues) < len(example["cue_indices"])) + [
            "target"
        ] * (found_target is None)
        if counts is not None:
            counts.count_spelling(model, line["key"], transcript, misspelled_roles)
        if misspelled_roles or found_target is None:
            reason_kind = reason_kind or f"{' and '.join(misspelled_roles)} misspelled by {model}"
            reason = reason or f"{model} writes {transcript['transcript']!r} for {line['text']!r}"
            continue
        cue_columns, target_rows = cue_and_target_positions(
            transcript["tokens"], found_cues, found_target
        )
        model_entry = {
            "model": model,
            "transcript": transcript["transcript"],
            "wer": transcript["wer"],
        }
        example["models"].append(
            {**model_entry, "cue_columns": cue_columns, "target_rows": target_rows}
        )
    return reason_kind, reason


def balance_rules(
    study: Path, candidates: Iterable[PairCandidate], balance: Sequence[str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, int]]:
    """By template, the columns to balance (those of the template, and those requested for all), and
    how many readings it gives."""
    mined_templates = {
        template["name"]: template
        for template in read_stage_options(study / PAIRS).get("templates", ())
    }
    templates = {
        name: mined_templates.get(name, {})
        for name in (*mined_templates, *(candidate.template for candidate in candidates))
    }
    columns_by_template = {
        name: tuple(dict.fromkeys((*template.get("balance", ()), *balance)))
        for name, template in templates.items()
    }
    return columns_by_template, {
        name: 2 if template.get("noun") else 1 for name, template in templates.items()
    }


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

"""Stages of the French study: mining, alignment and transcription of a corpus.

In: a corpus (see `speechmix.inputs.corpora.corpus_reading.read_corpus`), an aligner, recognisers.
Out: a study folder

    pairs.jsonl                    mine:        sentences with their cue-target pairs
    audio/<clip>                                the recordings of a data set that holds them itself
    words.jsonl                    align:       written words with times
    textgrids/<clip>.TextGrid                   the same, for Praat
    transcripts/<model>.jsonl      transcribe:  what each recogniser writes
    examples/                      select:      the annotated data set (see `speechmix.studies.french.selection`)

Each stage goes one clip at a time and can be stopped, resumed and done again alone; see
`runs.journal`. One that is done in shards has a folder of files (`pairs/3-of-48.jsonl`) where it
would have one; see `runs.journal.stage_files`.

Alignment stage of the French study.

In: a study folder with pairs, or a corpus as it is; the work to do on a line. Out: a JSON-lines
file (`runs.journal`).

Transcripts of a corpus by the models under study, clip by clip, in shards.

Corpus rows that one shard works on.

In: rows of a corpus, a shard. Out: the shard's rows with their places in the corpus; what a stage
notes of its inputs.

Output line of mining: a corpus row's pairs, or the reason for none.

In: a row, and the options of the mining. Out: its line of `pairs.jsonl`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...alignment.alignment_result import REVISION, later_changes
from ...errors import InputError
from ...files.cache_keys import digest, file_digest
from ...files.json_files import Json, JsonObject
from ...files.names import file_name_key, safe_name
from ...files.shard_assignment import WHOLE, Shard
from ...inputs.clips.corpus_row import RejectedRow, Row
from ...inputs.corpora.corpus_reading import read_corpus
from ...runs.journal.stage_journal import SkipItem, run_stage
from ...runs.journal.stage_lines import POSITION, input_digest, read_numbered_lines
from .language.lexicon import Lexicon
from .miners import Miner, build_miners
from .mining import MINING_VERSION, mine_sentence
from .pair_template import Template, load_template, load_templates
from .parser_interface import parser_code
from .study_folder import (
    PAIRS,
    TRANSCRIPTS,
    WORDS,
    find_or_write_audio,
    make_corpus_line,
    make_corpus_pair,
    read_aligned_lines,
    recording_signature,
    refuse_outdated_output,
    transcript_digest,
)

if TYPE_CHECKING:
    from ...adapters import Model


class ShardRows:
    """A shard's rows of a corpus, each with its place in it; and, when all were read, by what the
    shards know one corpus."""

    def __init__(self, rows: Iterable[Row | RejectedRow], shard: Shard):
        self._rows, self._shard = rows, shard
        self._names = hashlib.blake2b(digest_size=16)

    def __iter__(self) -> Iterator[tuple[int, Row | RejectedRow]]:
        for position, row in enumerate(self._rows):
            if self._shard.count > 1:
                self._names.update(f"{row.name}\0".encode("utf-8", "surrogatepass"))
            if self._shard.holds(row.name):
                yield position, row

    def inputs(self) -> dict[str, str]:
        """What the stage notes of its inputs; of one process alone nothing."""
        return {"corpus": self._names.hexdigest()} if self._shard.count > 1 else {}


def corpus_position_entry(position: int, shard: Shard) -> dict[str, int]:
    """Where a clip stands in the corpus; one process keeps the corpus's order, and need not say
    it."""
    return {POSITION: position} if shard.count > 1 else {}


def absolute_source(source: str | PathLike[str]) -> str:
    """Return a path in full, and a hub id as it is."""
    return str(Path(source).resolve()) if Path(source).exists() else str(source)


def run_alignment_stage(
    study: Path,
    output: Path,
    align: Callable[[JsonObject], JsonObject],
    alignment_key: Callable[[JsonObject], JsonObject],
    *,
    options: JsonObject,
    source: str | PathLike[str] | None = None,
    shard: Shard = WHOLE,
    overwrite: bool = False,
    progress: bool = False,
) -> Path:
    """Align each mined sentence, or clip of a corpus, and store its word times.

    See `runs.journal.stage_journal.run_stage`. `align` takes a line of the pairs and returns what
    to keep of it; `alignment_key` returns what decides that, beside the sound and the position in
    the corpus.
    """
    options = dict(options)
    if source is None:
        inputs: Any = {"pairs": input_digest(study / PAIRS, "text", "path", shard=shard)}
        items: Iterable[Any] = (
            (line["key"], line)
            for line in read_numbered_lines(study / PAIRS, shard)
            if "why" not in line
        )
    else:
        options["source"] = absolute_source(source)
        rows = ShardRows(read_corpus(source), shard)
        items, inputs = (
            (
                (row.name, make_corpus_line(study, row) | {POSITION: position})
                for position, row in rows
            ),
            rows.inputs,
        )

    def align_or_skip(line: JsonObject) -> JsonObject:
        if "why" in line:
            raise SkipItem(line["why"], line["reason"])
        return align(line)

    def cache_key(line: JsonObject, stored: JsonObject) -> JsonObject:
        if "why" in line:
            return {
                "of": digest([line["why"], line["reason"]]),
                **corpus_position_entry(line[POSITION], shard),
            }
        return {
            **alignment_key(line),
            **recording_signature(line["path"], stored),
            **corpus_position_entry(line[POSITION], shard),
        }

    return run_stage(
        output,
        items,
        align_or_skip,
        options=options,
        ingredients=cache_key,
        unimportant=("file", POSITION),
        inputs=inputs,
        why="not aligned",
        shard=shard,
        overwrite=overwrite,
        progress=progress,
    )


def make_mined_line(
    corpus_row: Row | RejectedRow,
    study_dir: Path,
    language: str,
    miners: Callable[[], Sequence[Miner]],
) -> JsonObject:
    """What is kept of a row: text, language, pairs (the corpus's own, or those the miners find),
    audio, words."""
    if isinstance(corpus_row, RejectedRow):
        raise SkipItem(corpus_row.reason_kind, corpus_row.reason)
    line: JsonObject = {"text": corpus_row.text, "language": language}
    if corpus_row.pairs:
        line["pairs"] = [make_corpus_pair(corpus_row, pair) for pair in corpus_row.pairs]
    else:
        mined = mine_sentence(miners(), corpus_row.text)
        line["pairs"] = [pair._asdict() for pair in mined.pairs]
        line["dropped_pairs"] = [pair._asdict() for pair in mined.dropped_candidates]
        if not mined.pairs:
            reasons = "; ".join(
                dict.fromkeys(
                    f"{pair.target_form}: {pair.reason}" for pair in mined.dropped_candidates
                )
            )
            reasons = reasons or "no cue with a target in the sentence"
            raise SkipItem("no pair", reasons, dropped_pairs=line["dropped_pairs"])
    line["path"] = find_or_write_audio(study_dir, corpus_row)
    if corpus_row.words is not None:
        line["words"] = [word.to_list() for word in corpus_row.words]
    return {**line, "meta": corpus_row.meta}


# Entries of a template in the options of stored pairs whose attributes have other names.
_STORED_NAMES = {
    "allow_number_marked_noun": "noun_may_tell",
    "require_first_candidate": "first_only",
    "allow_capitalized_cue": "sentence_initial",
    "allow_coordinated_subjects": "coordinated",
    "max_words_between": "words_between",
    "missing_partner_action": "without_partner",
    "partner_contrasts": "partner",
    "target_endings": "endings",
    "balance_columns": "balance",
    "noun_template": "noun",
    "audible_when": "heard",
}


def _stored_entries(entries: list[tuple[str, Json]]) -> JsonObject:
    return {_STORED_NAMES.get(name, name): entry for name, entry in entries}


def describe_template(template: Template) -> JsonObject:
    """A template as the options say it, its lexicon by content; what it does not use is left
    out."""
    entries = {
        name: entry
        for name, entry in asdict(template, dict_factory=_stored_entries).items()
        if entry or name in ("partner", "target_pos")
    }
    if template.lexicon is not None:
        entries["lexicon"] = file_digest(template.lexicon)
    return entries


def row_cache_key(row: Row | RejectedRow) -> dict[str, str]:
    """What decides the mined line of a row."""
    if isinstance(row, RejectedRow):
        return {"of": digest([row.reason_kind, row.reason])}
    audio = None if row.audio is None else hashlib.blake2b(row.audio, digest_size=16).hexdigest()
    return {
        "of": digest([row.text, str(row.root), row.path, audio, row.words, row.pairs, row.meta])
    }


def load_template_sets(names: Sequence[str | Path]) -> tuple[Template, ...]:
    """Templates by the names of their sets, their own, or paths of .toml files."""
    templates: list[Template] = []
    for name in names:
        try:
            templates += (
                load_templates(str(name))
                if not str(name).endswith(".toml")
                else [load_template(name)]
            )
        except InputError:
            templates.append(load_template(name))
    return tuple(templates)


def mine_corpus(
    source: str | PathLike[str],
    out: str | PathLike[str],
    *,
    templates: Sequence[str | Path] = ("french",),
    parser: str = "lexicon",
    lexicon: str | PathLike[str] | None = None,
    language: str = "fr",
    split: str | None = None,
    sample: float = 1.0,
    seed: int = 0,
    allow_outside: bool = False,
    shard: Shard = WHOLE,
    overwrite: bool = False,
    progress: bool = False,
) -> Path:
    """Find the pairs in the sentences of a corpus.

    Parameters
    ----------
    source : path or hub id
        A corpus; see `speechmix.inputs.corpora.corpus_reading.read_corpus`, also for `split`,
        `sample`, `seed` and `allow_outside`.
    out : path
        Study folder.
    templates : sequence of str or Path
        Names of sets ("french", "french_paper", "english", ...), of templates, or paths of .toml
        files.
    parser : str
        "lexicon", "spacy:MODEL", or "MODULE:FUNCTION" of your own
        (`speechmix.studies.french.parser_interface.find_parser`).
    lexicon : path, optional
        A table of one's own; default: each template's, or Lexique.
    language : str
        Of the recordings.
    shard : Shard
        Mine only the clips that it holds, beside other processes with other shards.
    overwrite : bool
        Start afresh if the folder holds pairs mined with other options.

    Returns
    -------
    Path
        ``pairs.jsonl``, or the shard's ``pairs/3-of-48.jsonl``. Rows with a cue and target of their
        own (manifest, the paper's data set) are used as they are.

    Raises
    ------
    InputError
        If the corpus or an option cannot be used, or the folder holds pairs mined with other
        options.
    """
    out = Path(out)
    resolved_templates = load_template_sets(templates)
    lexicon_table = Lexicon.load(Path(lexicon)) if lexicon else None
    options: JsonObject = {
        "source": absolute_source(source),
        "templates": [describe_template(template) for template in resolved_templates],
    }
    options |= {
        "parser": parser,
        "lexicon": lexicon and file_digest(lexicon),
        "language": language,
        "split": split,
    }
    options |= {"sample": sample, "seed": seed, "rules": MINING_VERSION}
    if code := parser_code(parser):
        options["parser_code"] = code
    rows = ShardRows(
        read_corpus(source, split=split, sample=sample, seed=seed, allow_outside=allow_outside),
        shard,
    )

    # Looked for once, and only if a row brings no pairs of its own.
    miners = functools.cache(lambda: build_miners(resolved_templates, parser, lexicon_table))

    def mine_row(item: tuple[int, Row | RejectedRow]) -> JsonObject:
        return make_mined_line(item[1], out, language, miners)

    def cache_key(item: tuple[int, Row | RejectedRow], stored: JsonObject) -> JsonObject:
        return {**row_cache_key(item[1]), **corpus_position_entry(item[0], shard)}

    return run_stage(
        out / PAIRS,
        ((row.name, (position, row)) for position, row in rows),
        mine_row,
        options=options,
        ingredients=cache_key,
        unimportant=(POSITION,),
        inputs=rows.inputs,
        shard=shard,
        overwrite=overwrite,
        progress=progress,
    )


def align_corpus(
    study: str | PathLike[str],
    *,
    source: str | PathLike[str] | None = None,
    method: str = "auto",
    model: Model | None = None,
    textgrids: str | PathLike[str] | None = None,
    shard: Shard = WHOLE,
    overwrite: bool = False,
    progress: bool = False,
) -> Path:
    """Place the words of the mined sentences, or of a whole corpus, and write TextGrids.

    `source` is a corpus to align as it is, instead of the folder's mined sentences. `method` is one
    of `speechmix.alignment.METHODS`, `model` the CTC or Whisper model that aligns. `textgrids` is a
    folder of TextGrids named after the clips, to be used instead (an output folder of the Montreal
    Forced Aligner, speakers in subfolders or not). Of the shards that were mined, only those must
    be done which hold clips of `shard`. Returns ``words.jsonl``, or the shard's
    ``words/3-of-48.jsonl``. InputError if nothing was mined yet, or not all of it (the message
    names the shards), or the folder holds words aligned with other options.
    """
    from .sentence_alignment import align_line, textgrid_digest

    study = Path(study)
    options: JsonObject = {
        "method": "textgrid" if textgrids else method,
        "textgrids": textgrids and absolute_source(textgrids),
    }
    options["aligner"] = model and f"{model.label} {model.fingerprint}"

    def align_stored_line(line: JsonObject) -> JsonObject:
        return align_line(
            line, study / "textgrids", method=method, model=model, textgrids=textgrids
        )

    def alignment_key(line: JsonObject) -> JsonObject:
        word_times = textgrid_digest(textgrids, line["key"]) if textgrids else line.get("words")
        if word_times is None:
            changes = later_changes(method, line["language"], has_model=model is not None)
            word_times = [REVISION, changes] if changes else REVISION
        return {"of": digest([line["text"], line["language"], word_times])}

    return run_alignment_stage(
        study,
        study / WORDS,
        align_stored_line,
        alignment_key,
        source=source,
        options=options,
        shard=shard,
        overwrite=overwrite,
        progress=progress,
    )


def transcript_path(study: Path, model: Model) -> Path:
    """Output of a model's transcripts, by the name that one process gives it."""
    return study / TRANSCRIPTS / f"{safe_name(model.label)}.jsonl"


def transcribe_corpus(
    study: str | PathLike[str],
    models: Iterable[Model | Callable[[], Model]],
    *,
    max_tokens: int = 200,
    shard: Shard = WHOLE,
    overwrite: bool = False,
    progress: bool = False,
) -> list[Path]:
    """Transcribe the clips that have pairs and words; greedy, Whisper with language and task fixed.

    Models, or functions that load one, are taken one after the other. `max_tokens` stops a decoder
    that does not stop. Only the clips of `shard` are transcribed: see `align_corpus`. Returns
    ``transcripts/<model>.jsonl`` of each model, or the shard's
    ``transcripts/<model>/3-of-48.jsonl``. InputError if the words were not placed yet, a model
    cannot spell, or the folder holds other transcripts of it; MissingExtraError if jiwer is not
    installed.
    """
    from .transcript_comparison import transcribe_line

    study, paths = Path(study), []
    refuse_outdated_output(study, study / WORDS, "words", "align again", shard)
    pairs_digest = input_digest(study / PAIRS, "text", "path", shard=shard)
    labels: set[str] = set()
    for model in models:
        model = model() if callable(model) else model
        label = file_name_key(model.label)
        if label in labels:
            raise InputError(
                f"two models are called {model.label!r} or alike: give them folders of their own "
                "names"
            )
        labels.add(label)
        options = {
            "model": model.label,
            "weights": model.fingerprint,
            "dtype": str(model.dtype),
            "max_tokens": max_tokens,
        }
        items = ((line["key"], line) for line in read_aligned_lines(study, shard))

        def transcribe_or_skip(line: JsonObject, model: Model = model) -> JsonObject:
            if recording_signature(line["path"], {})["sound"] != line["sound"]:
                raise SkipItem(
                    "other recording",
                    f"{line['path']} was replaced since its words were placed: align again",
                )
            return transcribe_line(model, line, max_tokens=max_tokens)

        def cache_key(line: JsonObject, stored: JsonObject) -> JsonObject:
            """What decides a transcript and its errors: text, language, and the sound, now and when
            its words were placed."""
            return {
                "of": transcript_digest(line),
                **recording_signature(line["path"], stored or line),
                **corpus_position_entry(line[POSITION], shard),
            }

        path = run_stage(
            transcript_path(study, model),
            items,
            transcribe_or_skip,
            options=options,
            ingredients=cache_key,
            unimportant=("file", POSITION),
            inputs={"pairs": pairs_digest},
            why="not transcribed",
            shard=shard,
            overwrite=overwrite,
            progress=progress,
        )
        paths.append(path)
    return paths

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
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ...alignment.alignment_result import REVISION, later_changes
from ...files.cache_keys import digest, file_digest
from ...files.json_files import JsonObject
from ...files.names import safe_name
from ...files.shard_assignment import WHOLE, Shard
from ...inputs.clips.corpus_row import RejectedRow, Row
from ...inputs.corpora.corpus_reading import read_corpus
from ...runs.journal.stage_journal import run_stage
from ...runs.journal.stage_lines import POSITION
from .alignment_stage import run_alignment_stage
from .language.lexicon import Lexicon
from .mined_lines import (
    describe_template,
    load_template_sets,
    make_mined_line,
    row_cache_key,
)
from .miners import build_miners
from .mining import MINING_VERSION
from .parser_interface import parser_code
from .shard_rows import ShardRows, absolute_source, corpus_position_entry
from .study_folder import (
    PAIRS,
    TRANSCRIPTS,
    WORDS,
)

if TYPE_CHECKING:
    from ...adapters import Model


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

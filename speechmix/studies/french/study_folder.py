"""Files of a study's folder, and the content of their lines.

In: rows of a corpus. Out: lines (dictionaries that go to JSON) that the stages hand on, and back to
a `Clip`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...errors import InputError
from ...files.cache_keys import digest
from ...files.json_files import Json, JsonObject
from ...files.shard_assignment import WHOLE, Shard
from ...inputs.audio.audio_source import audio_fingerprint
from ...inputs.audio.decoding import file_signature
from ...inputs.clips.clip import Clip
from ...inputs.clips.corpus_row import RejectedRow, Row
from ...inputs.corpora.corpus_reading import write_recording
from ...inputs.words.cue_and_target import cue_words
from ...inputs.words.multipart_words import GAP, resolve_words_and_roles
from ...inputs.words.timed_words import Word
from ...runs.journal.stage_files import list_required_shards, shard_file
from ...runs.journal.stage_journal import SkipItem
from ...runs.journal.stage_lines import (
    input_digests,
    read_kept_lines,
    read_numbered_lines,
    read_stage_inputs,
)

PAIRS, WORDS, TRANSCRIPTS, EXAMPLES = "pairs.jsonl", "words.jsonl", "transcripts", "examples"


def read_aligned_lines(study: Path, shard: Shard = WHOLE) -> Iterator[JsonObject]:
    """Mined sentences that have word times, both lines in one; `words` are those of the
    alignment."""
    aligned_lines = read_kept_lines(study / WORDS, shard)
    word_line = next(aligned_lines, None)
    for line in read_numbered_lines(study / PAIRS, shard):
        if "why" not in line and word_line is not None and word_line["key"] == line["key"]:
            yield {**line, **word_line}
            word_line = next(aligned_lines, None)
    if word_line is not None:
        raise InputError(
            f"{study / WORDS} has the clip {word_line['key']!r}, which {study / PAIRS} lacks or "
            "has at another place: align "
            "again"
        )


def refuse_outdated_output(
    study: Path, output: Path, what: str, advice: str, shard: Shard = WHOLE
) -> None:
    """Raise InputError for an output, or a shard of it, of other pairs than those at hand.

    It is also raised if one of them is not complete.
    """
    shards = list_required_shards(output, shard)
    for part_shard, pairs_digest in zip(
        shards, input_digests(study / PAIRS, "text", "path", shards=shards), strict=True
    ):
        file = shard_file(output, part_shard)
        if read_stage_inputs(file).get("pairs") != pairs_digest:
            suggestion = f"{advice} (--shard {part_shard})" if part_shard.count > 1 else advice
            raise InputError(
                f"the {what} in {file} belong to other pairs than {study / PAIRS}: {suggestion}"
            )


def clip_from_line(line: JsonObject) -> Clip:
    """Return the clip of a line, without words."""
    return Clip.from_file(
        line["path"], text=line["text"], language=line["language"], name=line["key"]
    )


def recording_signature(path: str, stored: Mapping[str, Json]) -> JsonObject:
    """Hash of a recording's sound, and its file's marks: size, times of change, place on the disk.

    A file with the marks of a stored line is still the same and is not read again: times of change
    cannot be set by hand.
    """
    try:
        signature = file_signature(path)
    except OSError:
        return {"sound": None, "file": None}
    if stored.get("file") == signature:
        return {"sound": stored.get("sound"), "file": signature}
    try:
        return {"sound": audio_fingerprint(path), "file": signature}
    except InputError:
        return {"sound": None, "file": signature}


def transcript_digest(line: Mapping[str, Json]) -> str:
    """Hash of what a transcript is of: text, language, and the sound that the words were placed
    in."""
    return digest([line["text"], line["language"], line.get("sound")])


def make_corpus_line(study: Path, row: Row | RejectedRow) -> JsonObject:
    """Return the line of a row whose pairs were not requested."""
    if isinstance(row, RejectedRow):
        return {"why": row.reason_kind, "reason": row.reason}
    line: JsonObject = {
        "key": row.name,
        "text": row.text,
        "language": row.meta.get("language") or "fr",
    }
    line |= {"path": find_or_write_audio(study, row), "meta": row.meta}
    return line if row.words is None else {**line, "words": [word.to_list() for word in row.words]}


def make_corpus_pair(row: Row, pair: JsonObject) -> JsonObject:
    """Cue and target that the corpus names, as character ranges of its sentence; "ne ... pas" is
    one cue in two parts."""
    from ...inputs.words.words_in_text import locate_word_parts
    from .language.spoken import split_written_words, word_text

    requests = {role: pair[role] for role in ("cue", "target")}
    if row.words is not None:
        words, roles = resolve_words_and_roles(row.words, requests, where=row.name)
        spans_by_word = locate_word_parts(words, row.text)
    else:
        written_words = split_written_words(row.text)
        indexed_words = [
            Word(word_text(word, row.text), index, index + 1)
            for index, word in enumerate(written_words)
        ]
        words, roles = resolve_words_and_roles(indexed_words, requests, where=row.name)
        index_ranges = [
            [range(int(start), int(end)) for start, end in word.intervals] for word in words
        ]
        spans_by_word = [
            tuple(
                (written_words[index].start, written_words[index].stop)
                for word_range in ranges
                for index in word_range
            )
            for ranges in index_ranges
        ]
    cue_spans, target_spans = (
        [spans_by_word[index] for index in cue_words(roles["cue"])],
        spans_by_word[roles["target"] or 0],
    )
    missing_roles = ["cue"] * (() in cue_spans) + ["target"] * (target_spans == ())
    if missing_roles:
        raise SkipItem(
            "pair not found",
            f"the {' and '.join(missing_roles)} of its alignment is not in the sentence",
        )
    if len(target_spans) > 1 or (len(cue_spans) > 1 and max(map(len, cue_spans)) > 1):
        raise SkipItem(
            "pair not found",
            "of the words of cue and target only the cue may be in several parts, and then is one",
        )
    (first_span, *further_spans), joined_cue = (
        [span for word_spans in cue_spans for span in word_spans],
        len(cue_spans[0]) > 1,
    )
    ranges: JsonObject = {"cue": first_span, "target": target_spans[0]}
    cue_form = (GAP if joined_cue else " ").join(
        row.text[slice(*span)] for span in (first_span, *further_spans)
    )
    forms = {"cue_form": cue_form, "target_form": row.text[slice(*target_spans[0])]}
    if further_spans:
        ranges["further_cues"] = further_spans
    metadata = {
        "template": pair.get("template") or "given",
        "number": pair.get("number"),
        "foil": pair.get("foil"),
    }
    return {**metadata, **ranges, **forms, **({"joined_cue": True} if joined_cue else {})}


def find_or_write_audio(study: Path, row: Row) -> str:
    """Return where a row's audio is; what is streamed from the hub is written into the study, whole
    or not at all."""
    if row.path is not None:
        return os.path.abspath(os.path.join(row.root, row.path))
    return str(write_recording(row, study / "audio"))

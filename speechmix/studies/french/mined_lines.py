"""Output line of mining: a corpus row's pairs, or the reason for none.

In: a row, and the options of the mining. Out: its line of `pairs.jsonl`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from ...errors import InputError
from ...files.cache_keys import digest, file_digest
from ...files.json_files import Json, JsonObject
from ...inputs.clips.corpus_row import RejectedRow, Row
from ...runs.journal.stage_journal import SkipItem
from .miners import Miner
from .mining import mine_sentence
from .pair_template import Template
from .study_folder import find_or_write_audio, make_corpus_pair
from .templates import load_template, load_templates


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

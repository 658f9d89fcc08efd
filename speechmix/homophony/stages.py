"""From a corpus to homophone pairs, word times and transcripts: the stages of the study, clip by clip.

In: a corpus (see `speechmix.corpora.reading.read_corpus`), an aligner, recognisers. Out: a study folder

    pairs.jsonl                    mine:        sentences with their cue-target pairs
    audio/<clip>                                the recordings of a data set that holds them itself
    words.jsonl                    align:       written words with times
    textgrids/<clip>.TextGrid                   the same, for Praat
    transcripts/<model>.jsonl      transcribe:  what each recogniser writes
    examples/                      select:      the annotated data set (see `speechmix.homophony.selection`)

Each stage goes one clip at a time and can be stopped, resumed and done again alone; see `speechmix.homophony.journal`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..corpora.reading import read_corpus
from ..errors import InputError
from ..files.identity import digest
from ..files.names import safe_name, same_file
from ..inputs.rows import Rejected, Row
from .french.lexicon import Lexicon
from .journal import LeftOut, run_stage
from .mining import Pair, mine
from .stage_lines import input_digest, inputs_of, kept
from .study import PAIRS, TRANSCRIPTS, WORDS, audio_path, given_pair, heard_digest, joined, plain_line, sound_of
from .templates import Template, load_template, load_templates

if TYPE_CHECKING:
    from ..adapters import Model

_PAIR = tuple(field.name for field in fields(Pair))  # not asdict, which copies deeply: half of the mining's time


def mine_corpus(
    source: str | PathLike,
    out: str | PathLike,
    *,
    templates: Sequence[str | Path] = ("french",),
    parser: str = "lexicon",
    lexicon: str | PathLike | None = None,
    language: str = "fr",
    split: str | None = None,
    sample: float = 1.0,
    seed: int = 0,
    allow_outside: bool = False,
    overwrite: bool = False,
    progress: bool = False,
) -> Path:
    """Find the pairs in the sentences of a corpus.

    Parameters
    ----------
    source : path or hub id
        A corpus; see `speechmix.corpora.reading.read_corpus`, also for `split`, `sample`, `seed` and `allow_outside`.
    out : path
        Study folder.
    templates : sequence of str or Path
        Names of sets ("french", "french_paper"), of templates, or paths of .toml files.
    parser : str
        "lexicon" or "spacy:MODEL".
    lexicon : path, optional
        A table of one's own; default: Lexique.
    language : str
        Of the recordings.
    overwrite : bool
        Start afresh if the folder holds pairs mined with other options.

    Returns
    -------
    Path
        ``pairs.jsonl``. Rows with a cue and target of their own (manifest, the paper's data set) are used as they are.

    Raises
    ------
    InputError
        If the corpus or an option cannot be used, or the folder holds pairs mined with other options.
    """
    out = Path(out)
    asked = _templates(templates)
    words = Lexicon.load(Path(lexicon)) if lexicon else None
    options: dict[str, Any] = {"source": _where(source), "templates": [_described(template) for template in asked]}
    options |= {"parser": parser, "lexicon": lexicon and _content(lexicon), "language": language, "split": split}
    options |= {"sample": sample, "seed": seed}

    def work(row: Row | Rejected) -> dict[str, Any]:
        return _mined_line(row, out, language, templates=asked, parser=parser, lexicon=words)

    rows = read_corpus(source, split=split, sample=sample, seed=seed, allow_outside=allow_outside)
    items = ((row.name, row) for row in rows)
    return run_stage(
        out / PAIRS, items, work, options=options, ingredients=_row_digest, overwrite=overwrite, progress=progress
    )


def _mined_line(row: Row | Rejected, out: Path, language: str, **options: Any) -> dict[str, Any]:
    """What is kept of a row: text, language, pairs (the corpus's own, or those mined with the options), audio, words."""
    if isinstance(row, Rejected):
        raise LeftOut(row.why, row.reason)
    line: dict[str, Any] = {"text": row.text, "language": language}
    if row.pairs:
        line["pairs"] = [given_pair(row, pair) for pair in row.pairs]
    else:
        mined = mine(row.text, **options)
        line["pairs"] = [{name: getattr(pair, name) for name in _PAIR} for pair in mined.pairs]
        line["dropped_pairs"] = [pair._asdict() for pair in mined.dropped]
        if not mined.pairs:
            reasons = "; ".join(dict.fromkeys(f"{pair.target_form}: {pair.reason}" for pair in mined.dropped))
            reasons = reasons or "no cue with a target in the sentence"
            raise LeftOut("no pair", reasons, dropped_pairs=line["dropped_pairs"])
    line["path"] = audio_path(out, row)
    if row.words is not None:
        line["words"] = [[word.text, word.start, word.end] for word in row.words]
    return {**line, "meta": row.meta}


def _described(template: Template) -> dict[str, Any]:
    """A template as the options say it; what earlier releases did not know is left out where it is not used."""
    described = asdict(template)
    return {name: entry for name, entry in described.items() if entry or name not in ("coordinated", "noun", "balance")}


def _row_digest(row: Row | Rejected, stored: dict[str, Any]) -> dict[str, Any]:
    """What decides the mined line of a row."""
    if isinstance(row, Rejected):
        return {"of": digest([row.why, row.reason])}
    audio = None if row.audio is None else hashlib.blake2b(row.audio, digest_size=16).hexdigest()
    return {"of": digest([row.text, str(row.root), row.path, audio, row.words, row.pairs, row.meta])}


def align_corpus(
    study: str | PathLike,
    *,
    source: str | PathLike | None = None,
    method: str = "auto",
    model: Model | None = None,
    textgrids: str | PathLike | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Path:
    """Place the words of the mined sentences, or of a whole corpus, and write TextGrids.

    Parameters
    ----------
    study : path
        Study folder.
    source : path or hub id, optional
        A corpus to align as it is; default: the folder's mined sentences.
    method : str
        One of `speechmix.alignment.METHODS`.
    model : Model, optional
        The CTC or Whisper model that aligns.
    textgrids : path, optional
        Folder of TextGrids named after the clips (an output folder of the Montreal Forced Aligner, speakers in
        subfolders or not), to be used instead.

    Returns
    -------
    Path
        ``words.jsonl``.

    Raises
    ------
    InputError
        If nothing was mined yet, or the folder holds words aligned with other options.
    """
    from .alignments import align_line, textgrid_bytes

    study = Path(study)
    options: dict[str, Any] = {
        "method": "textgrid" if textgrids else method,
        "textgrids": textgrids and _where(textgrids),
    }
    options["aligner"] = model and f"{model.label} {model.fingerprint}"
    inputs = {}
    if source is None:
        inputs["pairs"] = input_digest(study / PAIRS, "text", "path")
        items: Iterable = ((line["key"], line) for line in kept(study / PAIRS))
    else:
        options["source"] = _where(source)
        items = ((row.name, plain_line(study, row)) for row in read_corpus(source))

    def work(line: dict[str, Any]) -> dict[str, Any]:
        if "why" in line:
            raise LeftOut(line["why"], line["reason"])
        return align_line(line, study / "textgrids", method=method, model=model, textgrids=textgrids)

    def ingredients(line: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
        if "why" in line:
            return {"of": digest([line["why"], line["reason"]])}
        placed = textgrid_bytes(textgrids, line["key"]) if textgrids else line.get("words")
        return {"of": digest([line["text"], line["language"], placed]), **sound_of(line["path"], stored)}

    return run_stage(
        study / WORDS, items, work, options=options, ingredients=ingredients, unimportant=("file",), inputs=inputs,
        why="not aligned", overwrite=overwrite, progress=progress,
    )  # fmt: skip


def transcribe_corpus(
    study: str | PathLike,
    models: Iterable[Model | Callable[[], Model]],
    *,
    max_tokens: int = 200,
    overwrite: bool = False,
    progress: bool = False,
) -> list[Path]:
    """Let recognisers transcribe the clips that have pairs and words; greedy, Whisper with language and task fixed.

    Parameters
    ----------
    study : path
        Study folder.
    models : iterable of Model, or of functions that load one
        Taken one after the other.
    max_tokens : int
        Where to stop a decoder that does not.

    Returns
    -------
    list of Path
        ``transcripts/<model>.jsonl`` of each model.

    Raises
    ------
    InputError
        If the words were not placed yet, a model cannot spell, or the folder holds other transcripts of it.
    MissingExtraError
        If jiwer is not installed.
    """
    from .transcripts import transcribe_line

    study, paths = Path(study), []
    mined = input_digest(study / PAIRS, "text", "path")
    if inputs_of(study / WORDS).get("pairs") != mined:
        raise InputError(f"{study / WORDS} belongs to other pairs than {study / PAIRS}: align again")
    labels: dict[Any, str] = {}
    for model in models:
        model = model() if callable(model) else model
        path = study / TRANSCRIPTS / f"{safe_name(model.label)}.jsonl"
        if labels.setdefault(same_file(model.label), model.label) != model.label or path in paths:
            raise InputError(f"two models are called {model.label!r} or alike: give them folders of their own names")
        options = {
            "model": model.label,
            "weights": model.fingerprint,
            "dtype": str(model.dtype),
            "max_tokens": max_tokens,
        }
        items = ((line["key"], line) for line in joined(study))

        def work(line: dict[str, Any], model=model) -> dict[str, Any]:
            if sound_of(line["path"], {})["sound"] != line["sound"]:
                raise LeftOut(
                    "other recording", f"{line['path']} was replaced since its words were placed: align again"
                )
            return transcribe_line(model, line, max_tokens=max_tokens)

        path = run_stage(
            path, items, work, options=options, ingredients=_heard, unimportant=("file",), inputs={"pairs": mined},
            why="not transcribed", overwrite=overwrite, progress=progress,
        )  # fmt: skip
        paths.append(path)
    return paths


def _heard(line: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    """What decides a transcript and its errors: text, language, and the sound, now and when its words were placed."""
    return {"of": heard_digest(line), **sound_of(line["path"], stored or line)}


def _templates(names: Sequence[str | Path]) -> tuple[Template, ...]:
    templates: list[Template] = []
    for name in names:
        try:
            templates += load_templates(str(name)) if not str(name).endswith(".toml") else [load_template(name)]
        except InputError:
            templates.append(load_template(name))
    return tuple(templates)


def _content(path: str | PathLike) -> str:
    """Hash of a file that was just read."""
    return hashlib.blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()


def _where(source: str | PathLike) -> str:
    """Return a path in full, and a hub id as it is."""
    return str(Path(source).resolve()) if Path(source).exists() else str(source)

"""Add options for clips to a command, and read the clips: files, a manifest, a corpus or a run.

In: a command; then its parsed options. Out: clips; names and reasons of those that cannot be used.

Give clips without a language that of models that know no other.

In: clips and the options of a command. Out: the clips; `--language` is not needed if a Whisper for
English is all that reads them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...alignment import METHODS
from ...errors import InputError, SpeechmixError
from ...inputs.words.phone_labels import ALPHABETS
from .command_parser import StoreOnce
from .model_options import split_revision

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip
    from ...inputs.clips.segments import SegmentOption


SkippedItems = list[tuple[str, str]]  # names and reasons
_TABLE_SUFFIXES = (".tsv", ".csv", ".jsonl")
_DESCRIPTION = ("text", "words", "cue", "target", "foil")


def add_clip_options(command: argparse.ArgumentParser) -> None:
    """Add `--clips`, what describes a single clip, and how words are aligned."""
    add_clips_option(command)
    command.add_argument("--text", help="reference text of one clip")
    command.add_argument(
        "--words", metavar="FILE", help="word times: TextGrid, CTM, JSON, TSV, CSV"
    )
    command.add_argument("--tier", help="tier of a TextGrid that holds the words")
    command.add_argument(
        "--alphabet", choices=ALPHABETS, help="of the phones in word files; default: what all fit"
    )
    command.add_argument("--cue", help="a word, word:occurrence ('les:2') or index; also 'le club'")
    command.add_argument("--target", help="a word, as for --cue")
    command.add_argument("--foil", help="the other spelling of the target ('livre' for 'livres')")
    command.add_argument(
        "--cut",
        type=_parse_seconds,
        metavar="FROM:TO",
        help="use only these seconds of one clip; --text is what is said in them",
    )
    add_alignment_options(command)


def add_clips_option(command: argparse.ArgumentParser) -> None:
    """Add `--clips PATH...`, and the same paths without the option's name."""
    command.add_argument(
        "paths", nargs="*", type=_clip_path, metavar="PATH", help=argparse.SUPPRESS
    )
    command.add_argument(
        "--clips",
        nargs="+",
        action="extend",
        default=[],
        type=_clip_path,
        metavar="PATH",
        help="audio files, a manifest, a corpus, a run or bundled:clips",
    )


def _clip_path(text: str) -> str:
    from ...inputs.bundled import manifest_path

    return str(manifest_path(text)) if text == "bundled:clips" else text


def add_alignment_options(command: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add how word times are found, and the language of clips."""
    add_aligner_options(command)
    command.add_argument(
        "--language",
        help="language of clips without one, as fr (default: detected by a Whisper)",
    )
    add_outside_option(command)


def add_aligner_options(command: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the model that aligns words, and the method."""
    command.add_argument(
        "--aligner",
        action=_StoreAligner,
        metavar="MODEL",
        help="model that aligns the words, or METHOD:MODEL with ctc, transducer or whisper "
        "(default: synthesis)",
    )
    command.set_defaults(align="auto")


class _StoreAligner(StoreOnce):
    """Store the model as `aligner`, the method as `align`."""

    def __call__(
        self, parser: Any, namespace: Any, values: Any, option_string: str | None = None
    ) -> None:
        super().__call__(parser, namespace, values, option_string)
        method, _, model = values.partition(":")
        if method in METHODS:
            namespace.align, namespace.aligner = method, model or None


def add_outside_option(command: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the permission to read files outside the folder of a manifest."""
    command.add_argument(
        "--allow-outside",
        action="store_true",
        help="let a manifest name files outside its folder",
    )


def add_segments_option(command: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the segments of a sound that take the place of words."""
    command.add_argument(
        "--segments",
        type=_parse_segments,
        metavar="SECONDS",
        help="segments of so many seconds, voice or frames, in place of words",
    )


def _parse_segments(text: str) -> SegmentOption:
    try:
        return float(text)
    except ValueError:
        return text


def divide_clips(
    options: argparse.Namespace, clips: Sequence[Clip], skipped: SkippedItems
) -> list[Clip]:
    """Return clips with the segments of `--segments` in place of words; record those too short."""
    from ...inputs.clips.segments import segment_clip

    divided = []
    for clip in clips:
        try:
            divided.append(
                clip if options.segments is None else segment_clip(clip, options.segments)
            )
        except InputError as error:
            skipped.append((clip.name, str(error)))
    if not divided:
        raise InputError(f"no clips: {skipped[-1][1]}")
    return divided


def collect_clips(options: argparse.Namespace, skipped: SkippedItems) -> list[Clip]:
    """Read the clips of `--clips`, or those of the run that `--out` names; record unusable rows.

    InputError if there is no clip, or an option that describes one clip is given for several.
    """
    from ...inputs.clips.clip import Clip
    from ...inputs.clips.clip_names import rename_duplicates

    values = vars(options)
    out = values.get("out")
    paths = options.clips or ([out] if out and is_run(out) else [])
    description = {name: values.get(name) for name in _DESCRIPTION if name in values}
    audio_paths = [path for path in paths if _is_audio_file(path)]
    if any(description.values()) and (len(paths) != 1 or not audio_paths):
        raise InputError(
            "--text, --words, --cue, --target and --foil describe one audio file; "
            "describe several clips in a manifest"
        )
    tier, alphabet = values.get("tier"), values.get("alphabet")
    # Without word times nobody knows which part of a text a cut would leave.
    text_of_cut: dict[str, Any] = {}
    if values.get("cut") and description.get("text") and not description.get("words"):
        text_of_cut, description = description, {}
    clips: list[Clip] = []
    for path in paths:
        if path in audio_paths:
            clip = Clip.from_file(
                path, language=options.language, tier=tier, alphabet=alphabet, **description
            )
            clips.append(clip)
            _print_numeral_meanings(clip, description)
        else:
            clips += _read_collection(path, options, skipped, tier, alphabet)
    if not clips:
        reasons = "; ".join(reason for _, reason in skipped[:3])
        raise InputError(f"no clips: {reasons or 'give audio files or a manifest as --clips'}")
    clips = rename_duplicates(clips)
    if values.get("cut"):
        if len(clips) != 1:
            raise InputError(f"--cut takes one clip, found {len(clips)}")
        clips = [clips[0].cut(*options.cut)]
        if text_of_cut:
            clips = [clips[0].replace(**text_of_cut)]
            _print_numeral_meanings(clips[0], text_of_cut)
    return add_model_language(clips, values)


def _print_numeral_meanings(clip: Clip, description: Mapping[str, str | None]) -> None:
    """Say whether a numeral as cue or target is a word of the text or an index."""
    from ...inputs.words.transcript_accuracy import normalize_transcript

    words = [word.text for word in clip.words or ()] or (clip.text or "").split()
    for name in ("cue", "target"):
        value = description.get(name) or ""
        if not value.isdigit():
            continue
        word_indices = [i for i, word in enumerate(words) if normalize_transcript(word) == value]
        if word_indices:
            print(f"--{name} {value}: the word {value!r} (index {word_indices[0]}, counted from 0)")
        elif int(value) < len(words):
            print(
                f"--{name} {value}: the word at index {value}, {words[int(value)]!r} (counted from 0)"
            )


def collect_aligned_clips(options: argparse.Namespace, skipped: SkippedItems) -> list[Clip]:
    """Read clips as `collect_clips`, with word times; record those that cannot be aligned.

    InputError if no clip can be used.
    """
    from ...alignment import align

    aligner = load_aligner(options)
    clips = []
    for clip in collect_clips(options, skipped):
        try:
            clips.append(align(clip, model=aligner, method=options.align))
        except SpeechmixError as error:
            skipped.append((clip.name, str(error)))
    if not clips:
        raise InputError(f"no clips: {'; '.join(reason for _, reason in skipped[:3])}")
    return clips


def load_aligner(options: argparse.Namespace) -> Model | None:
    """Load the model that aligns words, if one is named."""
    create_aligner = create_aligner_loader(options)
    return create_aligner and create_aligner()


def create_aligner_loader(options: argparse.Namespace) -> Callable[[], Model] | None:
    """Return a function that loads the model that aligns words, if one is named."""
    from ...adapters.loading.load import load

    return partial(load, options.aligner, device=options.device) if options.aligner else None


def find_datasets(options: argparse.Namespace) -> list[str]:
    """Return the paths of `--clips` that are data sets of a study (`STUDY/examples`)."""
    from ...studies.french.dataset import is_dataset

    return [path for path in options.clips if is_dataset(path)]


def is_run(folder: str) -> bool:
    """Return True if a folder holds a run."""
    return (Path(folder) / "run.json").is_file()


def print_skipped(skipped: Sequence[tuple[str, str]]) -> None:
    """Print the names of skipped items, and the reasons."""
    for name, reason in skipped:
        print(f"skipped {name}: {reason}")


def print_line(line: str) -> None:
    """Print a line above the progress bars."""
    from tqdm.auto import tqdm

    tqdm.write(line)


def _is_audio_file(path: str) -> bool:
    """Return True for a file that is no table and no tar, and for a member of a container."""
    if "::" in path:
        return True
    return Path(path).is_file() and not path.lower().endswith((*_TABLE_SUFFIXES, ".tar"))


def _read_collection(
    path: str,
    options: argparse.Namespace,
    skipped: SkippedItems,
    tier: str | None,
    alphabet: str | None,
) -> list[Clip]:
    """Read the clips of a run, of a study's examples, of a manifest or of a corpus.

    Clips without a language take that of the options.
    """
    from ...inputs.corpora.corpus_reading import read_clips_or_corpus
    from ...studies.french.dataset import is_dataset, read_examples

    if is_run(path):
        return _read_run_clips(path, skipped)
    if is_dataset(path):
        return read_examples(path, skipped=skipped)

    def record_error(row: int, name: str, error: InputError) -> None:
        skipped.append((name or f"row {row}", str(error)))

    clips = read_clips_or_corpus(
        path,
        tier=tier,
        alphabet=alphabet,
        allow_outside=options.allow_outside,
        on_error=record_error,
    )
    return [
        clip if clip.language or not options.language else clip.replace(language=options.language)
        for clip in clips
    ]


def _read_run_clips(folder: str, skipped: SkippedItems) -> list[Clip]:
    """Read the clips of a run with their word times; record those whose audio is not found."""
    from ...runs.results.open_run import open_run
    from ...runs.results.stored_maps import read_clip_maps, read_stored_clip

    run = open_run(folder)
    clips = []
    for name in run.clips["clip"]:
        clip = read_stored_clip(run, name, read_clip_maps(run, name))
        if clip is None:
            skipped.append((name, "its audio file was not found: give a manifest as --clips"))
        else:
            clips.append(clip)
    return clips


def _parse_seconds(text: str) -> tuple[float, float]:
    start, _, end = text.partition(":")
    try:
        return float(start), float(end)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected FROM:TO in seconds, such as 0.5:2, found {text!r}"
        ) from None


def add_model_language(clips: list[Clip], values: Mapping[str, Any]) -> list[Clip]:
    """Return clips, English where synthesis has to align them and each model is a Whisper for
    English."""
    is_unknown = [
        not clip.language and clip.words is None and clip.text is not None for clip in clips
    ]
    models = values.get("model") or []
    is_aligned_by_model = values.get("aligner") or values.get("align") not in ("auto", "synthesis")
    if not any(is_unknown) or not models or is_aligned_by_model:
        return clips
    from ...adapters.generation.decoder_text import is_english_only
    from ...adapters.loading.checkpoints import read_config
    from ...adapters.loading.model_source import resolve_path_or_id

    sources = map(split_revision, [models] if isinstance(models, str) else models)
    try:
        configs = [
            read_config(resolve_path_or_id(name), {"revision": revision} if revision else {})
            for name, revision in sources
        ]
    except SpeechmixError:  # which loading the model says better
        return clips
    if not all(map(is_english_only, configs)):
        return clips
    return [
        clip.replace(language="en") if unknown else clip
        for clip, unknown in zip(clips, is_unknown, strict=True)
    ]

"""Options that say which clips a command is about: audio files, a manifest, and how their words are
placed.

In: a command's parser; then its parsed options. Out: the options added; clips, and with a reason
what cannot be used.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError, SpeechmixError

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip

Skipped = list[tuple[str, str]]  # names and reasons


def add_clip_options(command: argparse.ArgumentParser) -> None:
    """Add clips named one by one, with what is known of one, or in a manifest."""
    group = command.add_argument_group("clips")
    group.add_argument("clips", nargs="*", metavar="CLIP", help="audio files: WAV, FLAC, MP3, OGG")
    group.add_argument(
        "--manifest",
        "--corpus",
        "--examples",
        help="TSV, CSV or JSONL with columns path, text, words, cue, target, foil; or a corpus: "
        "STUDY/examples, WebDataset, Lhotse Shar, datasets",
    )
    group.add_argument("--text", help="what is said")
    group.add_argument(
        "--translation",
        help="what a Whisper told to translate should write (default: what it writes)",
    )
    group.add_argument("--words", help="word times: TextGrid, CTM, JSON, TSV or CSV")
    group.add_argument("--tier", help="which tier of a TextGrid holds the words")
    group.add_argument(
        "--cue", help="a word, word:occurrence ('les:2'), or its index; several: 'le club'"
    )
    group.add_argument("--target", help="likewise, one word")
    group.add_argument("--foil", help="the other spelling of the target ('livre' for 'livres')")
    group.add_argument(
        "--cut", type=_seconds, metavar="FROM:TO", help="score only these seconds of the clip"
    )
    add_alignment_options(group)


def add_alignment_options(command: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add how a manifest is read and how the words of clips are placed."""
    command.add_argument(
        "--align",
        choices=("auto", "ctc", "whisper", "synthesis"),
        default="auto",
        help="how to place a text's words",
    )
    command.add_argument(
        "--aligner",
        metavar="MODEL",
        help="CTC or Whisper model that aligns (default: by synthesis)",
    )
    command.add_argument(
        "--language",
        help="language of clips that do not say (fr, en, ...); without, a Whisper detects it",
    )
    command.add_argument(
        "--allow-outside",
        action="store_true",
        help="let the manifest name files outside its folder",
    )


def named_clips(options: argparse.Namespace, skipped: Skipped) -> list[Clip]:
    """Clips named on the command line and in a manifest; manifest rows that cannot be used are
    recorded.

    Raises
    ------
    InputError
        If there is no clip, or what describes one clip is given for several.
    """
    from ...inputs.clips.clip import Clip
    from ...inputs.clips.clip_names import rename_duplicates

    description = {
        name: getattr(options, name)
        for name in ("text", "translation", "words", "cue", "target", "foil")
    }
    if len(options.clips) != 1 and any(description.values()):
        raise InputError(
            "--text, --translation, --words, --cue, --target and --foil describe one clip; several "
            "go into a manifest"
        )
    clips = [
        Clip.from_file(path, language=options.language, tier=options.tier, **description)
        for path in options.clips
    ]
    if options.manifest:
        clips += _of_manifest(options, skipped, tier=options.tier)
    out = getattr(options, "out", None)
    if not options.clips and not options.manifest and out and is_run(out):
        clips = _of_run(out, skipped)
    clips = rename_duplicates(clips)
    if not clips:
        raise InputError(
            f"no clip to score: {_reasons(skipped) or 'name audio files, or give --manifest'}"
        )
    if options.cut:
        if len(clips) != 1:
            raise InputError("--cut takes a part of one clip")
        clips = [clips[0].cut(*options.cut)]
    return clips


def manifest_clips(options: argparse.Namespace, skipped: Skipped) -> list[Clip]:
    """Clips of the manifest, each with a name of its own; rows that cannot be used are recorded.

    Raises
    ------
    InputError
        If none is left.
    """
    from ...inputs.clips.clip_names import rename_duplicates

    clips = rename_duplicates(_of_manifest(options, skipped))
    if not clips:
        raise InputError(f"no clip can be used: {_reasons(skipped) or 'the manifest is empty'}")
    return clips


def aligned_clips(options: argparse.Namespace, skipped: Skipped) -> list[Clip]:
    """Clips as `manifest_clips`, with word times; those that cannot be aligned are recorded, too.

    Raises
    ------
    InputError
        If none is left.
    """
    from ...alignment import align

    aligner = loaded_aligner(options)
    clips = []
    for clip in manifest_clips(options, skipped):
        try:
            clips.append(align(clip, model=aligner, method=options.align))
        except SpeechmixError as error:
            skipped.append((clip.name, str(error)))
    if not clips:
        raise InputError(f"no clip can be used: {_reasons(skipped) or 'the manifest is empty'}")
    return clips


def loaded_aligner(options: argparse.Namespace) -> Model | None:
    """The model that aligns, if one is named."""
    from ...adapters.loading.load import load

    return load(options.aligner, device=options.device) if options.aligner else None


def is_run(folder: str) -> bool:
    """Whether a folder holds a run."""
    return (Path(folder) / "run.json").is_file()


def aligner_loader(options: argparse.Namespace) -> Callable[[], Model] | None:
    """Return a function that loads the model that aligns, if one is named."""
    from ...adapters.loading.load import load

    return partial(load, options.aligner, device=options.device) if options.aligner else None


def print_skipped(skipped: Skipped) -> None:
    """Say what was left out, and why."""
    for name, reason in skipped:
        print(f"skipped {name}: {reason}")


def _of_run(folder: str, skipped: Skipped) -> list[Clip]:
    """Clips of a run, with the words that it scored; those whose audio is not to be found are
    recorded."""
    from ...runs.results.open_run import open_run
    from ...runs.results.stored_clips import maps_of_clip, read_stored_clip

    run = open_run(folder)
    clips = []
    for name in run.clips["clip"]:
        clip = read_stored_clip(run, name, maps_of_clip(run, name))
        if clip is None:
            skipped.append((name, "its audio is not where the run found it: give --manifest"))
        else:
            clips.append(clip)
    return clips


def _of_manifest(
    options: argparse.Namespace, skipped: Skipped, *, tier: str | None = None
) -> list[Clip]:
    """Clips of the manifest or of a study's examples, in the language of the options where it names
    none."""
    from ...inputs.corpora.corpus_reading import read_clips_or_corpus
    from ...studies.french.dataset_reading import is_dataset, read_examples

    if is_dataset(options.manifest):
        return read_examples(options.manifest, skipped=skipped)

    def record(row: int, name: str, error: InputError) -> None:
        skipped.append((name or f"row {row}", str(error)))

    clips = read_clips_or_corpus(
        options.manifest, tier=tier, allow_outside=options.allow_outside, on_error=record
    )
    return [
        clip if clip.language or not options.language else clip.replace(language=options.language)
        for clip in clips
    ]


def _reasons(skipped: Skipped) -> str:
    return "; ".join(reason for _, reason in skipped[:3])


def _seconds(text: str) -> tuple[float, float]:
    start, _, end = text.partition(":")
    try:
        return float(start), float(end)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected FROM:TO in seconds, as 0.5:2, found {text!r}"
        ) from None


def print_line(line: str) -> None:
    """Print a line above the progress bars."""
    from tqdm.auto import tqdm

    tqdm.write(line)

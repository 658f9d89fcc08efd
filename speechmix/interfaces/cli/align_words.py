"""`speechmix align`: find when each word of a known text is said in a recording."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import AlignmentError, SpeechmixError
from .clip_options import (
    SkippedItems,
    add_aligner_options,
    add_clips_option,
    add_outside_option,
    collect_clips,
    load_aligner,
    print_skipped,
)
from .command_parser import Subparsers
from .word_time_output import add_output_options, choose_output_paths

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip

_EXAMPLES = """examples:
  speechmix align clip.wav --text "elle a perdu les livres" --language fr
  speechmix align clip.wav --text "elle a perdu les livres" --language fr --out clip.TextGrid
  speechmix align recordings/*.wav --language fr --format eaf --out times   # each text in NAME.txt or NAME.lab
A folder of the French study is aligned as `speechmix study align` does it.
"""
_FORMATS = ("csv", "tsv", "json", "TextGrid", "eaf", "srt", "vtt")
_TEXT_SUFFIXES = (".txt", ".lab")


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    align = commands.add_parser(
        "align",
        help="find when each word of a text is said: a table, TextGrid, ELAN, subtitles",
        epilog=_EXAMPLES,
    )
    align.set_defaults(command=_align)
    add_clips_option(align)
    align.add_argument(
        "--text", help="what is said in one recording (default: a file NAME.txt or NAME.lab beside)"
    )
    add_aligner_options(align)
    align.add_argument(
        "--language", help="language of the text, as fr (for alignment by synthesis)"
    )
    add_outside_option(align)
    align.add_argument(
        "--phones",
        action="store_true",
        help="also align the phones of each word (IPA), by synthesis: a tier in TextGrid and ELAN, in JSON",
    )
    add_output_options(align, _FORMATS)
    align.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cuda if available)")


def _align(options: argparse.Namespace) -> int:
    from ...inputs.formats.word_writers import word_table, write_words

    skipped: SkippedItems = []
    clips = [_read_text_beside(clip) for clip in collect_clips(options, skipped)]
    paths = choose_output_paths(options, [clip.name for clip in clips])
    aligner = load_aligner(options)
    aligned_count = 0
    for clip, path in zip(clips, paths, strict=True):
        try:
            aligned = _align_clip(clip, aligner, options)
        except SpeechmixError as error:
            skipped.append((clip.name, str(error)))
            continue
        aligned_count += 1
        if path is None:
            print(f"{clip.name}: {len(aligned.spoken_words)} words, aligned by {aligned.alignment}")
            print(word_table(aligned.spoken_words).to_string(index=False), end="\n\n")
        else:
            write_words(path, aligned)
            print(f"{clip.name}: {path}")
    print_skipped(skipped)
    return 0 if aligned_count else 1


def _read_text_beside(clip: Clip) -> Clip:
    """Return the clip with the text of the file beside it, if nothing else tells its text."""
    from ...files.text_files import read_text

    if clip.text or clip.words or clip.path is None:
        return clip
    for suffix in _TEXT_SUFFIXES:
        path = Path(clip.path).with_suffix(suffix)
        if path.is_file():
            return clip.replace(text=" ".join(read_text(path).split()))
    return clip


def _align_clip(clip: Clip, aligner: Model | None, options: argparse.Namespace) -> Clip:
    from ...alignment import align

    if not clip.text and not clip.words:
        raise AlignmentError(
            f"what is said? Give --text, or a file {clip.name}.txt beside the recording; or find words and "
            "times with `speechmix transcribe`"
        )
    is_by_synthesis = options.align == "synthesis" or (options.align == "auto" and aligner is None)
    if is_by_synthesis and clip.words is None and not clip.language:
        raise AlignmentError(
            "in which language is the text? Give --language en (or fr, ...): a synthetic voice speaks it"
        )
    tiers = ("word", "phone") if options.phones else ("word",)
    return align(clip, model=aligner, method=options.align, tiers=tiers)

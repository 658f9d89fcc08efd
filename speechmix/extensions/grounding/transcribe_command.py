"""`speechmix transcribe`: what a recogniser writes about a recording, and when each word is said."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import SpeechmixError
from ...interfaces.cli.clip_options import (
    SkippedItems,
    add_clips_option,
    add_outside_option,
    collect_clips,
    print_skipped,
)
from ...interfaces.cli.command_parser import Subparsers
from ...interfaces.cli.model_options import (
    add_loading_options,
    add_model_option,
    add_prefix_options,
    load_model,
    select_only_model,
)
from ...interfaces.cli.word_time_output import add_output_options, choose_output_paths

if TYPE_CHECKING:
    from .grounding import Grounding

_FORMATS = ("csv", "json", "TextGrid", "eaf", "srt", "vtt", "txt", "html")
_EXAMPLES = """examples:
  speechmix transcribe clip.wav --model openai/whisper-small
  speechmix transcribe clip.wav --model openai/whisper-small --out clip.srt
  speechmix transcribe recordings/*.wav --model FOLDER --format TextGrid --out times
Words that are not in the sound are marked: [you?]. `speechmix ground` says more about them, and continues a stopped run.
A folder of the French study is transcribed as `speechmix study transcribe` does it.
"""


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    command = commands.add_parser(
        "transcribe",
        help="write what is said, and when: a table, TextGrid, ELAN, subtitles",
        epilog=_EXAMPLES,
    )
    command.set_defaults(command=_transcribe)
    add_clips_option(command)
    add_model_option(command)
    command.add_argument(
        "--language", help="language of the recordings, as fr (default: detected by a Whisper)"
    )
    add_output_options(command, _FORMATS)
    command.add_argument(
        "--no-align",
        dest="align",
        action="store_false",
        help="take word times from the model alone, not from alignment with synthetic speech: faster, less exact",
    )
    add_prefix_options(command)
    add_outside_option(command)
    add_loading_options(command, precision=True)


def _transcribe(options: argparse.Namespace) -> int:
    from .ground import ground

    skipped: SkippedItems = []
    clips = collect_clips(options, skipped)
    paths = choose_output_paths(options, [clip.name for clip in clips])
    model = load_model(options, select_only_model(options))
    transcript_count = 0
    with model.unchanged():  # silence and noise are encoded once for all clips
        for clip, path in zip(clips, paths, strict=True):
            try:
                grounding = ground(
                    model,
                    clip,
                    loop_heads=False,
                    align=options.align,
                    progress=sys.stderr.isatty(),
                )
            except SpeechmixError as error:
                skipped.append((clip.name, str(error)))
                continue
            transcript_count += 1
            _report(grounding, path)
    print_skipped(skipped)
    return 0 if transcript_count else 1


def _report(grounding: Grounding, path: Path | None) -> None:
    """Write the words into a file, or print the text and the times."""
    if path is not None:
        grounding.save(path)
        print(f"{grounding.name}: {path}")
        return
    print(f"{grounding.name}: {grounding.transcript(mark=True)}")
    if grounding.words:
        table = grounding.to_dataframe()[["text", "start", "end", "probability"]]
        doubtful = set(grounding.doubtful())
        table["text"] = [
            f"[{text}?]" if index in doubtful else text for index, text in enumerate(table["text"])
        ]
        print(table.rename(columns={"text": "word"}).round(3).to_string(index=False), end="\n\n")

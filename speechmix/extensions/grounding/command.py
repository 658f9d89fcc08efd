"""`speechmix ground` and `speechmix calibrate`: which words of a transcript were in the sound.

In: recordings of any length and a recogniser. Out: marked transcripts in the terminal; with a folder also tables,
subtitles, tiers and pages, and a command that goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError, SpeechmixError
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
    create_loaders,
    load_model,
    select_only_model,
)
from ...interfaces.cli.score_options import (
    add_executor_options,
    choose_executor,
    refuse_executor_options,
)

if TYPE_CHECKING:
    from .grounding import Grounding

_MOST_CHARACTERS = 400  # of a transcript in the terminal, where files have all of it
_GROUND_EXAMPLES = """examples:
  speechmix ground interview.wav --model openai/whisper-small --language fr
  speechmix ground recordings/*.wav --model FOLDER --out runs/interviews --format TextGrid
  speechmix ground recordings.tsv --model FOLDER --try vad,temperature=0,heads
"""
_CALIBRATE_EXAMPLES = """examples:
  speechmix calibrate clips.tsv --model openai/whisper-small --out whisper-small.json
  speechmix ground interview.wav --model openai/whisper-small --calibration whisper-small.json
"""


def add_commands(commands: Subparsers) -> None:
    """Add the commands to a parser's subcommands."""
    _add_ground(commands)
    _add_calibrate(commands)


def _add_ground(commands: Subparsers) -> None:
    command = commands.add_parser(
        "ground",
        help="find words of a transcript that were not in the sound (hallucinations)",
        epilog=_GROUND_EXAMPLES,
    )
    command.set_defaults(command=_ground)
    add_clips_option(command)
    add_model_option(command)
    command.add_argument(
        "--calibration",
        metavar="FILE",
        help="word confidence of this model, from `speechmix calibrate`",
    )
    command.add_argument(
        "--threshold",
        type=float,
        metavar="NATS",
        help="mark words that lose less without the sound, as do the near words of their phrase (default: 1)",
    )
    command.add_argument(
        "--format",
        dest="formats",
        action="append",
        metavar="ENDING",
        help="html, csv, json, parquet, TextGrid, eaf, vtt, srt or txt; may be repeated (default: html, csv, vtt, txt)",
    )
    command.add_argument(
        "--previous-text",
        action="store_true",
        help="condition each window on the text of those before, as openai-whisper and faster-whisper do by default",
    )
    command.add_argument(
        "--try",
        dest="fixes",
        metavar="FIXES",
        help="transcribe again with one change at a time, and count what it repairs and breaks: vad, previous-text, "
        "no-previous-text, prompt=TEXT, hotwords=TEXT, no-prompt, temperature=0, no-speech=0.3, heads; separated by commas",
    )
    command.add_argument(
        "--no-loop-heads",
        dest="loop_heads",
        action="store_false",
        help="do not look for the attention heads that carry repetition loops",
    )
    command.add_argument(
        "--no-align",
        dest="align",
        action="store_false",
        help="take word times from the model alone, not from alignment with synthetic speech: faster, less exact",
    )
    command.add_argument(
        "--language", help="language of the recordings, as fr (default: detected by a Whisper)"
    )
    command.add_argument(
        "--out", metavar="FOLDER", help="folder for the files, where a stopped command continues"
    )
    add_executor_options(command.add_argument_group("shards and processes, with --out"))
    add_prefix_options(command)
    add_outside_option(command)
    add_loading_options(command)


def _add_calibrate(commands: Subparsers) -> None:
    command = commands.add_parser(
        "calibrate",
        help="fit word confidence on clips whose text is known",
        epilog=_CALIBRATE_EXAMPLES,
    )
    command.set_defaults(command=_calibrate)
    add_clips_option(command)
    add_model_option(command)
    command.add_argument(
        "--nonspeech",
        nargs="+",
        metavar="PATH",
        help="recordings without speech, about which each written word is wrong",
    )
    command.add_argument(
        "--language", help="language of clips without one, as fr (default: detected by a Whisper)"
    )
    command.add_argument(
        "--out",
        required=True,
        metavar="FILE",
        help=".json, for `speechmix ground --calibration`; a reliability diagram (.png) beside it",
    )
    add_prefix_options(command)
    add_outside_option(command)
    add_loading_options(command)


def _ground(options: argparse.Namespace) -> int:
    from .grounded_words import DEFAULT_THRESHOLD

    if options.threshold is None:
        options.threshold = DEFAULT_THRESHOLD
    skipped: SkippedItems = []
    if options.fixes:
        return _try_fixes(options, skipped)
    groundings = _ground_stored(options, skipped) if options.out else _ground_now(options, skipped)
    print_skipped(skipped)
    if groundings is None:
        print(
            f"shard {options.shard} is finished; `speechmix status {options.out}` lists the others"
        )
        return 0
    if options.out:
        for grounding in groundings:
            _print_grounding(grounding, options.threshold, most=_MOST_CHARACTERS)
    if groundings:  # the same of all of them
        print(groundings[0].confidence_statement)
    if options.out:
        print(f"files: {options.out}/grounding")
    return 0 if groundings else 1


def _ground_stored(options: argparse.Namespace, skipped: SkippedItems) -> list[Grounding] | None:
    from .grounding_runs import DEFAULT_FORMATS, ground_recordings

    [load] = create_loaders(options, [select_only_model(options)])
    return ground_recordings(
        load,
        collect_clips(options, skipped),
        options.out,
        calibration=options.calibration,
        loop_heads=options.loop_heads,
        align=options.align,
        previous_text=options.previous_text,
        formats=options.formats or DEFAULT_FORMATS,
        threshold=options.threshold,
        executor=choose_executor(options, options.model),
        progress=sys.stderr.isatty(),
        skipped=skipped,
    )


def _ground_now(options: argparse.Namespace, skipped: SkippedItems) -> list[Grounding]:
    from .ground import ground
    from .windows import DecodingOptions

    refuse_executor_options(options, "give a folder as --out")
    if options.formats:
        raise InputError("--format needs a folder for the files: give --out")
    clips = collect_clips(options, skipped)
    model = load_model(options, select_only_model(options))
    groundings = []
    with model.unchanged():  # silence and noise are encoded once for all clips
        for clip in clips:
            try:
                grounding = ground(
                    model,
                    clip,
                    calibration=options.calibration,
                    loop_heads=options.loop_heads,
                    align=options.align,
                    decoding=DecodingOptions(previous_text=options.previous_text),
                    progress=sys.stderr.isatty(),
                )
            except SpeechmixError as error:
                skipped.append((clip.name, str(error)))
                continue
            groundings.append(grounding)
            _print_grounding(grounding, options.threshold)
    return groundings


def _try_fixes(options: argparse.Namespace, skipped: SkippedItems) -> int:
    from .fixes import parse_fixes, try_fixes
    from .windows import DecodingOptions

    refuse_executor_options(options, "leave --try out")
    clips = collect_clips(options, skipped)
    clips = [clip.replace(language=options.language or clip.language) for clip in clips]
    comparison = try_fixes(
        load_model(options, select_only_model(options)),
        clips,
        parse_fixes(options.fixes),
        decoding=DecodingOptions(previous_text=options.previous_text),
        progress=lambda line: print(line, file=sys.stderr) if sys.stderr.isatty() else None,
    )
    print_skipped(skipped)
    print(comparison)
    if options.out:
        folder = Path(options.out)
        folder.mkdir(parents=True, exist_ok=True)
        comparison.table.to_csv(folder / "fixes.csv", index=False)
        comparison.clips.to_csv(folder / "fixes_clips.csv", index=False)
        print(f"tables: {folder / 'fixes.csv'}, {folder / 'fixes_clips.csv'}")
    return 0


def _print_grounding(grounding: Grounding, threshold: float, most: int | None = None) -> None:
    text = grounding.transcript(threshold=threshold, mark=True)
    print(text if most is None or len(text) <= most else f"{text[:most]} ...")
    print("\n".join([grounding.summarize(threshold), *grounding.findings]), end="\n\n")


def _calibrate(options: argparse.Namespace) -> int:
    from ...inputs.clips.clip import Clip
    from ...reporting.plots.figure_style import new_figure, write_figure
    from .calibrate import calibrate
    from .calibration import reliability_diagram

    skipped: SkippedItems = []
    clips = collect_clips(options, skipped)
    nonspeech = [Clip.from_file(path) for path in options.nonspeech or ()]
    fitted = calibrate(
        load_model(options, select_only_model(options)),
        clips,
        nonspeech=nonspeech,
        progress=sys.stderr.isatty(),
    )
    fitted.save(options.out)
    figure = new_figure(3.2, 3.2)
    reliability_diagram(fitted, ax=figure.subplots())
    picture = Path(options.out).with_suffix(".png")
    write_figure(figure, picture, dpi=160)
    print_skipped(skipped)
    print(f"{fitted}\ncalibration: {options.out}\nreliability diagram: {picture}")
    return 0

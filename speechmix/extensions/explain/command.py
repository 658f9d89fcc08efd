"""`speechmix explain`: explain why a model wrote a word, as text in the terminal and as a file."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError, SpeechmixError
from ...files.json_files import JsonObject
from ...interfaces.cli.clip_options import (
    SkippedItems,
    add_clip_options,
    add_segments_option,
    collect_clips,
    is_run,
    load_aligner,
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
from ...interfaces.cli.run_results import compute_kind_in_run
from ...interfaces.cli.score_options import (
    add_executor_options,
    add_fill_option,
    refuse_executor_options,
    split_fills_by_side,
)

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ...inputs.sentences.sentence import Sentence
    from .explanation import Explanation

_EXAMPLES = """examples:
  speechmix explain livre.wav --model openai/whisper-small --language fr --out livre.html
  speechmix explain clips.tsv --model facebook/wav2vec2-base-960h --measure occlusion --out explained
  speechmix explain --sentence "The keys to the cabinet <mask> here." --model bert-base-uncased
"""
_PAGE_SUFFIX = ".html"


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    from ...mixing.maps.measure_registry import measure_names

    command = commands.add_parser(
        "explain",
        help="explain why a model wrote a word, and what it writes without the sources",
        epilog=_EXAMPLES,
    )
    command.set_defaults(command=_explain)
    add_clip_options(command)
    add_model_option(command, note=" with --out RUN")
    command.add_argument("--sentence", metavar="TEXT", help="a text for a text model, no clips")
    command.add_argument(
        "--hypothesis", metavar="TEXT", help="explain this text (or label), not the model's"
    )
    command.add_argument(
        "--measure",
        action="append",
        help=f"{', '.join(measure_names('removal', 'logit'))}, or one of score; may be repeated",
    )
    command.add_argument(
        "--units",
        choices=("word", "token"),
        default="word",
        help="explain words (default) or tokens",
    )
    command.add_argument(
        "--against",
        action="append",
        metavar="OTHER",
        help="compare the word with its reference, runner_up or foil, or a label with another "
        "label; may be repeated (default: reference)",
    )
    command.add_argument(
        "--pairs",
        type=int,
        default=0,
        metavar="N",
        help="also remove pairs of the first N sources (2 to 8) together",
    )
    command.add_argument(
        "--frames",
        action="append",
        metavar="MEASURE",
        help="attribute to single frames with this measure, or all; may be repeated (default: "
        "measures without extra cost)",
    )
    command.add_argument(
        "--include",
        action="append",
        default=[],
        choices=("silence",),
        help="silence: pauses are sources too",
    )
    command.add_argument(
        "--lens",
        choices=("logit", "encoder"),
        help="also list what the model would have written from each layer",
    )
    add_segments_option(command)
    add_fill_option(command, default="zeros, noise; of a text three")
    command.add_argument(
        "--all", action="store_true", help="print all measures, effects and remarks of each word"
    )
    command.add_argument(
        "--out",
        metavar="FILE",
        help=".html, .png, .svg, .pdf, .csv or .parquet; a folder for a page of each clip; or a run, "
        "whose page then shows the explanations",
    )
    add_executor_options(command.add_argument_group("shards and processes, with --out RUN"))
    add_prefix_options(command)
    add_loading_options(command, precision=True)


def _explain(options: argparse.Namespace) -> int:
    from .explain import explain

    skipped: SkippedItems = []
    if options.out and is_run(options.out):
        return _explain_in_run(options, skipped)
    refuse_executor_options(options, "give the folder of a run as --out")
    items: list[Clip | Sentence] = [*_list_sentences(options)] or [*collect_clips(options, skipped)]
    _check_out(options, has_several=len(items) > 1)
    model, aligner = load_model(options, select_only_model(options)), load_aligner(options)
    arguments: JsonObject = {
        **_collect_explain_arguments(options),
        "text": options.hypothesis,
        "aligner": aligner,
        "align_method": options.align,
    }
    explanation_count = 0
    for item in items:
        try:
            with warnings.catch_warnings():  # the explanation prints these doubts
                warnings.filterwarnings(
                    "ignore", message="clip .* is doubtful|Scores of word times are calibrated"
                )
                explanation = explain(model, item, **arguments)
        except SpeechmixError as error:
            skipped.append((str(item.name), str(error)))
            continue
        explanation_count += 1
        print(explanation.details() if options.all else explanation)
        if options.out:
            print(f"saved: {_save(explanation, Path(options.out))}")
    print_skipped(skipped)
    return 0 if explanation_count else 1


def _collect_explain_arguments(options: argparse.Namespace) -> JsonObject:
    """Return the arguments of `explain` that the command line gives."""
    audio_fills, token_fills = split_fills_by_side(options.fill)
    arguments = {
        "measures": options.measure,
        "by": None if options.units == "word" else options.units,
        "against": options.against,
        "include": options.include,
        "pairs": options.pairs,
        "frames": True if options.frames == ["all"] else options.frames,
        "sound_fill": audio_fills,
        "token_fill": token_fills,
        "lens": options.lens,
    }
    nonempty_arguments = {name: value for name, value in arguments.items() if value}
    return (
        nonempty_arguments
        if options.segments is None
        else {**nonempty_arguments, "segments": options.segments}
    )


def _explain_in_run(options: argparse.Namespace, skipped: SkippedItems) -> int:
    """Store the explanations of clips in a run's folder, whose page shows them."""
    from .kind import EXPLANATIONS_KIND

    if options.sentence or options.hypothesis:
        raise InputError(
            "--sentence and --hypothesis are not stored in a run: give a file as --out"
        )
    clips = collect_clips(options, skipped)
    kind_options = {"request": _collect_explain_arguments(options)}
    return compute_kind_in_run(options, clips, EXPLANATIONS_KIND.name, kind_options, skipped)


def _list_sentences(options: argparse.Namespace) -> list[Sentence]:
    from ...inputs.sentences.sentence import Sentence

    if options.sentence is None:
        return []
    if options.clips:
        raise InputError("--sentence is for a text model: leave --clips out")
    return [Sentence(options.sentence, target=options.target, foil=options.foil)]


def _check_out(options: argparse.Namespace, *, has_several: bool) -> None:
    """Raise an error for a wrong --out before anything is computed.

    Raises
    ------
    InputError
    """
    if not options.out:
        return
    from .explanation import ENDINGS

    is_file = Path(options.out).suffix.lower() in ENDINGS
    if has_several and is_file:
        raise InputError(f"--out {options.out}: several clips need a folder")
    if not has_several and not is_file and Path(options.out).suffix:
        raise InputError(f"--out should end in one of {', '.join(ENDINGS)}, found {options.out!r}")


def _save(explanation: Explanation, path: Path) -> Path:
    """Save into a file, or into a folder under the name of the clip."""
    from ...files.names import safe_name
    from .explanation import ENDINGS

    if path.suffix.lower() not in ENDINGS:
        path = path / f"{safe_name(explanation.item)}{_PAGE_SUFFIX}"
    return Path(explanation.save(path))

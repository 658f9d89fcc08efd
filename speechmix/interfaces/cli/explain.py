"""`speechmix explain` on the command line: why did the model write this word? As text in the
terminal, and as a file.

In: the parser's subcommands. The command is one call of `speechmix.explain` a clip (or a text).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError, SpeechmixError
from ...files.json_files import JsonObject
from .arguments import Subparsers
from .clip_options import (
    Skipped,
    add_clip_options,
    aligner_loader,
    is_run,
    loaded_aligner,
    named_clips,
    print_skipped,
)
from .executor_options import add_executor_options, executor_of, refuse_executor
from .model_options import add_loading_options, add_prefix_options, loaded, model_loaders

if TYPE_CHECKING:
    from ...explanations.explanation import Explanation
    from ...inputs.clips.clip import Clip
    from ...inputs.sentences.sentence import Sentence

_EXAMPLES = """examples:
  speechmix explain livre.wav --model openai/whisper-small --language fr --out livre.html
  speechmix explain livre.wav --model openai/whisper-small --text "elle a perdu les livres" --against reference runner_up
  speechmix explain --manifest clips.tsv --model facebook/wav2vec2-base-960h --by token --measure occlusion --out explained
  speechmix explain --sentence "The keys to the cabinet <mask> here." --model google-bert/bert-base-uncased
"""
_ENDING = ".html"


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    command = commands.add_parser(
        "explain",
        help="why did the model write this word, and what happens without it?",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    from ...mixing.maps.measure_registry import measure_names

    command.set_defaults(command=_explain)
    add_clip_options(command)
    command.add_argument(
        "--model",
        required=True,
        help="hub id or folder, with a CTC or language-model head, and its processor",
    )
    command.add_argument(
        "--sentence", metavar="TEXT", help="a text for a text model, instead of clips"
    )
    command.add_argument(
        "--written",
        metavar="TEXT",
        help="explain this text instead of what the model writes by itself",
    )
    command.add_argument(
        "--measure",
        action="append",
        help=f"{', '.join(measure_names('removal', 'logit'))}, or one of mix; may be repeated",
    )
    command.add_argument(
        "--by", choices=("word", "token"), default="word", help="what is explained (default: word)"
    )
    command.add_argument(
        "--against",
        nargs="+",
        default=["reference"],
        metavar="WHAT",
        help="what words are also held against: reference (default), runner_up, foil",
    )
    command.add_argument(
        "--pairs",
        type=int,
        default=0,
        metavar="N",
        help="also take away every two of a word's N first sources (2 to 8)",
    )
    command.add_argument(
        "--frames",
        nargs="*",
        metavar="MEASURE",
        help="tell frames of the sound apart by these measures, or by all that can (default: where "
        "it costs nothing)",
    )
    command.add_argument(
        "--include", nargs="+", default=[], metavar="WHAT", help="silence: pauses are sources too"
    )
    command.add_argument(
        "--sound-fill",
        action="append",
        metavar="FILL",
        help="what replaces a word's sound: zeros, room, noise, word; may be repeated (default: "
        "zeros and noise)",
    )
    command.add_argument(
        "--token-fill",
        action="append",
        metavar="FILL",
        help="what replaces a word of a text: remove, mask, unk, pad or a token's text; may be "
        "repeated (default: three)",
    )
    command.add_argument(
        "--out",
        metavar="FILE",
        help=".html, .png, .svg, .pdf, .csv or .parquet; of several clips a folder for their pages; "
        "or the folder of a run, whose page then has them",
    )
    add_executor_options(command.add_argument_group("who does the work, with --out RUN"))
    add_prefix_options(command)
    add_loading_options(command, precision=True)


def _explain(options: argparse.Namespace) -> int:
    skipped: Skipped = []
    if options.out and is_run(options.out):
        return _explain_in_run(options, skipped)
    refuse_executor(options, "only a run's folder (--out RUN) is shared by processes")
    items: list[Clip | Sentence] = [*_sentences(options)] or [*named_clips(options, skipped)]
    _check_out(options, several=len(items) > 1)
    model, aligner = loaded(options, options.model), loaded_aligner(options)
    frames = True if options.frames == [] else options.frames
    asked: JsonObject = {
        "text": options.written,
        "measures": options.measure,
        "by": options.by,
        "against": options.against,
        "include": options.include,
        "pairs": options.pairs,
        "frames": frames,
        "sound_fill": options.sound_fill,
        "token_fill": options.token_fill,
        "aligner": aligner,
        "align_method": options.align,
    }
    done = 0
    from ...explanations.explain import explain

    for item in items:
        try:
            explanation = explain(model, item, **asked)
        except SpeechmixError as error:
            skipped.append((str(item.name), str(error)))
            continue
        done += 1
        print(explanation)
        _save(explanation, options, several=len(items) > 1)
    print_skipped(skipped)
    return 0 if done else 1


def _explain_in_run(options: argparse.Namespace, skipped: Skipped) -> int:
    """Store the explanations of clips in a run's folder, whose page shows them."""
    from ...runs.kinds.explanations import EXPLANATIONS_KIND
    from ...runs.score_clips import compute_kinds

    if options.sentence or options.written:
        raise InputError("--sentence and --written are not for a run's folder: give another --out")
    given = {
        "measures": options.measure,
        "by": None if options.by == "word" else options.by,
        "against": None if options.against == ["reference"] else options.against,
        "include": options.include or None,
        "pairs": options.pairs or None,
        "frames": True if options.frames == [] else options.frames,
        "sound_fill": options.sound_fill,
        "token_fill": options.token_fill,
    }
    request = {name: value for name, value in given.items() if value is not None}
    clips = named_clips(options, skipped)
    run = compute_kinds(
        model_loaders(options, [options.model], None),
        clips,
        options.out,
        {EXPLANATIONS_KIND.name: {"request": request}},
        aligner=aligner_loader(options),
        align_method=options.align,
        executor=executor_of(options, [options.model]),
        progress=sys.stderr.isatty(),
        skipped=skipped,
    )
    print(run.summary())
    return 0 if run.done or not run.is_complete else 1


def _sentences(options: argparse.Namespace) -> list[Sentence]:
    from ...inputs.sentences.sentence import Sentence

    if options.sentence is None:
        return []
    if options.clips or options.manifest:
        raise InputError("--sentence is for a text model; give it or clips, not both")
    return [Sentence(options.sentence, target=options.target, foil=options.foil)]


def _check_out(options: argparse.Namespace, *, several: bool) -> None:
    """Say what is wrong with --out before anything is computed.

    Raises
    ------
    InputError
    """
    if not options.out:
        return
    from ...explanations.explanation import ENDINGS

    if several and Path(options.out).suffix.lower() in ENDINGS:
        raise InputError(
            f"--out {options.out}: several clips need a folder, in which each has its page"
        )
    if not several and Path(options.out).suffix.lower() not in ENDINGS:
        raise InputError(f"--out should end in one of {', '.join(ENDINGS)}, found {options.out!r}")


def _save(explanation: Explanation, options: argparse.Namespace, *, several: bool) -> None:
    from ...files.names import safe_name

    if options.out:
        path = Path(options.out)
        if several:
            path = path / f"{safe_name(explanation.item)}{_ENDING}"
        path.parent.mkdir(parents=True, exist_ok=True)
        print(
            f"page: {explanation.save(path)}"
            if path.suffix == _ENDING
            else f"written: {explanation.save(path)}"
        )

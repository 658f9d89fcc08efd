"""The command line: `speechmix COMMAND`; each command is one call of the library."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import InputError, SpeechmixError
from .clip_options import Skipped, add_clip_options, loaded_aligner, named_clips, print_skipped
from .command_groups import list_by_group
from .engine import add_engine_options, engine_of
from .model_options import add_loading_options, add_prefix_options, loaded, model_loaders
from .status import add_shard_option, add_workers_option, print_times, refuse_shard, shard_of, worker_count

_SCORE_EPILOG = """examples:
  speechmix score livre.wav --model openai/whisper-small --text "elle a perdu les livres" --cue les --target livres
  speechmix score --manifest clips.tsv --model facebook/wav2vec2-base --random-twin 0 --measure value_zeroing --out runs/a
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status: 0 done, 1 nothing could be done, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    try:
        with _ended_by_sigterm():
            return options.command(options)
    except SpeechmixError as error:
        print(f"speechmix: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # a table or page that cannot be written, a pipe that was closed
        print(f"speechmix: {error}: free some space, or write somewhere else", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("speechmix: stopped; the same command goes on where it was", file=sys.stderr)
        return 130


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Have SIGTERM, which batch systems send before they take a machine back, end a command as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _check(options) -> int:
    from ..versions import versions

    model = loaded(options, options.model)
    print(model.describe())
    parts = [
        name for name, part in (("feature extractor", model.feature_extractor), ("tokenizer", model.tokenizer)) if part
    ]
    print(f"  processor: {', '.join(parts) or 'none found (prepared inputs only)'}")
    print("  self-check passed: attention rows sum to one, replay equals the forward pass, zeroing has an effect")
    print(versions())
    return 0


def _score(options) -> int:
    from functools import partial

    from ..adapters import load
    from ..experiments.run import score_clips
    from ..experiments.workers import score_in_workers
    from ..homophony.dataset import holds_examples
    from ..homophony.french_study import describe_page
    from ..scoring.question import Question

    skipped: Skipped = []
    clips = named_clips(options, skipped)
    if options.manifest and holds_examples(options.manifest):
        describe_page(options.out, options.manifest, options.random_twin or [])
    models = model_loaders(options, options.model, options.random_twin)
    asked: dict[str, Any] = {
        "align_method": options.align,
        "figures": 0 if options.no_figures else options.figures,
        "ablation": options.ablate,
        "probes": options.probe,
        "twin_clips": options.twin_clips or None,
        "overwrite": options.overwrite,
        "progress": sys.stderr.isatty() if options.progress is None else options.progress,
        "report": _say,
        "skipped": skipped,
        "profile": options.profile,
        "maps": options.maps,
        "maps_dtype": options.maps_dtype,
        "measures": options.measure or Question.measures,
        "stacks": options.stack,
        "layers": options.layer,
        "units": options.units,
        "heads": options.heads,
        "pooling": options.pooling,
        "distance": options.distance,
        "rounding": options.rounding,
        "include": options.include or [],
        "targets": "target" if options.target_rows_only else None,
        **({"product_dtype": options.product_dtype} if options.product_dtype else {}),
    }
    workers = worker_count(options, options.model)
    if workers > 1:
        aligner = partial(load, options.aligner, device=options.device) if options.aligner else None
        run = score_in_workers(
            models, clips, options.out, workers=workers, device=options.device, aligner=aligner, **asked
        )
    else:
        run = score_clips(
            models,
            clips,
            options.out,
            aligner=loaded_aligner(options),
            shard=shard_of(options),
            engine=engine_of(options),
            **asked,
        )
    print(run.summary())
    if options.profile:
        print_times(run.out)
    return 0 if run.done or shard_of(options).count > 1 else 1  # a shard may hold no clip


def _ablate(options) -> int:
    import pandas as pd

    from ..alignment import align
    from ..experiments.tables import identified
    from ..files.text_files import write_csv
    from ..interventions.ablation import ablate
    from .published_ablation import ablate_as_published, refuse_options

    refuse_shard(options, "the same for all clips of a run is `speechmix score --ablate --shard`")
    skipped: Skipped = []
    clips = named_clips(options, skipped)
    if options.published:
        return ablate_as_published(options, clips, skipped)
    refuse_options(options)
    if len(options.model) > 1:
        raise InputError(f"expected one --model, found {', '.join(options.model)}; several go with --published")
    model, aligner = loaded(options, options.model[0]), loaded_aligner(options)
    tables = []
    for clip in clips:
        try:
            table = ablate(model, align(clip, model=aligner, method=options.align), stacks=options.stack)
        except SpeechmixError as error:
            skipped.append((clip.name, str(error)))
            continue
        tables.append(identified(table, clip, model))
        margins = "  ".join(f"{row.ablated} {row.margin:+.2f}" for row in table.itertuples())
        _say(f"{clip.name}  log p(target) - log p({clip.foil}), by what is silenced: {margins}")
    if tables:
        table = pd.concat(tables, ignore_index=True)
        rates = table.groupby("ablated", sort=False).right.mean().mul(100)
        print("target spelled right (%), by what is silenced: " + ", ".join(f"{k} {v:.0f}" for k, v in rates.items()))
        if options.out:
            write_csv(table, options.out)
    print_skipped(skipped)
    print(f"{len(tables)} done, {len(skipped)} skipped")
    return 0 if tables else 1


def _say(line: str) -> None:
    from tqdm.auto import tqdm

    tqdm.write(line)


def _parser() -> argparse.ArgumentParser:
    from .. import __version__
    from .export import add_commands as add_export_command
    from .faithfulness import add_commands as add_faithfulness_commands
    from .homophony import add_commands
    from .probing import add_commands as add_probe_commands
    from .published_ablation import add_options as add_ablation_options
    from .reports import add_commands as add_report_commands
    from .status import add_commands as add_status_command
    from .text_faithfulness import add_commands as add_text_commands

    parser = argparse.ArgumentParser(
        prog="speechmix", description="Context mixing in speech Transformers: which words build which, layer by layer."
    )
    parser.add_argument("--version", action="version", version=f"speechmix {__version__}")
    commands = parser.add_subparsers(prog="speechmix", required=True, metavar="COMMAND")

    check = commands.add_parser("check", help="load a model and check that its layers are understood")
    check.add_argument("model", help="hub id or folder")
    check.set_defaults(command=_check)

    score = commands.add_parser(
        "score",
        help="which words build which? maps, tables and figures of clips",
        epilog=_SCORE_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    score.set_defaults(command=_score)
    add_clip_options(score)
    _add_model_options(score)
    _add_measure_options(score)
    ablate = commands.add_parser("ablate", help="silence the cue, stack by stack: is the target still right?")
    ablate.set_defaults(command=_ablate)
    add_clip_options(ablate)
    ablate.add_argument(
        "--model", action="append", required=True,
        help="hub id or folder, with a CTC or language-model head; with --published several times, if there are several",
    )  # fmt: skip
    ablate.add_argument("--stack", action="append", help="encoder, decoder, cross (default: all there are)")
    ablate.add_argument("--out", help="CSV file for the table")
    add_shard_option(ablate, instead="score --ablate")
    add_prefix_options(ablate)
    add_ablation_options(ablate)
    for command in (check, score, ablate):
        add_loading_options(command, precision=True)
    add_faithfulness_commands(commands)
    add_probe_commands(commands)
    add_text_commands(commands)
    add_commands(commands)
    add_report_commands(commands)
    add_export_command(commands)
    add_status_command(commands)
    list_by_group(parser, commands)
    return parser


def _add_model_options(score: argparse.ArgumentParser) -> None:
    group = score.add_argument_group("models")
    group.add_argument("--model", action="append", required=True, help="hub id or folder; may be given several times")
    group.add_argument(
        "--random-twin",
        type=int,
        action="append",
        metavar="SEED",
        help="also the randomly initialised twin with this seed",
    )
    add_prefix_options(group)


def _add_measure_options(score: argparse.ArgumentParser) -> None:
    from ..scoring.question import ALLOWED, AUDIO_UNITS, Question

    group = score.add_argument_group("scores")
    group.add_argument(
        "--measure",
        action="append",
        help="value_zeroing (default), attention, attention_norm, alti ...; may be repeated",
    )
    group.add_argument(
        "--stack", action="append", help="encoder, decoder, cross (default: all there are); may be repeated"
    )
    group.add_argument(
        "--layer", type=int, action="append", help="score only this layer, counted from 0; may be repeated"
    )
    for option in ("units", "heads", "pooling", "distance", "rounding"):
        values = AUDIO_UNITS if option == "units" else ALLOWED[option]
        group.add_argument(f"--{option}", choices=values, default=getattr(Question, option))
    group.add_argument(
        "--product-dtype", help="bfloat16 (on a GPU also tf32): matrix products of Value Zeroing, scores within 0.5 %%"
    )
    group.add_argument(
        "--include",
        action="append",
        choices=ALLOWED["include"],
        help="make these units of the map; may be repeated",
    )
    group.add_argument("--target-rows-only", action="store_true", help="only the target word's rows: much faster")
    output = score.add_argument_group("output")
    output.add_argument("--out", required=True, help="folder of the run: tables, scores, figures")
    output.add_argument(
        "--figures", type=int, default=20, metavar="N", help="clips to draw a figure of, per model (default: 20)"
    )
    output.add_argument("--no-figures", action="store_true", help="the same as --figures 0")
    output.add_argument(
        "--maps",
        action="store_true",
        help="also keep maps of words as Parquet, a row each (maps of frames always are kept)",
    )
    output.add_argument(
        "--maps-dtype", choices=("float32", "float16"), help="type of kept maps of frames (default: as computed)"
    )
    add_shard_option(output)
    add_workers_option(output)
    output.add_argument(
        "--profile", action="store_true", help="wait for the GPU after every phase, and print where the time went"
    )
    add_engine_options(score.add_argument_group("cluster"))
    further = score.add_argument_group("further stages, for clips with cue, target and foil")
    further.add_argument(
        "--ablate", action="store_true", help="silence the cue stack by stack, and let models transcribe"
    )
    further.add_argument("--probe", action="store_true", help="probe states for the manifest's column number")
    further.add_argument(
        "--twin-clips", type=int, default=0, metavar="N", help="clips that twins after the first hear (default: all)"
    )
    output.add_argument("--overwrite", action="store_true", help="start afresh in a folder that holds another run")
    output.add_argument(
        "--progress", action=argparse.BooleanOptionalAction, default=None, help="show a bar (default: in a terminal)"
    )


if __name__ == "__main__":
    sys.exit(main())

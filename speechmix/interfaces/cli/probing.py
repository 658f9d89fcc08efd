"""`speechmix probe` on the command line: what can be read off the states of clips, a table in the
terminal and in a folder.

In: the parser's subcommands. The command is one call of `speechmix.probe`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ...files.names import distinct_file_names, safe_name
from .arguments import Subparsers
from .clip_options import (
    Skipped,
    add_alignment_options,
    aligned_clips,
    aligner_loader,
    is_run,
    manifest_clips,
    print_skipped,
)
from .executor_options import add_executor_options, executor_of, refuse_executor
from .model_options import add_loading_options, model_loaders

if TYPE_CHECKING:
    from ...evaluation.probing import Probes

_EXAMPLES = """examples:
  speechmix probe openai/whisper-small --manifest clips.tsv --label number --random-twin 0 1 2 --out runs/small
  speechmix probe FOLDER --manifest clips.tsv --label person --position target cue deciding
  speechmix probe FOLDER --manifest clips.tsv --label number --method online_code
"""


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    command = commands.add_parser(
        "probe",
        help="can a column of the manifest be read off the states?",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(command=_probe)
    command.add_argument("models", nargs="+", metavar="MODEL", help="hub ids or folders")
    command.add_argument(
        "--manifest",
        required=True,
        help="TSV, CSV or JSONL with path, text, words, cue, target, and the label",
    )
    command.add_argument(
        "--label", default="number", help="column that is to be read (default: number)"
    )
    command.add_argument(
        "--position",
        nargs="+",
        default=["target"],
        help="target, cue, between, deciding, or the index of a word (default: target)",
    )
    command.add_argument("--stack", nargs="+", help="encoder, decoder (default: all there are)")
    command.add_argument(
        "--random-twin",
        nargs="*",
        type=int,
        default=[],
        metavar="SEED",
        help="also untrained models",
    )
    command.add_argument(
        "--by",
        metavar="COLUMN",
        help="probe the parts of the clips that this column names by themselves",
    )
    command.add_argument(
        "--group",
        metavar="COLUMN",
        help="what stays in one fold (default: pair, sentence and target word)",
    )
    command.add_argument("--method", choices=("logistic", "online_code"), default="logistic")
    command.add_argument(
        "--mode", choices=("correct", "reference"), default="correct", help="of the online code"
    )
    command.add_argument(
        "--protocol",
        choices=("published",),
        help="the speech paper's: unscaled, folds that part groups",
    )
    command.add_argument("--folds", type=int, default=5, help="default: 5")
    command.add_argument(
        "--seed", type=int, default=0, help="of folds and control task (default: 0)"
    )
    command.add_argument(
        "--out",
        metavar="FOLDER",
        help="for probes.csv and a figure; a run's folder has them on its page",
    )
    add_executor_options(command.add_argument_group("who does the work, with --out RUN"))
    add_alignment_options(command)
    add_loading_options(command)


def _probe(options: argparse.Namespace) -> int:
    skipped: Skipped = []
    probes = _probes(options, skipped)
    if probes is None:
        print(f"shard {options.shard} is done, others are not: `speechmix status {options.out}`")
        return 0
    print(_shown(probes))
    print_skipped(skipped)
    for row in probes.left_out.value_counts("reason").reset_index().itertuples(index=False):
        print(f"left out ({row.count}): {row.reason}")
    if options.out and len(probes.to_dataframe()):
        print(f"table: {probes.write(options.out)}")
        _draw(probes, Path(options.out))
    return 0 if len(probes.to_dataframe()) else 1


def _probes(options: argparse.Namespace, skipped: Skipped) -> Probes | None:
    """The probes; None while other shards are not done."""
    from ...evaluation.probing import probe
    from ...runs.probe_runs import probe_in_run

    in_run = bool(options.out) and is_run(options.out)
    if not in_run:
        advice = "give the folder of a run as --out, or `speechmix score --probe --shard`"
        refuse_executor(options, advice)
    positions = [int(name) if name.isdigit() else name for name in options.position]
    models = model_loaders(options, options.models, options.random_twin)
    of_task = {"label": options.label, "stacks": options.stack, "protocol": options.protocol}
    of_task |= {"by": options.by, "group": options.group}
    names = ("method", "mode", "folds", "seed")
    settings = {name: getattr(options, name) for name in names}
    if in_run:
        return probe_in_run(
            models,
            manifest_clips(options, skipped),
            options.out,
            positions=positions,
            executor=executor_of(options, options.models),
            settings={**settings, "controls": 3},
            aligner=aligner_loader(options),
            align_method=options.align,
            skipped=skipped,
            progress=sys.stderr.isatty(),
            **of_task,
        )
    clips = aligned_clips(options, skipped)
    progress = sys.stderr.isatty()
    return probe(models, clips, position=positions, progress=progress, **of_task, **settings)


def _draw(probes: Probes, folder: Path) -> None:
    """A figure for each part of the clips."""
    from ...reporting.plots.figure_style import write_figure
    from ...reporting.plots.probe_curves import probe_figure

    value = "accuracy" if "accuracy" in probes.to_dataframe() else "compression"
    parts = distinct_file_names(probes.to_dataframe()["part"])
    for part, table in probes.to_dataframe().groupby("part", sort=False):
        stem = f"probes_{table['label'].iloc[0]}"
        name = safe_name(stem if part == "all" else f"{stem}_{parts[str(part)]}")
        write_figure(probe_figure(table, value=value), folder / f"{name}.png", dpi=150)
        print(f"figure: {folder / name}.png")


def _shown(probes: Probes) -> str:
    """The table with a line for each layer; random twins as their mean; then what may be said of
    it."""
    from ...evaluation.probing.conclusions import describe_conclusions, draw_conclusions
    from ...reporting.plots.figure_style import model_name

    table = probes.to_dataframe().drop(columns=["label", "method", "depth", "seed"])
    if table.empty:
        return "nothing could be probed"
    keys = ["model", "init", "part", "stack", "position", "layer"]
    table = table.groupby(keys, sort=False).mean().reset_index()
    table["model"] = table["model"].map(model_name)
    table = table.astype(
        {name: int for name in ("n", "groups") if name in table and table[name].mod(1).eq(0).all()}
    )
    shown = table.drop(columns=[name for name in ("part",) if table[name].nunique() == 1])
    text = shown.to_string(index=False, na_rep="", float_format="{:.2f}".format)
    if "right" not in probes.answers:
        return text
    claims = draw_conclusions(probes.to_dataframe(), probes.answers)
    names = {name: model_name(name) for name in claims["model"].unique()}
    return "\n".join([text, "", *describe_conclusions(claims, names)])

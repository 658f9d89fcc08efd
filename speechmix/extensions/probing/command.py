"""`speechmix probe`: train probes on hidden states for a column of the manifest."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError
from ...files.names import distinct_file_names, safe_name
from ...files.parquet_files import read_parquet
from ...files.user_tables import read_table
from ...interfaces.cli.clip_options import (
    SkippedItems,
    add_alignment_options,
    add_clips_option,
    collect_aligned_clips,
    collect_clips,
    create_aligner_loader,
    is_run,
    print_skipped,
)
from ...interfaces.cli.command_parser import Subparsers
from ...interfaces.cli.model_options import (
    add_loading_options,
    add_model_option,
    add_seed_option,
    add_twin_options,
    create_loaders,
    list_twin_seeds,
)
from ...interfaces.cli.score_options import (
    add_executor_options,
    add_group_option,
    add_stack_option,
    choose_executor,
    refuse_executor_options,
)

if TYPE_CHECKING:
    import pandas as pd

    from .probe import Probes

_EXAMPLES = """examples:
  speechmix probe clips.tsv --model openai/whisper-small --label number --twins 3 --out runs/small
  speechmix probe clips.tsv --model FOLDER --label pitch --level word --method ridge
"""


def add_commands(commands: Subparsers) -> None:
    """Add the command to a parser's subcommands."""
    from ...mixing.passes.request import AUDIO_UNITS

    command = commands.add_parser(
        "probe", help="probe hidden states for a column of the manifest", epilog=_EXAMPLES
    )
    command.set_defaults(command=_probe)
    add_clips_option(command)
    add_model_option(command)
    command.add_argument(
        "--label", default="number", metavar="COLUMN", help="column to predict (default: number)"
    )
    command.add_argument(
        "--position",
        action="append",
        help="target, cue, between, deciding, or the index of a word; may be repeated (default: "
        "target)",
    )
    command.add_argument(
        "--level",
        choices=AUDIO_UNITS,
        help="probe each word, phone or frame; --label may then be a feature, such as pitch",
    )
    command.add_argument(
        "--table",
        metavar="FILE",
        help="values of units: CSV, TSV or Parquet with clip, index or word, and --label",
    )
    add_stack_option(command, names="encoder, decoder")
    add_twin_options(command)
    add_seed_option(command, note=", and folds and the control task")
    add_group_option(command)
    command.add_argument(
        "--method",
        choices=("logistic", "online_code", "ridge"),
        default="logistic",
        help="ridge predicts numbers (default: logistic)",
    )
    command.add_argument(
        "--published",
        dest="protocol",
        action="store_const",
        const="published",
        help="the published protocol: unscaled states, folds that split groups",
    )
    command.add_argument(
        "--folds", type=int, default=5, metavar="N", help="folds of cross-validation (default: 5)"
    )
    command.add_argument(
        "--out",
        metavar="FOLDER",
        help="folder for probes.csv and a figure; a run's page shows them",
    )
    add_executor_options(command.add_argument_group("shards and processes, with --out RUN"))
    add_alignment_options(command)
    add_loading_options(command)


def _probe(options: argparse.Namespace) -> int:
    skipped: SkippedItems = []
    probes = _train_probes(options, skipped)
    if probes is None:
        print(
            f"shard {options.shard} is finished; `speechmix status {options.out}` lists the others"
        )
        return 0
    print(_format_probes(probes))
    print_skipped(skipped)
    for row in probes.left_out.value_counts("reason").reset_index().itertuples(index=False):
        print(f"skipped ({row.count}): {row.reason}")
    if options.out and len(probes.to_dataframe()):
        print(f"table: {probes.write(options.out)}")
        _write_figures(probes, Path(options.out))
    return 0 if len(probes.to_dataframe()) else 1


def _train_probes(options: argparse.Namespace, skipped: SkippedItems) -> Probes | None:
    """Return the probes, or None while other shards are not finished."""
    from .probe import probe
    from .probe_runs import probe_in_run

    in_run = bool(options.out) and is_run(options.out)
    if not in_run:
        refuse_executor_options(
            options, "give the folder of a run as --out, or use `speechmix score --probe --shard`"
        )
    of_units = {"level": options.level, "table": _read_values(options.table)}
    if in_run and (options.level or options.table):
        raise InputError("--level and --table take --out of a new folder, not of a run")
    positions = [int(name) if name.isdigit() else name for name in options.position or ["target"]]
    loaders = create_loaders(options, options.model, list_twin_seeds(options))
    task = {"label": options.label, "stacks": options.stack, "protocol": options.protocol}
    task |= {"group": options.group}
    settings = {"method": options.method, "folds": options.folds, "seed": options.seed or 0}
    if in_run:
        return probe_in_run(
            loaders,
            collect_clips(options, skipped),
            options.out,
            positions=positions,
            executor=choose_executor(options, options.model),
            settings={**settings, "controls": 3},
            aligner=create_aligner_loader(options),
            align_method=options.align,
            skipped=skipped,
            progress=sys.stderr.isatty(),
            **task,
        )
    clips = collect_aligned_clips(options, skipped)
    progress = sys.stderr.isatty()
    task |= {"position": positions} if options.position else {}
    return probe(loaders, clips, progress=progress, **of_units, **task, **settings)


def _read_values(path: str | None) -> pd.DataFrame | None:
    """Read a table of values of units."""
    if path is None:
        return None
    import pandas as pd

    if path.endswith(".parquet"):
        return read_parquet(path)
    rows = dict(read_table(path))
    for row, cells in rows.items():
        if isinstance(cells, Exception):
            raise InputError(f"{path}, row {row}: {cells}")
    return pd.DataFrame(list(rows.values()))


def _write_figures(probes: Probes, folder: Path) -> None:
    """Write a figure for each group of clips."""
    from ...reporting.plots.figure_style import write_figure
    from .probe_curves import probe_figure

    values = ("accuracy", "compression", "r2")
    value = next(name for name in values if name in probes.to_dataframe())
    parts = distinct_file_names(probes.to_dataframe()["part"])
    for part, table in probes.to_dataframe().groupby("part", sort=False):
        stem = f"probes_{table['label'].iloc[0]}"
        name = safe_name(stem if part == "all" else f"{stem}_{parts[str(part)]}")
        write_figure(probe_figure(table, value=value), folder / f"{name}.png", dpi=150)
        print(f"figure: {folder / name}.png")


def _format_probes(probes: Probes) -> str:
    """Format the table, a line for each layer and the mean of twins; then the conclusions."""
    from ...reporting.plots.figure_style import model_name
    from .conclusions import describe_conclusions, draw_conclusions

    table = probes.to_dataframe().drop(columns=["label", "method", "depth", "seed"])
    if table.empty:
        return "no clip could be probed"
    keys = ["model", "init", "part", "stack", "position", "layer"]
    table = table.groupby(keys, sort=False).mean().reset_index()
    table["model"] = table["model"].map(model_name)
    table = table.astype(
        {name: int for name in ("n", "groups") if name in table and table[name].mod(1).eq(0).all()}
    )
    columns = table.drop(columns=[name for name in ("part",) if table[name].nunique() == 1])
    text = columns.to_string(index=False, na_rep="", float_format="{:.2f}".format)
    grouping = str(probes.provenance["grouping"])
    if "bits" in probes.answers:
        return f"{text}\n\n{grouping}"
    claims = draw_conclusions(probes.to_dataframe(), probes.answers)
    names = {name: model_name(name) for name in claims["model"].unique()}
    return "\n".join([text, "", *describe_conclusions(claims, names), grouping])

"""`speechmix study mine`, `align`, `transcribe`, `select`: the stages of the French study, one by one."""

from __future__ import annotations

import argparse
import gc
import sys
from functools import partial
from pathlib import Path

from ...errors import InputError
from .clip_options import add_aligner_options, add_outside_option, load_aligner
from .command_parser import Subparsers, select_arguments
from .french_study import add_mining_options, add_selection_options, collect_selection_arguments
from .model_options import add_model_option
from .score_options import add_shard_option, parse_shard

_EXAMPLES = """all stages:
  speechmix study mine cv-corpus-21.0-2025-03-14/fr --split test --out study
  speechmix study align study --aligner ctc:jonatasgrosman/wav2vec2-large-xlsr-53-french
  speechmix study transcribe study --model openai/whisper-small
  speechmix study select study --balance number
A stopped stage continues when the command is given again. `speechmix status study` lists missing shards.
"""


def add_commands(commands: Subparsers) -> None:
    """Add the four commands to a parser's subcommands."""
    mine = commands.add_parser(
        "study mine", help="find homophone pairs in a corpus", epilog=_EXAMPLES
    )
    mine.set_defaults(command=_mine)
    mine.add_argument(
        "corpus",
        metavar="CORPUS",
        help="release folder, .tsv, manifest, data set (folder or hub id), tars of WebDataset, "
        "folder of Lhotse Shar",
    )
    mine.add_argument("--out", required=True, metavar="STUDY", help="folder of the study")
    add_mining_options(mine)
    mine.add_argument("--language", default="fr", help="language of the corpus (default: fr)")
    mine.add_argument("--seed", type=int, default=0, help="seed of --sample (default: 0)")
    add_outside_option(mine)

    align = commands.add_parser(
        "study align",
        help="align the words of the mined sentences; write TextGrids",
        epilog=_EXAMPLES,
    )
    align.set_defaults(command=_align)
    align.add_argument("study", metavar="STUDY", help="folder of the study")
    align.add_argument("--corpus", help="align this whole corpus, not the mined sentences")
    add_aligner_options(align)
    align.add_argument(
        "--textgrids", metavar="FOLDER", help="use TextGrids of the Montreal Forced Aligner"
    )
    align.add_argument(
        "--adapt",
        action=argparse.BooleanOptionalAction,
        help="align again with the speakers' own sounds, at twice the cost (default: by synthesis "
        "in one process, if there are enough clips)",
    )
    align.add_argument(
        "--compare",
        action="append",
        metavar="METHOD[=MODEL]",
        help="only compare aligners on a sample: synthesis, ctc=MODEL, whisper=MODEL, "
        "textgrid=FOLDER; may be repeated",
    )
    align.add_argument(
        "--clip-count",
        type=int,
        default=20,
        metavar="N",
        help="clips in the sample of --compare (default: 20)",
    )

    transcribe = commands.add_parser(
        "study transcribe", help="transcribe the aligned sentences with models", epilog=_EXAMPLES
    )
    transcribe.set_defaults(command=_transcribe)
    transcribe.add_argument("study", metavar="STUDY", help="folder of the study")
    add_model_option(transcribe)

    select = commands.add_parser(
        "study select",
        help="select the pairs that all models spell right; write the data set",
        epilog=_EXAMPLES,
    )
    select.set_defaults(command=_select)
    select.add_argument("study", metavar="STUDY", help="folder of the study")
    select.add_argument(
        "--model",
        action="append",
        help="check only this model, named as in transcripts/; may be repeated",
    )
    add_selection_options(select)
    select.add_argument(
        "--seed", type=int, help="seed of the selection (default: 0; with --draw the published 42)"
    )
    for command in (mine, align, transcribe):
        command.add_argument(
            "--overwrite", action="store_true", help="replace the results of other options"
        )
        add_shard_option(command)
    for command in (align, transcribe):
        command.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cuda if available)")


def _mine(options: argparse.Namespace) -> int:
    from ...runs.journal.stage_lines import summarize_stage_output
    from ...studies.french.stages import mine_corpus

    # Mining makes hardly any cycles; with a lexicon of a million objects, the default threshold would
    # cost a tenth of the time.
    default_threshold = gc.get_threshold()
    gc.set_threshold(200_000, 50, 50)
    try:
        path = mine_corpus(
            options.corpus,
            templates=options.template or ("french",),
            progress=sys.stderr.isatty(),
            **{**select_arguments(mine_corpus, options), "shard": parse_shard(options)},
        )
        print(summarize_stage_output(path))
    finally:
        gc.set_threshold(*default_threshold)
    return 0


def _align(options: argparse.Namespace) -> int:
    from ...runs.journal.stage_lines import summarize_stage_output
    from ...studies.french.speaker_adaptation import align_study

    if options.compare:
        return _compare_aligners(options)
    notes: list[str] = []
    path = align_study(
        options.study,
        source=options.corpus,
        adapt=options.adapt,
        method=options.align,
        model=load_aligner(options),
        textgrids=options.textgrids,
        shard=parse_shard(options),
        overwrite=options.overwrite,
        progress=sys.stderr.isatty(),
        log=notes.append,
    )
    print(summarize_stage_output(path))
    for note in notes:
        print(note)
    return 0


def _compare_aligners(options: argparse.Namespace) -> int:
    from ...adapters.loading.load import load
    from ...alignment import METHODS
    from ...alignment.comparison import summarize_aligners
    from ...studies.french.sentence_alignment import compare_on_sample

    aligners = {}
    for name in options.compare:
        method, _, source = name.partition("=")
        if method not in (*METHODS, "textgrid"):
            raise InputError(
                f"--compare takes METHOD or METHOD=MODEL with {', '.join(METHODS)}, textgrid; "
                f"found {name!r}"
            )
        model = (
            source
            if method == "textgrid"
            else load(source, device=options.device)
            if source
            else None
        )
        aligners[name] = (method, model)
    table = compare_on_sample(options.study, aligners, clips=options.clip_count)
    print(summarize_aligners(table).to_string(index=False))
    print(f"table of words: {Path(options.study) / 'aligners.csv'}")
    return 0


def _transcribe(options: argparse.Namespace) -> int:
    from ...adapters.loading.load import load
    from ...runs.journal.stage_lines import summarize_stage_output
    from ...studies.french.stages import transcribe_corpus

    loaders = [partial(load, source, device=options.device) for source in options.model]
    paths = transcribe_corpus(
        options.study,
        loaders,
        shard=parse_shard(options),
        overwrite=options.overwrite,
        progress=sys.stderr.isatty(),
    )
    for path in paths:
        print(summarize_stage_output(path))
    return 0


def _select(options: argparse.Namespace) -> int:
    from ...studies.french.selection import select_examples
    from ...studies.french.stage_counts import format_stage_counts

    folder = select_examples(
        options.study, models=options.model, **collect_selection_arguments(options)
    )
    print(format_stage_counts(folder))
    print(f"\ndata set: {folder}")
    return 0

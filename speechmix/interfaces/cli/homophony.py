"""`speechmix mine`, `align`, `transcribe`, `select`: the stages of the French study on the command
line.

In: the parser's subcommands, to which each command is added. Each command is one call of the
library.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

from ...errors import InputError
from ...files.json_files import JsonObject
from .arguments import Subparsers, named_options
from .executor_options import add_shard_option, shard_of
from .homophony_options import add_mining_options, add_selection_options, selection_of

_EXAMPLES = """the whole pipeline:
  speechmix mine cv-corpus-21.0-2025-03-14/fr --split test --out study
  speechmix align study --method ctc --aligner jonatasgrosman/wav2vec2-large-xlsr-53-french
  speechmix transcribe study --model openai/whisper-small --model jonatasgrosman/wav2vec2-large-xlsr-53-french
  speechmix select study --balance number
A stage that was stopped goes on where it was when the same command is given again. With --shard 1/48, ... 48/48 a stage is done
by many processes at once, on several machines; `speechmix status study` says what is missing.
"""


def add_commands(commands: Subparsers) -> None:
    """Add the four commands to a parser's subcommands."""
    style: JsonObject = {
        "epilog": _EXAMPLES,
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }
    mine = commands.add_parser("mine", help="find homophone pairs in a corpus", **style)
    mine.set_defaults(command=_mine)
    mine.add_argument(
        "corpus",
        help="release folder, .tsv, manifest, set of datasets (folder or hub id), tars of "
        "WebDataset, folder of Lhotse Shar",
    )
    mine.add_argument("--out", required=True, metavar="STUDY", help="study folder")
    add_mining_options(mine)
    mine.add_argument("--language", default="fr", help="language spoken (default: fr)")
    mine.add_argument("--seed", type=int, default=0, help="of --sample (default: 0)")
    mine.add_argument(
        "--allow-outside", action="store_true", help="let a manifest name files outside its folder"
    )

    align = commands.add_parser(
        "align", help="place the words of the mined sentences; write TextGrids", **style
    )
    align.set_defaults(command=_align)
    align.add_argument("study", help="study folder")
    align.add_argument(
        "--corpus", help="align this corpus as it is, instead of the mined sentences"
    )
    align.add_argument("--method", choices=("auto", "ctc", "whisper", "synthesis"), default="auto")
    align.add_argument(
        "--aligner",
        metavar="MODEL",
        help="CTC or Whisper model that aligns (default: by synthesis)",
    )
    align.add_argument(
        "--textgrids",
        metavar="FOLDER",
        help="use these TextGrids (output of the Montreal Forced Aligner)",
    )
    align.add_argument(
        "--adapt",
        action=argparse.BooleanOptionalAction,
        help="learn the speakers' own sounds from the first alignment and align again, at about "
        "twice the cost (default: by "
        "synthesis in one process, where there are enough clips)",
    )
    align.add_argument(
        "--compare",
        nargs="+",
        metavar="METHOD[=MODEL]",
        help="only compare aligners on a sample: synthesis ctc=MODEL whisper=MODEL textgrid=FOLDER",
    )
    align.add_argument(
        "--clips", type=int, default=20, help="size of the sample to compare on (default: 20)"
    )

    transcribe = commands.add_parser(
        "transcribe", help="let models transcribe the aligned sentences", **style
    )
    transcribe.set_defaults(command=_transcribe)
    transcribe.add_argument("study", help="study folder")
    transcribe.add_argument(
        "--model", action="append", required=True, help="hub id or folder; may be repeated"
    )

    select = commands.add_parser(
        "select", help="keep the pairs that all models spell right; write the data set", **style
    )
    select.set_defaults(command=_select)
    select.add_argument("study", help="study folder")
    select.add_argument(
        "--model", action="append", help="ask only this model, as it is called in transcripts/"
    )
    add_selection_options(select)
    for command in (mine, align, transcribe):
        command.add_argument(
            "--overwrite", action="store_true", help="start the stage afresh with other options"
        )
        add_shard_option(command)
    for command in (align, transcribe):
        command.add_argument(
            "--device", help="cpu, cuda, cuda:1, ... (default: cuda if there is one)"
        )


def _mine(options: argparse.Namespace) -> int:
    from ...runs.journal.stage_lines import counted
    from ...studies.french.stages import mine_corpus

    # The lexicon is a million objects and mining makes hardly any cycles: looking for them as often
    # as by default takes a tenth of the time.
    usual = gc.get_threshold()
    gc.set_threshold(200_000, 50, 50)
    try:
        path = mine_corpus(
            options.corpus,
            templates=options.template or ("french",),
            progress=sys.stderr.isatty(),
            **{**named_options(mine_corpus, options), "shard": shard_of(options)},
        )
        print(counted(path))
    finally:
        gc.set_threshold(*usual)
    return 0


def _align(options: argparse.Namespace) -> int:
    from ...adapters.loading.load import load
    from ...runs.journal.stage_lines import counted
    from ...studies.french.speaker_adaptation import align_study

    if options.compare:
        return _compare(options)
    notes: list[str] = []
    path = align_study(
        options.study,
        source=options.corpus,
        adapt=options.adapt,
        method=options.method,
        model=load(options.aligner, device=options.device) if options.aligner else None,
        textgrids=options.textgrids,
        shard=shard_of(options),
        overwrite=options.overwrite,
        progress=sys.stderr.isatty(),
        log=notes.append,
    )
    print(counted(path))
    for note in notes:
        print(note)
    return 0


def _compare(options: argparse.Namespace) -> int:
    from ...adapters.loading.load import load
    from ...alignment import METHODS
    from ...alignment.comparison import summarize_aligners
    from ...studies.french.alignments import compare_on_sample

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
    table = compare_on_sample(options.study, aligners, clips=options.clips)
    print(summarize_aligners(table).to_string(index=False))
    print(f"every word: {Path(options.study) / 'aligners.csv'}")
    return 0


def _transcribe(options: argparse.Namespace) -> int:
    from functools import partial

    from ...adapters.loading.load import load
    from ...runs.journal.stage_lines import counted
    from ...studies.french.transcription_stage import transcribe_corpus

    models = [partial(load, source, device=options.device) for source in options.model]
    further = {
        "shard": shard_of(options),
        "overwrite": options.overwrite,
        "progress": sys.stderr.isatty(),
    }
    for path in transcribe_corpus(options.study, models, **further):
        print(counted(path))
    return 0


def _select(options: argparse.Namespace) -> int:
    from ...studies.french.selection import select_examples
    from ...studies.french.stage_counts import format_stage_counts

    folder = select_examples(options.study, models=options.model, **selection_of(options))
    print(format_stage_counts(folder))
    print(f"\ndata set: {folder}")
    return 0

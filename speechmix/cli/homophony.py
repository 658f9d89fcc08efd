"""`speechmix mine`, `align`, `transcribe`, `select`: the stages of the study on the command line; `study` is all of it.

In: the parser's subcommands, to which each command is added. Each command is one call of the library.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

from ..errors import InputError
from .homophony_options import add_mining_options, add_selection_options
from .score_options import add_explain_option
from .status import add_shard_option, add_workers_option, shard_of, worker_count

_EXAMPLES = """the whole pipeline:
  speechmix mine cv-corpus-21.0-2025-03-14/fr --split test --out study
  speechmix align study --method ctc --aligner jonatasgrosman/wav2vec2-large-xlsr-53-french
  speechmix transcribe study --model openai/whisper-small --model jonatasgrosman/wav2vec2-large-xlsr-53-french
  speechmix select study --balance number
A stage that was stopped goes on where it was when the same command is given again. With --shard 1/48, ... 48/48 a stage is done
by many processes at once, on several machines; `speechmix status study` says what is missing.
"""
_STUDY_EXAMPLES = """examples:
  speechmix study                                        # tiny models and synthetic clips of the package
  speechmix study --clips clips.tsv --models openai/whisper-small --out runs/small
  speechmix study --common-voice cv-corpus-21.0-2025-03-14/fr --split test --models openai/whisper-small --out runs/cv
"""
_SEEDS, _TWIN_CLIPS = (
    tuple(range(39)),
    40,
)  # of the untrained twins, as many as a claim takes; clips of all but the first
_DEMO_EXPLAINED = 2  # clips of the package
_MEASURES = ("value_zeroing", "attention", "attention_norm")


def add_commands(commands) -> None:
    """Add the five commands to a parser's subcommands."""
    style = {"epilog": _EXAMPLES, "formatter_class": argparse.RawDescriptionHelpFormatter}
    mine = commands.add_parser("mine", help="find homophone pairs in a corpus", **style)
    mine.set_defaults(command=_mine)
    mine.add_argument(
        "corpus",
        help="release folder, .tsv, manifest, set of datasets (folder or hub id), tars of WebDataset, folder of Lhotse Shar",
    )
    mine.add_argument("--out", required=True, metavar="STUDY", help="study folder")
    add_mining_options(mine)
    mine.add_argument("--language", default="fr", help="language spoken (default: fr)")
    mine.add_argument("--seed", type=int, default=0, help="of --sample (default: 0)")
    mine.add_argument("--allow-outside", action="store_true", help="let a manifest name files outside its folder")

    align = commands.add_parser("align", help="place the words of the mined sentences; write TextGrids", **style)
    align.set_defaults(command=_align)
    align.add_argument("study", help="study folder")
    align.add_argument("--corpus", help="align this corpus as it is, instead of the mined sentences")
    align.add_argument("--method", choices=("auto", "ctc", "whisper", "synthesis"), default="auto")
    align.add_argument("--aligner", metavar="MODEL", help="CTC or Whisper model that aligns (default: by synthesis)")
    align.add_argument(
        "--textgrids", metavar="FOLDER", help="use these TextGrids (output of the Montreal Forced Aligner)"
    )
    align.add_argument(
        "--adapt",
        action=argparse.BooleanOptionalAction,
        help="learn the speakers' own sounds from the first alignment and align again, at about twice the cost (default: by "
        "synthesis in one process, where there are enough clips)",
    )
    align.add_argument(
        "--compare",
        nargs="+",
        metavar="METHOD[=MODEL]",
        help="only compare aligners on a sample: synthesis ctc=MODEL whisper=MODEL textgrid=FOLDER",
    )
    align.add_argument("--clips", type=int, default=20, help="size of the sample to compare on (default: 20)")

    transcribe = commands.add_parser("transcribe", help="let models transcribe the aligned sentences", **style)
    transcribe.set_defaults(command=_transcribe)
    transcribe.add_argument("study", help="study folder")
    transcribe.add_argument("--model", action="append", required=True, help="hub id or folder; may be repeated")

    select = commands.add_parser(
        "select", help="keep the pairs that all models spell right; write the data set", **style
    )
    select.set_defaults(command=_select)
    select.add_argument("study", help="study folder")
    select.add_argument("--model", action="append", help="ask only this model, as it is called in transcripts/")
    add_selection_options(select)
    for command in (mine, align, transcribe):
        command.add_argument("--overwrite", action="store_true", help="start the stage afresh with other options")
        add_shard_option(command)
    for command in (align, transcribe):
        command.add_argument("--device", help="cpu, cuda, cuda:1, ... (default: cuda if there is one)")
    _add_study(commands)


def _add_study(commands) -> None:
    """Add the whole study, from clips or a corpus to the page."""
    study = commands.add_parser(
        "study", help="all of it: clips or a corpus in, one page out",
        description="Score clips with models and their random twins, silence the cue stack by stack, write one page.",
        epilog=_STUDY_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    study.set_defaults(command=_study)
    study.add_argument(
        "--clips", "--manifest", metavar="MANIFEST",
        help="TSV, CSV or JSONL with path, text, cue, target (foil, words, language), or a set that says as much, as tars of "
        "WebDataset (default: the package's own clips)",
    )  # fmt: skip
    study.add_argument(
        "--common-voice", "--corpus", metavar="FOLDER",
        help="make the clips from any corpus that `speechmix mine` takes: a Common Voice release folder, a manifest without "
        "cues, a set of datasets (folder or hub id), tars of WebDataset, a folder of Lhotse Shar",
    )  # fmt: skip
    study.add_argument("--allow-outside", action="store_true", help="let the manifest name files outside its folder")
    models_help = "hub ids or folders, each scored trained and as random twins (default: the package's)"
    study.add_argument("--models", nargs="+", help=models_help)
    seeds_help = f"seeds of the untrained twins, 39 at least for a claim (default: {_SEEDS[0]} to {_SEEDS[-1]})"
    study.add_argument("--seeds", nargs="*", type=int, default=list(_SEEDS), help=seeds_help)
    twin_clips_help = (
        f"clips that random twins after the first hear, evenly chosen (default: {_TWIN_CLIPS}; 0: all of them)"
    )
    study.add_argument("--twin-clips", type=int, default=_TWIN_CLIPS, metavar="N", help=twin_clips_help)
    study.add_argument("--measures", nargs="+", default=list(_MEASURES), help=f"default: {' '.join(_MEASURES)}")
    study.add_argument("--no-probes", action="store_true", help="do not probe states for number (a pass a clip more)")
    study.add_argument("--stacks", nargs="+", help="encoder, decoder, cross (default: all there are)")
    corpus = study.add_argument_group("a corpus (--common-voice)")
    corpus.add_argument("--textgrids", metavar="FOLDER", help="word times by the Montreal Forced Aligner")
    add_mining_options(corpus)
    add_selection_options(corpus)
    study.add_argument("--aligner", help="CTC model that places the words of clips without word times")
    study.add_argument("--language", default="fr", help="language of clips that do not say (default: fr)")
    study.add_argument("--device", help="cpu, cuda, ... (default: cuda if there is one)")
    study.add_argument("--out", default="runs/french_homophony", help="folder of the run; a stopped run goes on there")
    study.add_argument("--overwrite", action="store_true", help="start afresh in a folder that holds another run")
    study.add_argument(
        "--published-ablation", action="store_true",
        help="also take the cue out of the sound and of the decoder's tokens, as published (see speechmix ablate --published)",
    )  # fmt: skip
    study.add_argument(
        "--figures", type=int, default=4, help="clips to draw a figure of, per trained model (default: 4)"
    )
    add_explain_option(study, default=None)
    add_workers_option(study)
    study.add_argument("--verbose", action="store_true", help="print a line a clip")


def _mine(options) -> int:
    from ..homophony.stages import mine_corpus
    from ..stages.stage_lines import counted

    # The lexicon is a million objects and mining makes hardly any cycles: looking for them as often as by default takes a tenth
    # of the time.
    usual = gc.get_threshold()
    gc.set_threshold(200_000, 50, 50)
    try:
        path = mine_corpus(
            options.corpus,
            options.out,
            templates=options.template or ("french",),
            parser=options.parser,
            lexicon=options.lexicon,
            language=options.language,
            split=options.split,
            sample=options.sample,
            seed=options.seed,
            allow_outside=options.allow_outside,
            shard=shard_of(options),
            overwrite=options.overwrite,
            progress=sys.stderr.isatty(),
        )
        print(counted(path))
    finally:
        gc.set_threshold(*usual)
    return 0


def _align(options) -> int:
    from ..adapters import load
    from ..homophony.adapting import align_study
    from ..stages.stage_lines import counted

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
        report=notes.append,
    )
    print(counted(path))
    for note in notes:
        print(note)
    return 0


def _compare(options) -> int:
    from ..adapters import load
    from ..alignment import METHODS
    from ..alignment.comparison import summary
    from ..homophony.alignments import compare_on_sample

    aligners = {}
    for name in options.compare:
        method, _, source = name.partition("=")
        if method not in (*METHODS, "textgrid"):
            raise InputError(
                f"--compare takes METHOD or METHOD=MODEL with {', '.join(METHODS)}, textgrid; found {name!r}"
            )
        model = source if method == "textgrid" else load(source, device=options.device) if source else None
        aligners[name] = (method, model)
    table = compare_on_sample(options.study, aligners, clips=options.clips)
    print(summary(table).to_string(index=False))
    print(f"every word: {Path(options.study) / 'aligners.csv'}")
    return 0


def _transcribe(options) -> int:
    from functools import partial

    from ..adapters import load
    from ..homophony.stages import transcribe_corpus
    from ..stages.stage_lines import counted

    models = [partial(load, source, device=options.device) for source in options.model]
    further = {"shard": shard_of(options), "overwrite": options.overwrite, "progress": sys.stderr.isatty()}
    for path in transcribe_corpus(options.study, models, **further):
        print(counted(path))
    return 0


def _select(options) -> int:
    from ..homophony.counts import summary
    from ..homophony.drawing import parse_draw
    from ..homophony.selection import select_examples

    folder = select_examples(
        options.study,
        models=options.model,
        contrasts=options.contrast,
        balance=options.balance,
        most=options.most,
        draw=parse_draw(options.draw) if options.draw else None,
        seed=options.seed,
        audible_only=options.audible,
        keep_doubtful=options.keep_doubtful,
        one_pair_per_sentence=options.one_pair_per_sentence,
    )
    print(summary(folder))
    print(f"\ndata set: {folder}")
    return 0


def _study(options) -> int:
    from .. import bundled
    from ..homophony.french_study import study

    options.workers = worker_count(options, options.models or [*bundled.models().values()])
    if options.explain is None:
        options.explain = 0 if options.clips or options.common_voice else _DEMO_EXPLAINED
    study(options)
    return 0

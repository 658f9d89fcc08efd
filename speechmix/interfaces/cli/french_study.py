"""`speechmix study`: the whole French study on the command line.

In: the parser's subcommands. Out: the same, with the command, which is one call of `french_study`.
"""

from __future__ import annotations

import argparse

from ...studies.french.study_defaults import MEASURES, SEEDS, TWIN_CLIPS
from .arguments import Subparsers, named_options
from .executor_options import add_workers_option, worker_count
from .homophony_options import add_mining_options, add_selection_options, selection_of
from .score_options import add_explain_option

_EXAMPLES = """examples:
  speechmix study                                        # tiny models and synthetic clips of the package
  speechmix study --clips clips.tsv --models openai/whisper-small --out runs/small
  speechmix study --common-voice cv-corpus-21.0-2025-03-14/fr --split test --models openai/whisper-small --out runs/cv
"""


def add_commands(commands: Subparsers) -> None:
    """Add the whole study, from clips or a corpus to the page."""
    study = commands.add_parser(
        "study",
        help="all of it: clips or a corpus in, one page out",
        description="Score clips with models and their random twins, silence the cue stack by "
        "stack, write one page.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    study.set_defaults(command=_study)
    study.add_argument(
        "--clips",
        "--manifest",
        metavar="MANIFEST",
        help="TSV, CSV or JSONL with path, text, cue, target (foil, words, language), or a set "
        "that says as much, as tars of "
        "WebDataset (default: the package's own clips)",
    )
    study.add_argument(
        "--common-voice",
        "--corpus",
        metavar="FOLDER",
        help="make the clips from any corpus that `speechmix mine` takes: a Common Voice release "
        "folder, a manifest without "
        "cues, a set of datasets (folder or hub id), tars of WebDataset, a folder of Lhotse Shar",
    )
    study.add_argument(
        "--allow-outside",
        action="store_true",
        help="let the manifest name files outside its folder",
    )
    models_help = (
        "hub ids or folders, each scored trained and as random twins (default: the package's)"
    )
    study.add_argument("--models", nargs="+", help=models_help)
    seeds_help = (
        f"seeds of the untrained twins, 39 at least for a claim (default: {SEEDS[0]} to "
        f"{SEEDS[-1]})"
    )
    study.add_argument("--seeds", nargs="*", type=int, default=list(SEEDS), help=seeds_help)
    twin_clips_help = (
        "clips that random twins after the first hear, evenly chosen (default: "
        f"{TWIN_CLIPS}; 0: all of them)"
    )
    study.add_argument(
        "--twin-clips", type=int, default=TWIN_CLIPS, metavar="N", help=twin_clips_help
    )
    study.add_argument(
        "--measures", nargs="+", default=list(MEASURES), help=f"default: {' '.join(MEASURES)}"
    )
    study.add_argument(
        "--no-probes",
        action="store_true",
        help="do not probe states for number (a pass a clip more)",
    )
    study.add_argument(
        "--stacks", nargs="+", help="encoder, decoder, cross (default: all there are)"
    )
    corpus = study.add_argument_group("a corpus (--common-voice)")
    corpus.add_argument(
        "--textgrids", metavar="FOLDER", help="word times by the Montreal Forced Aligner"
    )
    add_mining_options(corpus)
    add_selection_options(corpus)
    study.add_argument(
        "--aligner", help="CTC model that places the words of clips without word times"
    )
    study.add_argument(
        "--language", default="fr", help="language of clips that do not say (default: fr)"
    )
    study.add_argument("--device", help="cpu, cuda, ... (default: cuda if there is one)")
    study.add_argument(
        "--out",
        default="runs/french_homophony",
        help="folder of the run; a stopped run goes on there",
    )
    study.add_argument(
        "--overwrite", action="store_true", help="start afresh in a folder that holds another run"
    )
    study.add_argument(
        "--published-ablation",
        action="store_true",
        help="also take the cue out of the sound and of the decoder's tokens, as published (see "
        "speechmix ablate --published)",
    )
    study.add_argument(
        "--figures",
        type=int,
        default=4,
        help="clips to draw a figure of, per trained model (default: 4)",
    )
    add_explain_option(study, default=None)
    add_workers_option(study)
    study.add_argument("--verbose", action="store_true", help="print a line a clip")


def _study(options: argparse.Namespace) -> int:
    from ...inputs import bundled
    from ...studies.french.french_study import french_study

    mining = {
        "templates": options.template or ("french",),
        "split": options.split,
        "sample": options.sample,
        "seed": options.seed or 0,
        "parser": options.parser,
        "lexicon": options.lexicon,
    }
    asked = named_options(french_study, options)
    asked["workers"] = worker_count(options, options.models or [*bundled.models().values()])
    french_study(
        **asked,
        corpus=options.common_voice,
        mining=mining,
        selection=selection_of(options),
        probes=not options.no_probes,
    )
    return 0

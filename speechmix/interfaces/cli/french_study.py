"""`speechmix study`: run the whole French study; one call of `french_study`.

Add the options of the French study that several commands share: mining and selection.
"""

from __future__ import annotations

import argparse

from ...files.json_files import JsonObject
from ...studies.french.contrasts import CONTRASTS
from ...studies.french.pair_template import BALANCE_COLUMNS
from ...studies.french.study_defaults import MEASURES, SEEDS, TWIN_CLIPS
from .clip_options import add_outside_option
from .command_parser import Subparsers, select_arguments
from .model_options import add_model_option, add_seed_option, add_twin_options, list_twin_seeds
from .score_options import (
    add_explain_option,
    add_group_option,
    add_pool_options,
    add_stack_option,
    add_twin_clips_option,
    choose_executor,
)


def add_mining_options(command: argparse._ActionsContainer) -> None:
    """Add the options that decide which pairs are mined."""
    command.add_argument(
        "--split",
        metavar="NAME",
        help="table of a release, or split of a data set (default: validated)",
    )
    command.add_argument(
        "--sample",
        type=float,
        default=1.0,
        metavar="SHARE",
        help="read only this share of the rows (default: 1)",
    )
    command.add_argument(
        "--template",
        action="append",
        help="french, french_paper, french_control, french_spelling, english, dutch, a template or a "
        ".toml file; may be repeated (default: french)",
    )
    command.add_argument(
        "--parser",
        default="lexicon",
        help="lexicon (default), spacy:MODEL, or a custom MODULE:FUNCTION",
    )


def add_selection_options(command: argparse._ActionsContainer) -> None:
    """Add the options that decide which pairs are selected."""
    command.add_argument(
        "--contrast",
        action="append",
        metavar="KIND",
        help=f"only these pairs: {', '.join(CONTRASTS)}; may be repeated (default: the template's)",
    )
    command.add_argument(
        "--balance",
        action="append",
        default=[],
        metavar="COLUMN",
        help=f"balance {', '.join(BALANCE_COLUMNS)}; may be repeated",
    )
    command.add_argument(
        "--max-examples",
        type=int,
        metavar="N",
        help="at most N examples per template and value",
    )
    command.add_argument(
        "--draw",
        metavar="TEMPLATE=COUNT,...",
        help="number of each template: det_noun=720,pronoun_verb=257,det_noun_verb=23",
    )
    command.add_argument(
        "--audible",
        action="store_true",
        help="only audible cues, as many singular as plural",
    )
    command.add_argument(
        "--one-pair-per-sentence",
        action="store_true",
        help="only sentences with one pair, as in the published evaluation",
    )
    command.add_argument(
        "--keep-doubtful", action="store_true", help="keep clips with doubtful word times"
    )


def collect_selection_arguments(options: argparse.Namespace) -> JsonObject:
    """Return the keyword arguments of `select_examples`."""
    from ...studies.french.sampling import parse_draw

    return {
        "contrasts": options.contrast,
        "balance": options.balance,
        "max_examples": options.max_examples,
        "draw": parse_draw(options.draw) if options.draw else None,
        "seed": options.seed,
        "audible_only": options.audible,
        "keep_doubtful": options.keep_doubtful,
        "one_pair_per_sentence": options.one_pair_per_sentence,
    }


_EXAMPLES = """examples:
  speechmix study                                        # the bundled models and synthetic clips
  speechmix study --clips clips.tsv --model openai/whisper-small --out runs/small
  speechmix study --corpus cv-corpus-21.0-2025-03-14/fr --split test --model openai/whisper-small
"""


def add_commands(commands: Subparsers) -> None:
    """Add the whole study, from clips or a corpus to the page."""
    study = commands.add_parser(
        "study",
        help="run the whole study: clips or a corpus in, one page out",
        description="Score clips with models and their untrained twins, ablate the cue stack by "
        "stack, write one page.",
        epilog=_EXAMPLES,
    )
    study.set_defaults(command=_study)
    study.add_argument(
        "--clips",
        metavar="PATH",
        help="a manifest with path, text, cue, target (foil, words, language), or such clips as "
        "tars of WebDataset (default: the bundled clips)",
    )
    study.add_argument(
        "--corpus",
        help="make the clips from a corpus that `speechmix mine` takes, such as a Common Voice "
        "release folder",
    )
    add_model_option(study, required=False, note=" (default: bundled)")
    add_twin_options(study, default=len(SEEDS), note="; a conclusion needs 5")
    add_seed_option(study, note=", and --sample and the selection")
    add_twin_clips_option(study, default=TWIN_CLIPS)
    add_group_option(study)
    study.add_argument(
        "--measure", action="append", help=f"may be repeated (default: {' '.join(MEASURES)})"
    )
    add_stack_option(study)
    study.add_argument("--no-probes", action="store_true", help="train no probes on hidden states")
    add_outside_option(study)
    corpus = study.add_argument_group("with --corpus")
    corpus.add_argument(
        "--textgrids", metavar="FOLDER", help="use TextGrids of the Montreal Forced Aligner"
    )
    add_mining_options(corpus)
    add_selection_options(corpus)
    study.add_argument("--aligner", metavar="MODEL", help="CTC model that aligns the words")
    study.add_argument(
        "--language", default="fr", help="language of clips without one (default: fr)"
    )
    study.add_argument("--device", help="cpu, cuda, ... (default: cuda if available)")
    study.add_argument(
        "--out",
        metavar="FOLDER",
        default="runs/french_homophony",
        help="folder of the run, where a stopped run continues (default: runs/french_homophony)",
    )
    study.add_argument(
        "--overwrite", action="store_true", help="replace another run in the same folder"
    )
    study.add_argument(
        "--published-ablation",
        action="store_true",
        help="also remove the cue from the audio and the tokens (speechmix ablate --published)",
    )
    study.add_argument(
        "--figures",
        type=int,
        default=4,
        metavar="N",
        help="draw N clips per trained model (default: 4)",
    )
    add_explain_option(study, default=None)
    add_pool_options(study)


def _study(options: argparse.Namespace) -> int:
    from ...inputs import bundled
    from ...studies.french.french_study import french_study

    mining = {
        "templates": options.template or ("french",),
        "split": options.split,
        "sample": options.sample,
        "seed": options.seed or 0,
        "parser": options.parser,
    }
    french_study(
        **select_arguments(french_study, options),
        executor=choose_executor(options, options.model or [*bundled.models().values()]),
        models=options.model,
        seeds=list(list_twin_seeds(options)),
        measures=options.measure or list(MEASURES),
        stacks=options.stack,
        mining=mining,
        selection=collect_selection_arguments(options),
        probes=not options.no_probes,
    )
    return 0

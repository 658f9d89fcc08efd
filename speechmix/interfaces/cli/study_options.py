"""Add the options of the French study that several commands share: mining and selection."""

from __future__ import annotations

import argparse

from ...files.json_files import JsonObject
from ...studies.french.contrasts import CONTRASTS
from ...studies.french.pair_template import BALANCE_COLUMNS


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
    command.add_argument(
        "--lexicon", metavar="FILE", help="a custom lexicon (.tsv; default: Lexique)"
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

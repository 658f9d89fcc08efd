"""Options of the study that several commands have: what is mined, what is selected.

In: a parser of one command. Out: the same, with the options.
"""

from __future__ import annotations

import argparse

from ...files.json_files import JsonObject
from ...studies.french.contrasts import CONTRASTS
from ...studies.french.template_tables import BALANCE_COLUMNS


def add_mining_options(command: argparse._ActionsContainer) -> None:
    """Add what decides which pairs are mined."""
    command.add_argument(
        "--split", help="table of a release or split of a data set (default: validated)"
    )
    command.add_argument(
        "--sample", type=float, default=1.0, help="read only this share of the rows (default: 1)"
    )
    command.add_argument(
        "--template",
        action="append",
        help="set (french, french_paper, french_control, french_spelling, english, dutch), "
        "template or .toml; may be repeated "
        "(default: french)",
    )
    command.add_argument(
        "--parser",
        default="lexicon",
        help="lexicon (default), spacy:MODEL, or MODULE:FUNCTION of your own",
    )
    command.add_argument("--lexicon", help="a lexicon of your own (.tsv; default: Lexique)")


def add_selection_options(command: argparse._ActionsContainer) -> None:
    """Add what decides which pairs become examples."""
    command.add_argument(
        "--contrast",
        nargs="+",
        metavar="KIND",
        help=f"only pairs of these: {', '.join(CONTRASTS)} (default: as the template says)",
    )
    command.add_argument(
        "--balance", nargs="+", default=[], metavar="COLUMN", help=", ".join(BALANCE_COLUMNS)
    )
    command.add_argument(
        "--max-examples", type=int, metavar="COUNT", help="examples per template and value, at most"
    )
    command.add_argument(
        "--draw",
        metavar="TEMPLATE=COUNT,...",
        help="so many of each template: det_noun=720,pronoun_verb=257,det_noun_verb=23",
    )
    command.add_argument(
        "--seed",
        type=int,
        help="of the sample and of what is drawn (default: 0; of --draw the published 42)",
    )
    command.add_argument(
        "--audible",
        action="store_true",
        help="only cues that can be told by ear, as many of each number",
    )
    command.add_argument(
        "--one-pair-per-sentence",
        action="store_true",
        help="only pairs that are alone in their sentence, as the published evaluation",
    )
    command.add_argument(
        "--keep-doubtful", action="store_true", help="keep clips whose word times are doubtful"
    )


def selection_of(options: argparse.Namespace) -> JsonObject:
    """Keyword arguments of `select_examples`."""
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

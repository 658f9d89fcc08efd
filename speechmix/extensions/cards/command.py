"""`speechmix card` and `speechmix gallery`: model cards of runs, and a page that compares cards."""

from __future__ import annotations

import argparse

from ...interfaces.cli.command_parser import Subparsers
from ...interfaces.cli.score_options import add_group_option

_EXAMPLES = """examples:
  speechmix card runs/small --out cards
  speechmix gallery cards
"""


def add_commands(commands: Subparsers) -> None:
    """Add the two commands to a parser's subcommands."""
    card = commands.add_parser(
        "card",
        help="write model cards: JSON, HTML, and Markdown for a model's hub page",
        epilog=_EXAMPLES,
    )
    card.set_defaults(command=_card)
    card.add_argument("runs", nargs="+", metavar="RUN", help="folders of finished runs")
    card.add_argument(
        "--out", metavar="FOLDER", default="cards", help="folder of the cards (default: cards)"
    )
    add_group_option(card)
    gallery = commands.add_parser(
        "gallery",
        help="write a page that compares the model cards of a folder",
        epilog=_EXAMPLES,
    )
    gallery.set_defaults(command=_gallery)
    gallery.add_argument("folder", metavar="FOLDER", help="folder of cards")
    gallery.add_argument(
        "--out", metavar="FILE", help="file of the page (default: FOLDER/index.html)"
    )


def _card(options: argparse.Namespace) -> int:
    from .card_texts import write_model_cards
    from .model_card import model_cards

    for page in write_model_cards(model_cards(*options.runs, group=options.group), options.out):
        print(f"card: {page}, with the same name .json and .md")
    return 0


def _gallery(options: argparse.Namespace) -> int:
    from .card_texts import write_gallery

    page, reasons = write_gallery(options.folder, out=options.out)
    for reason in reasons:
        print(f"skipped: {reason}")
    print(f"page: {page}")
    return 0

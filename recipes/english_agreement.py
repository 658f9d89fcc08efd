"""The English agreement study: does a measure point at the word that decides the form of another?

In "Most ladies <mask> not left." the noun decides between have and has. With a folder of BLiMP's
agreement paradigms and a text model (masked, or causal) this asks first whether the model does the
task, then of each layer and measure how much of the target's row lies on the cue (dot product) and
how high it ranks there (average precision):

    python recipes/english_agreement.py --blimp blimp/data --model google-bert/bert-base-uncased --items 100 --out runs/bert
    python recipes/english_agreement.py --blimp blimp/data --model google-bert/bert-base-uncased --unified --fine-tune
    python recipes/english_agreement.py --blimp blimp/data --model google-bert/bert-base-uncased --distances

The second trains the model on the choice between the two words with one half of the sentences, and
scores both on the other; the third compares distances of Value Zeroing. Accuracy is printed before
any table; tables are drawn with those of a randomly initialised twin and the published ones. A run
that was stopped goes on where it was: every sentence that is done is a line in
<out>/alignment/<model>.jsonl.
"""

from __future__ import annotations

import argparse
import sys

from speechmix.errors import SpeechmixError
from speechmix.extensions.agreement import blimp
from speechmix.extensions.agreement.agreement_study import agreement_study, published_measures
from speechmix.extensions.agreement.cue_alignment import SUBTOKEN_OPTIONS
from speechmix.extensions.agreement.fine_tuning import FineTuningOptions
from speechmix.mixing.maps.numerics import DISTANCES

_OF_FINE_TUNING = {"training_seed": "seed"} | {
    name: name for name in ("learning_rate", "warm_up", "batch_size", "epochs", "weight_decay")
}


def main(arguments: list[str] | None = None) -> int:
    options = vars(_parser().parse_args(arguments))
    training = {name: options.pop(option) for option, name in _OF_FINE_TUNING.items()}
    if options["distances"] == []:
        options["distances"] = list(DISTANCES)
    try:
        options["fine_tune"] = FineTuningOptions(**training) if options["fine_tune"] else None
        agreement_study(**options)
    except SpeechmixError as error:
        print(f"english_agreement: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    default = published_measures()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    blimp_help = "folder with BLiMP's <paradigm>.jsonl files (github.com/alexwarstadt/blimp, data)"
    add("--blimp", required=True, help=blimp_help)
    add("--model", required=True, help="hub id or folder of a masked or causal text model")
    add("--measures", nargs="+", default=default, help=f"default: {' '.join(default)}")
    add(
        "--distances",
        nargs="*",
        choices=DISTANCES,
        metavar="DISTANCE",
        help="compare Value Zeroing's (default: all)",
    )
    add(
        "--paradigms",
        nargs="+",
        choices=blimp.PARADIGMS,
        metavar="PARADIGM",
        help="default: all that the folder has",
    )
    add(
        "--unified",
        action="store_true",
        help="the published set: five paradigms, subjects balanced in number",
    )
    add(
        "--half",
        choices=("all", "train", "test"),
        help="which sentences are scored (default: all; test with --fine-tune)",
    )
    add("--split-seed", type=int, default=42, help="of the halves and the balance (default: 42)")
    add(
        "--items",
        type=int,
        help="sentences per paradigm, half of them plural (default: all that are usable)",
    )
    add(
        "--draw",
        type=int,
        default=0,
        metavar="SEED",
        help="seed with which sentences are drawn (default: 0)",
    )
    add(
        "--seeds",
        nargs="*",
        type=int,
        default=[0],
        help="seeds of random twins (default: 0; none: --seeds)",
    )
    add(
        "--units",
        choices=("token", "word"),
        default="token",
        help="rows and columns (default: token, as published)",
    )
    add(
        "--without-special",
        action="store_true",
        help="leave [CLS], [SEP], ... out before rows are normalised",
    )
    add(
        "--subtokens",
        choices=SUBTOKEN_OPTIONS,
        default="all",
        help="which sub-tokens of a cue count (published: first)",
    )
    objective_help = "of the target, for gradients (default: logit)"
    add("--objective", choices=("logit", "contrast"), default="logit", help=objective_help)
    add(
        "--cues",
        choices=("construction", "dependency"),
        default="construction",
        help="how cues are found",
    )
    add(
        "--spacy",
        default="en_core_web_sm",
        help="spaCy pipeline, for --cues dependency (extra spacy)",
    )
    add(
        "--fine-tune",
        action="store_true",
        help="train on the choice of two words with one half, score both on the other",
    )
    published = FineTuningOptions()
    for name, kind in (
        ("learning-rate", float),
        ("warm-up", float),
        ("batch-size", int),
        ("epochs", int),
    ):
        value = getattr(published, name.replace("-", "_"))
        add(
            f"--{name}",
            type=kind,
            default=value,
            help=f"of --fine-tune (default: {value}, as published)",
        )
    add(
        "--weight-decay",
        type=float,
        default=published.weight_decay,
        help="of --fine-tune (default: 0; not published)",
    )
    add(
        "--training-seed",
        type=int,
        default=published.seed,
        help="of --fine-tune (default: 42, as published)",
    )
    add("--device", help="cpu, cuda, ... (default: cuda if there is one)")
    add(
        "--out",
        default="runs/english_agreement",
        help="folder of the run; a stopped run goes on there",
    )
    add("--overwrite", action="store_true", help="start afresh in a folder that holds another run")
    return parser


if __name__ == "__main__":
    sys.exit(main())

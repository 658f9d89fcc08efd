"""Which measure ranks the words that a decision needs? All measures of the whole model on trial, in
the bundled models.

    python recipes/measures_on_trial.py --out runs/on_trial                 (the bundled clips)
    python recipes/measures_on_trial.py --out runs/on_trial --pairs 24      (and as many pairs spoken now: extra synthesis)

In: the bundled models, and clips of four words or more: all of it SYNTHETIC and tiny. One row a
measure: rolled out (composed over encoder, cross-attention and decoder), or to the output; of maps
also the last layer's. Judges: sound replaced (mean over four fills), by noise alone, taken from the
pair's other member; tokens blanked. Out: the trials' tables, and one table a model in Markdown:
Spearman with each judge; of the bundled clips in brackets the mean over untrained twins. Bold is
surely better than all three baselines (p < .05, corrected for the rows of that perturbation), italics a
measure that takes words away as the judge. A clip that was judged is kept in the folder: a stopped
recipe goes on. Half an hour of one core, most of it the twins'.

The twins are judged by what *they* lose. What a measure gets there, it owes to what all models of
this shape have in common.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pandas as pd

import speechmix
from speechmix.adapters.model import Model
from speechmix.extensions.faithfulness.faithfulness_runs import faithfulness_of_clips
from speechmix.extensions.faithfulness.leaderboard import BASELINES, ORACLE, ROW_KEYS
from speechmix.extensions.faithfulness.output_scores import has_same_removal
from speechmix.extensions.faithfulness.results import FaithfulnessResults
from speechmix.extensions.faithfulness.word_scores import COMPOSED, TO_THE_OUTPUT
from speechmix.inputs import bundled
from speechmix.inputs.clips.clip import Clip
from speechmix.mixing.maps.measure_registry import measure_facts, measure_names

MAPS = (
    "value_zeroing",
    "value_zeroing_share",
    "attention",
    "entropy_attention",
    "attention_norm",
    "alti",
)
SLOW = ("integrated_gradients", "deeplift")
TO_OUTPUT = [
    name
    for name in measure_names("model", "logit", "removal")
    if measure_facts(name).objective and name not in SLOW
]
JUDGES = ("mute", "mute (noise)", "patch", "blank")
AGGREGATIONS = ("last", "rollout", COMPOSED, TO_THE_OUTPUT)
_FEWEST_WORDS, _SEED, _TWINS = 4, 60_000, 2
Row = tuple[str, str, str]  # stack, measure, aggregation


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    clips = [clip for clip in bundled.clips() if len(clip.words or ()) >= _FEWEST_WORDS]
    spoken = list(drawn(options.pairs)) if options.pairs else []
    for name in options.models:
        source = bundled.models()[name]
        model = speechmix.load(source)
        trained = on_trial(model, clips, options.out / "bundled")
        twins = (speechmix.load(source, init="random", seed=seed) for seed in range(options.twins))
        columns = cells(trained, [on_trial(twin, clips, options.out / "bundled") for twin in twins])
        trials = {"bundled": trained}
        if spoken:
            trials["drawn"] = on_trial(model, spoken, options.out / "drawn")
            columns |= {
                f"{perturbation}, drawn": column
                for perturbation, column in cells(trials["drawn"], []).items()
            }
        print(f"\n{name}\n\n{as_markdown(columns)}\n")
        for where, trial in trials.items():
            print(
                f"{where}: {trial.values['item'].nunique()} clips in "
                f"{trial.values['group'].nunique()} groups"
            )
            for perturbation in trial.perturbations:
                print(f"  {trial.sentence(perturbation=perturbation)}")
            for what, notes in trial.left_out.groupby("what", sort=False)["reason"]:
                print(f"  left out ({what}, {len(notes)} clips), as: {notes.iloc[0]}")
    return 0


def drawn(pairs: int) -> Iterator[Clip]:
    """Clips that are spoken now, of voices never trained on, with nouns trained on."""
    from speechmix.extensions.synthetic_french import synthetic_corpus as synthetic_french

    longer = (
        pair
        for pair in synthetic_french.speak_pairs(
            20 * pairs, seed=_SEED, nouns_of="train", voices_of="test"
        )
        if len(pair[0].words) >= _FEWEST_WORDS and not pair[0].control
    )
    for number, pair in enumerate(islice(longer, pairs)):
        for example in pair:
            yield example.clip().replace(name=f"drawn_{number:03}_{example.number}")


def on_trial(model: Model, clips: Sequence[Clip], out: Path) -> FaithfulnessResults:
    """A model's trial, kept in the folder."""
    trial = faithfulness_of_clips(
        model,
        clips,
        out,
        measures=[*MAPS, *TO_OUTPUT],
        perturbations=JUDGES,
        aggregations=AGGREGATIONS,
        metrics=("spearman", "top_1"),
        progress=sys.stderr.isatty(),
    )
    assert trial is not None  # there is one shard
    return trial


def cells(
    trained: FaithfulnessResults, twins: Sequence[FaithfulnessResults]
) -> dict[str, dict[Row, str]]:
    """Spearman of each way to rank words, by judge; in brackets the mean over the twins."""
    columns = {}
    for perturbation in trained.perturbations:
        board = trained.leaderboard(perturbation=perturbation).set_index(ROW_KEYS)
        of_twins = [
            twin.leaderboard(perturbation=perturbation).set_index(ROW_KEYS)["value"]
            for twin in twins
            if perturbation in twin.perturbations
        ]
        untrained = pd.concat(of_twins, axis=1).mean(axis=1) if of_twins else pd.Series(dtype=float)
        stacks = {stack for stack, *_ in board.index}
        columns[perturbation] = {
            key: _cell(key, row, untrained.get(key), perturbation)
            for key, row in board.iterrows()
            if _is_shown(key, stacks)
        }
    return columns


def _is_shown(key: Row, stacks: set[str]) -> bool:
    """Rows of the whole model and of cross-attention; of an encoder where there is nothing else."""
    stack, measure, _ = key
    if measure == "value_zeroing_share":  # which is value_zeroing in a single stack
        return stack == COMPOSED
    if stack == "cross":
        return measure not in (*BASELINES, ORACLE)
    return COMPOSED not in stacks or stack != "encoder"


def _cell(key: Row, row: pd.Series, untrained: float | None, perturbation: str) -> str:
    """A number as it is shown: bold where it is surely above all baselines, in italics where the
    measure is the judge's own."""
    shown = f"{row['value']:.2f}"
    if key[1] not in (*BASELINES, ORACLE):
        shown = (
            f"**{shown}**"
            if row["better"]
            else f"*{shown}*"
            if has_same_removal(key[1], perturbation)
            else shown
        )
    return shown if untrained is None else f"{shown} ({untrained:.2f})"


def as_markdown(columns: dict[str, dict[Row, str]]) -> str:
    """The first column's best row first."""
    first = next(iter(columns.values()))
    keys = list(dict.fromkeys(key for column in columns.values() for key in column))
    keys.sort(key=lambda key: -float(first.get(key, "-2").split()[0].strip("*")))
    lines = [["", *columns], ["---"] * (1 + len(columns))]
    for stack, measure, way in keys:
        name = f"{measure}, {stack}, {way}" if way else f"*{measure}*, {stack}"
        lines.append(
            [name, *(column.get((stack, measure, way), "") for column in columns.values())]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the tables")
    parser.add_argument(
        "--pairs", type=int, default=0, help="pairs of clips to speak now, as well (default: 0)"
    )
    parser.add_argument(
        "--models", nargs="+", default=list(bundled.models()), choices=list(bundled.models())
    )
    parser.add_argument(
        "--twins", type=int, default=_TWINS, help=f"untrained twins (default: {_TWINS})"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())

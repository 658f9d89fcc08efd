"""Which measure ranks the words that a decision needs? All measures of the whole model on trial, in the bundled models.

    python recipes/measures_on_trial.py --out runs/on_trial                 (the bundled clips)
    python recipes/measures_on_trial.py --out runs/on_trial_drawn --pairs 60    (as many pairs, spoken now: extra synthesis)

In: the bundled models, and clips of four words or more: all of it SYNTHETIC and tiny. One row a measure: rolled out (composed
over encoder, cross-attention and decoder), or to the output; of maps also the last layer's. Judges: sound replaced (mean over
four fills), by noise alone, taken from the pair's other member; tokens blanked. Out: the trial's tables, and one table a model
in Markdown: Spearman with each judge, trained, and the mean over untrained twins in brackets. A clip that was judged is
kept in the folder: a stopped recipe goes on.

The twins are judged by what *they* lose. What a measure gets there, it owes to what all models of this shape have in common.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pandas as pd

import speechmix
from speechmix import bundled
from speechmix.evaluation.faithfulness.leaderboard import BASELINES, ORACLE, ROW
from speechmix.evaluation.faithfulness.to_output import same_removal
from speechmix.evaluation.faithfulness.words import COMPOSED, TO_THE_OUTPUT
from speechmix.experiments.trials import faithfulness_of_clips
from speechmix.inputs.clips import Clip

MAPS = ("value_zeroing", "value_zeroing_share", "attention", "entropy_attention", "attention_norm", "alti")
TO_OUTPUT = ("gradient_input", "chefer", "alti_logit", "decompx", "lrp", "occlusion", "shapley")
JUDGES = ("silence", "silence (noise)", "patch", "blank")
AGGREGATIONS = ("last", "rollout", COMPOSED, TO_THE_OUTPUT)
_FEWEST_WORDS, _SEED, _TWINS = 4, 60_000, 3


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    clips = list(drawn(options.pairs)) if options.pairs else bundled.clips()
    clips = [clip for clip in clips if len(clip.words or ()) >= _FEWEST_WORDS]
    for name in options.models:
        source = bundled.models()[name]
        trained = on_trial(speechmix.load(source), clips, options.out)
        twins = [
            on_trial(speechmix.load(source, init="random", seed=seed), clips, options.out)
            for seed in range(options.twins)
        ]
        table = boards(trained, twins)
        print(f"\n{name}: {trained.values['item'].nunique()} clips in {trained.values['group'].nunique()} groups\n")
        print(as_markdown(table))
        for what, notes in trained.left_out.groupby("what", sort=False)["reason"]:
            print(f"left out ({what}, {len(notes)} clips), as: {notes.iloc[0]}")
    return 0


def drawn(pairs: int) -> Iterator[Clip]:
    """Clips that are spoken now, of voices never trained on, with nouns trained on."""
    from speechmix.corpora import synthetic_french

    longer = (
        pair
        for pair in synthetic_french.pairs(20 * pairs, seed=_SEED, nouns_of="train", voices_of="test")
        if len(pair[0].words) >= _FEWEST_WORDS and not pair[0].control
    )
    for number, pair in enumerate(islice(longer, pairs)):
        for example in pair:
            yield example.clip().replace(name=f"drawn_{number:03}_{example.number}")


def on_trial(model: speechmix.Model, clips: Sequence[Clip], out: Path) -> speechmix.Trial:
    """A model's trial, kept in the folder."""
    trial = faithfulness_of_clips(
        model, clips, out, measures=[*MAPS, *TO_OUTPUT], judges=JUDGES, aggregations=AGGREGATIONS,
        metrics=("spearman", "top_1"), progress=sys.stderr.isatty(),
    )  # fmt: skip
    assert trial is not None  # there is one shard
    return trial


def boards(trained: speechmix.Trial, twins: Sequence[speechmix.Trial]) -> pd.DataFrame:
    """One row for each way to rank words, one column for each judge: Spearman, p, and the mean over the twins."""
    columns = {}
    for judge in trained.judges:
        board = trained.leaderboard(judge=judge).set_index(ROW)
        of_twins = [twin.leaderboard(judge=judge).set_index(ROW)["value"] for twin in twins if judge in twin.judges]
        untrained = pd.concat(of_twins, axis=1).mean(axis=1) if of_twins else pd.Series(dtype=float)
        columns[judge] = {key: _cell(key, row, untrained.get(key), judge) for key, row in board.iterrows()}
    first = trained.leaderboard(judge=trained.judges[0]).set_index(ROW)["value"]
    table = pd.DataFrame(columns).fillna("")
    kept = [key for key in table.index if _is_shown(key, {stack for stack, *_ in table.index})]
    return table.loc[sorted(kept, key=lambda key: -first.get(key, -2.0))]


def _is_shown(key: tuple[str, str, str], stacks: set[str]) -> bool:
    """Rows of the whole model and of cross-attention; of an encoder alone only where there is nothing else."""
    stack, measure, _ = key
    if COMPOSED not in stacks:
        return measure != "value_zeroing_share"  # which is value_zeroing there
    return stack == COMPOSED or (stack == "cross" and measure not in (*BASELINES, ORACLE)) or stack == "decoder"


def _cell(key: tuple[str, str, str], row: pd.Series, untrained: float | None, judge: str) -> str:
    """A number as it is shown: bold where it is surely above all baselines, in italics where the measure is the judge's own."""
    shown = f"{row['value']:.2f}"
    if key[1] not in (*BASELINES, ORACLE):
        shown = f"**{shown}**" if row["better"] else f"*{shown}*" if same_removal(key[1], judge) else shown
    return shown if untrained is None else f"{shown} ({untrained:.2f})"


def as_markdown(table: pd.DataFrame) -> str:
    rows = [[f"{measure}, {stack}, {way}" if way else f"*{measure}*, {stack}" for stack, measure, way in table.index]]
    lines = [["", *table.columns], ["---"] * (1 + table.shape[1])]
    lines += [[name, *cells] for name, cells in zip(rows[0], table.to_numpy().tolist(), strict=True)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the tables; one for each choice of clips")
    parser.add_argument("--pairs", type=int, default=0, help="pairs of clips to speak now (default: the bundled clips)")
    parser.add_argument("--models", nargs="+", default=list(bundled.models()), choices=list(bundled.models()))
    parser.add_argument("--twins", type=int, default=_TWINS, help=f"untrained twins (default: {_TWINS})")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""Pairs of singular and plural cues, such as il and ils.

In: a cue's spelling, or the table of chosen examples. Out: the name of the cue pair; sentences that
say where a difference between the numbers may be one between cue words. A cue without a plural of
its own (on) is a pair by itself.
"""

from __future__ import annotations

import pandas as pd

_CUE_PAIRS = (
    "il ils|elle elles|le la l' les|un une des|du de des|au aux|ce cet cette ces|mon ma mes|ton ta "
    "tes|son sa ses|notre nos|"
    "votre vos|leur leurs|quel quels|quelle quelles|celui ceux|celle celles"
)
_PAIR_BY_FORM: dict[str, str] = {}
for _pair in _CUE_PAIRS.split("|"):
    for _form in _pair.split():
        _PAIR_BY_FORM.setdefault(_form, _pair)  # des: of un, une
_MAX_CUE_SHARE = 2 / 3
_NUMBER_NAMES = {"s": "singulars", "p": "plurals"}


def find_cue_pair(cue_word: str | None) -> str:
    """Return the cue pair of a cue, by its first word; a word of no pair is its own.

    Examples
    --------
    >>> find_cue_pair("Ils"), find_cue_pair("on"), find_cue_pair("L’")
    ('il ils', 'on', "le la l' les")
    """
    form = (cue_word or "").lower().replace("’", "'").split(" ")[0]
    return _PAIR_BY_FORM.get(form, form)


def describe_confounded_numbers(examples: pd.DataFrame) -> list[str]:
    """Say where one cue word makes up over two thirds of a number, its pair under half of the
    other.

    The examples have the columns template, number, cue and count (``examples.csv``). The result has
    a sentence for each template and number; it is empty where no cue word stands for a number.
    """
    sentences = []
    examples = examples.assign(count=examples["count"].astype(int))
    for template, template_examples in examples.groupby("template"):
        for number, name in _NUMBER_NAMES.items():
            number_examples = template_examples[template_examples["number"] == number]
            other_examples = template_examples[
                template_examples["number"].isin(set(_NUMBER_NAMES) - {number})
            ]
            if number_examples.empty or other_examples.empty:
                continue
            share = number_examples.groupby("cue")["count"].sum() / number_examples["count"].sum()
            cue = str(share.idxmax())
            is_same_pair = other_examples["cue"].map(find_cue_pair) == find_cue_pair(cue)
            pair_share = (
                other_examples.loc[is_same_pair, "count"].sum() / other_examples["count"].sum()
            )
            if share[cue] > _MAX_CUE_SHARE and pair_share < 1 / 2:
                sentences.append(
                    f'{template}: {100 * share[cue]:.0f} % of the {name} have the cue "{cue}", and '
                    f"{100 * pair_share:.0f} % of the other number a cue of that pair. "
                    "A difference between the numbers may be one between cue words: "
                    "balance by cue pair (--balance number cue_pair)."
                )
    return sentences

"""Which singular and plural cues belong together (il, ils), and does one cue word stand for a whole
number?

In: a cue's spelling, or the table of chosen examples. Out: the name of the cue pair; sentences that
say where a difference between the numbers may be one between cue words. A cue without a plural of
its own (on) is a pair by itself.
"""

from __future__ import annotations

import pandas as pd

_PAIRS = (
    "il ils|elle elles|le la l' les|un une des|du de des|au aux|ce cet cette ces|mon ma mes|ton ta "
    "tes|son sa ses|notre nos|"
    "votre vos|leur leurs|quel quels|quelle quelles|celui ceux|celle celles"
)
_PAIR_OF: dict[str, str] = {}
for _pair in _PAIRS.split("|"):
    for _form in _pair.split():
        _PAIR_OF.setdefault(_form, _pair)  # des: of un, une
_MOSTLY = 2 / 3
_NUMBERS = {"s": "singulars", "p": "plurals"}


def cue_pair_of(cue_word: str | None) -> str:
    """Return the cue pair of a cue, by its first word; a word of no pair is its own.

    Examples
    --------
    >>> cue_pair_of("Ils"), cue_pair_of("on"), cue_pair_of("L’")
    ('il ils', 'on', "le la l' les")
    """
    form = (cue_word or "").lower().replace("’", "'").split(" ")[0]
    return _PAIR_OF.get(form, form)


def confounded_numbers(examples: pd.DataFrame) -> list[str]:
    """Say where one cue word makes up more than two thirds of a number, and its cue pair less than
    half of the other.

    Parameters
    ----------
    examples : DataFrame
        With the columns template, number, cue and count (``examples.csv``).

    Returns
    -------
    list of str
        A sentence for each template and number; empty where no cue word stands for a number.

    Examples
    --------
    >>> rows = [("pronoun_verb", "s", "on", 9), ("pronoun_verb", "s", "il", 1), ("pronoun_verb", "p", "ils", 10)]
    >>> confounded_numbers(pd.DataFrame(rows, columns=["template", "number", "cue", "count"]))[0][:58]
    'pronoun_verb: 90 % of the singulars have the cue "on", and'
    """
    sentences = []
    examples = examples.assign(count=examples["count"].astype(int))
    for template, of_template in examples.groupby("template"):
        for number, name in _NUMBERS.items():
            of_number = of_template[of_template["number"] == number]
            of_other = of_template[of_template["number"].isin(set(_NUMBERS) - {number})]
            if of_number.empty or of_other.empty:
                continue
            share = of_number.groupby("cue")["count"].sum() / of_number["count"].sum()
            cue = str(share.idxmax())
            in_pair = of_other["cue"].map(cue_pair_of) == cue_pair_of(cue)
            share_of_pair = of_other.loc[in_pair, "count"].sum() / of_other["count"].sum()
            if share[cue] > _MOSTLY and share_of_pair < 1 / 2:
                sentences.append(
                    f'{template}: {100 * share[cue]:.0f} % of the {name} have the cue "{cue}", and '
                    f"{100 * share_of_pair:.0f} % of the other number a cue of that pair. "
                    "A difference between the numbers may be one between cue words: "
                    "balance by cue pair (--balance number cue_pair)."
                )
    return sentences

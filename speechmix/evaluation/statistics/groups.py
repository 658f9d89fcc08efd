"""Which clips belong together, and so are drawn and tested as one.

In: the table of clips. Out: a name of a group for each, the same for clips that share a pair, a
sentence, or the word they ask about (its lemma, where the manifest has one): what is found in one
of them says something about the other. Groups are the connected parts of that relation. Where a
study asks about hardly more than one word, all clips would be one group and no uncertainty could be
stated; then the word, and the sentence after it, tie nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from ...errors import InputError

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ...inputs.sentences.sentence import Sentence

# Columns of a manifest that may hold the lemma, in the order in which they are looked for.
LEMMA_COLUMNS = ("lemma", "target_lemma", "noun")
GROUPING_COLUMNS = (
    "pair",
    "text",
    "target",
    "foil",
    *LEMMA_COLUMNS,
)  # all columns that groups are made of
_MIN_GROUPS = 5  # groups, below which a coarser tie is given up
_MASK_TEXT = "<mask>"  # in a target's place, and no word


def assign_groups(clips: pd.DataFrame) -> tuple[pd.Series, str]:
    """Return a group for each clip, index as in `clips`, and in words what ties clips together (""
    if nothing does).

    Parameters
    ----------
    clips : DataFrame
        Columns clip and text; pair, lemma (or noun) where they are known, else target and foil
        stand for the lemma.

    Examples
    --------
    >>> clips = pd.DataFrame({"clip": list("abc"), "pair": ["one", "one", "two"]})
    >>> groups, ties = assign_groups(clips)
    >>> groups.tolist(), ties
    (['a', 'a', 'c'], 'the pair')
    """
    ties = {
        tie: values
        for tie, values in _list_ties(clips).items()
        if values[values != ""].duplicated().any()
    }
    # From the coarsest to the finest; the pair is what a study was built of, and stays.
    for tie in ("the target word", "the sentence"):
        groups = connect_clips(clips["clip"].astype(str), list(ties.values()))
        if groups.nunique() >= min(_MIN_GROUPS, len(clips)):
            break
        ties.pop(tie, None)
    return connect_clips(clips["clip"].astype(str), list(ties.values())), " or ".join(ties)


def build_item_table(items: Sequence[Clip | Sentence]) -> pd.DataFrame:
    """Build the table of clips or sentences for `assign_groups`, with a unique name (clip) for
    each.

    Examples
    --------
    >>> from speechmix import Sentence
    >>> table = build_item_table([Sentence("the cats sleep", target="cats", meta={"lemma": "cat"})] * 2)
    >>> table["clip"].tolist(), table["target"].tolist(), table["lemma"].tolist()
    (['the cats sleep', 'the cats sleep (2)'], ['cats', 'cats'], ['cat', 'cat'])
    """
    rows, name_counts = [], dict[str, int]()
    for item in items:
        name = str(item.name)
        name_counts[name] = name_counts.get(name, 0) + 1
        label = name if name_counts[name] == 1 else f"{name} ({name_counts[name]})"
        target = item.words[item.target].text if item.words and isinstance(item.target, int) else ""
        cells = {
            "text": item.text,
            "target": "" if target == _MASK_TEXT else target,
            "foil": item.foil,
        }
        rows.append({**dict(item.meta), "clip": label, **cells})
    return pd.DataFrame(rows)


def content_key(item: Clip | Sentence, name: str) -> str:
    """Return what is the same for copies of an item under other names: the hash of its sound, or its
    text; `name` if it has neither."""
    return str(getattr(item, "audio_hash", None) or getattr(item, "text", name))


def assign_item_groups(
    table: pd.DataFrame, items: Sequence[Clip | Sentence], group: str | None
) -> tuple[pd.Series, str]:
    """Return a group for each row of a table of items, and in words what ties items together.

    Parameters
    ----------
    table : DataFrame
        From `build_item_table`.
    items : sequence of Clip or Sentence
        Name the columns in the error.
    group : str, optional
        A column that says which items belong together; by default pair, sentence and target word.

    Raises
    ------
    InputError
        If no item has this column.
    """
    if group is None:
        return assign_groups(table)
    if group not in table:
        raise InputError(
            f"no item has a column {group!r} to group by; columns are "
            f"{', '.join(list_columns(items))}"
        )
    return table[group].fillna("").astype(str), f"the {group}"


def list_columns(items: Sequence[Clip | Sentence]) -> list[str]:
    """List the columns of the items' `meta`, each once."""
    return list(dict.fromkeys(column for item in items for column in item.meta))


def target_words(clips: pd.DataFrame) -> pd.Series:
    """Return the target word of each clip: its lemma, else both its spellings; "" if unknown."""
    ties = _list_ties(clips)
    return (
        ties["the target word"] if "the target word" in ties else pd.Series("", index=clips.index)
    )


def _list_ties(clips: pd.DataFrame) -> dict[str, pd.Series]:
    """List what may tie clips together: for each kind a label, "" if there is none."""
    columns = [name for name in GROUPING_COLUMNS if name in clips]
    column_texts = (
        clips[columns]
        .fillna("")
        .astype(str)
        .apply(lambda column: column.str.strip().str.casefold())
    )
    lemma = next((name for name in LEMMA_COLUMNS if name in column_texts), None)
    ties = {
        tie: column_texts[name]
        for tie, name in (("the pair", "pair"), ("the sentence", "text"))
        if name in column_texts
    }
    if lemma or "target" in column_texts:
        # Without a lemma both spellings of a word, in whichever order they come.
        spellings = [name for name in ("target", "foil") if name in column_texts]
        ties["the target word"] = (
            column_texts[lemma]
            if lemma
            else pd.Series(
                _join_spellings(column_texts[spellings]), index=column_texts.index, dtype=object
            )
        )
    return ties


def _join_spellings(spellings: pd.DataFrame) -> list[str]:
    rows = zip(*(spellings[name] for name in spellings), strict=True)
    return [" ".join(sorted(set(row) - {""})) for row in rows]


def connect_clips(names: pd.Series, ties: Sequence[pd.Series]) -> pd.Series:
    """Return the name of one clip of each connected part, for each clip.

    Parameters
    ----------
    names : Series of str
        Of clips, distinct.
    ties : sequence of Series of str
        Clips with the same label are connected; "" ties nothing.

    Examples
    --------
    >>> pair, text = pd.Series(["one", "one", ""]), pd.Series(["", "b", "b"])
    >>> connect_clips(pd.Series(["x", "y", "z"]), [pair, text]).tolist()
    ['x', 'x', 'x']
    """
    leader = {name: name for name in names}

    def find_leader(name: str) -> str:
        while leader[name] != name:
            leader[name] = name = leader[leader[name]]
        return name

    for labels in ties:
        present_labels = labels[labels != ""]
        label, order = (
            pd.factorize(present_labels, sort=True)[0],
            names[present_labels.index].to_numpy(),
        )
        order_of_labels = label.argsort(kind="stable")
        is_same = label[order_of_labels][1:] == label[order_of_labels][:-1]
        for first_clip, second_clip in zip(
            order[order_of_labels[:-1][is_same]], order[order_of_labels[1:][is_same]], strict=True
        ):
            leader[find_leader(second_clip)] = find_leader(first_clip)
    return names.map(find_leader)

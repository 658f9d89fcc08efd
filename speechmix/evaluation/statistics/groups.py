"""Which clips belong together, and so are drawn and tested as one.

In: the table of clips. Out: a name of a group for each: what is found in one of its clips says
something about the others. `assign_groups` is the one rule of all analyses:

1. A column that the caller names (``--group``).
2. Speakers, where they are known and fewer than the groups of 3. Clips whose cell is empty count as
   one more speaker. A single speaker makes no groups: nothing could be stated, even of this speaker.
3. Clips that share a pair, a sentence, or the word they ask about (its lemma, where the manifest has
   one): the connected parts of that relation. Where a study is about hardly more than one word, all
   clips would be one group and no uncertainty could be stated; then the word, and the sentence
   after it, tie nothing.

Where speakers read the same sentences, the coarser of both are the groups, that with fewer values. An
interval then covers other speakers or other sentences, not both; a sentence says so.

How many groups and speakers a result rests on, and what its intervals do not cover, in a sentence.

In: clips with their groups (`assign_groups`). Out: the sentence of every summary and page.

Pick evenly spaced items from a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pandas as pd

from ...errors import InputError

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ...inputs.sentences.sentence import Sentence


# Columns of a manifest that may name the speaker or the lemma, in the order in which they are looked for.
SPEAKER_COLUMNS = ("speaker", "speaker_id", "client_id")
LEMMA_COLUMNS = ("lemma", "target_lemma", "noun")
# All columns that groups are made of.
GROUPING_COLUMNS = (*SPEAKER_COLUMNS, "pair", "text", "target", "foil", *LEMMA_COLUMNS)
_MIN_GROUPS = 5  # groups, below which a coarser tie is given up
_MASK_TEXT = "<mask>"  # in a target's place, and no word


def assign_groups(clips: pd.DataFrame, group: str | None = None) -> tuple[pd.Series, str]:
    """Return a group for each clip, and in words what ties clips together ("" if nothing does).

    The groups have the index of `clips`, whose columns are clip and text; speaker (or client_id),
    pair, lemma (or noun) where they are known, else target and foil stand for the lemma. A column
    named by `group` replaces these. InputError if it is missing, or two columns may be meant.
    """
    if group is not None:
        return _read_labels(clips[_find_column(clips, group)]), f"the {group}"
    names = clips["clip"].astype(str)
    groups, ties = _connect_shared(clips, names)
    speakers = find_speakers(clips)
    if speakers is not None and 1 < speakers.nunique() < groups.nunique():
        return names.groupby(speakers).transform("first"), "the speaker"
    return groups, ties


def find_speakers(table: pd.DataFrame) -> pd.Series | None:
    """Return the speaker of each row ("" if unknown), named as the first of `SPEAKER_COLUMNS` that
    has values; None if none has."""
    for name in SPEAKER_COLUMNS:
        if name in table and (labels := _read_labels(table[name])).ne("").any():
            return labels
    return None


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
    text; `name` if it has neither, or its sound cannot be read: it is skipped with the reason where it
    is measured."""
    try:
        return str(getattr(item, "audio_hash", None) or getattr(item, "text", name))
    except InputError:
        return name


def assign_item_groups(
    table: pd.DataFrame, items: Sequence[Clip | Sentence], group: str | None
) -> tuple[pd.Series, str]:
    """Return `assign_groups` of a table from `build_item_table`.

    By default items of one speaker, or of one pair, sentence and target word, belong together.
    InputError, which names the columns of the items, if none has the column `group`.
    """
    if group is not None and group not in table:
        raise InputError(
            f"no item has a column {group!r} to group by; columns are "
            f"{', '.join(list_columns(items))}"
        )
    return assign_groups(table, group)


def list_columns(items: Sequence[Clip | Sentence]) -> list[str]:
    """List the columns of the items' `meta`, each once."""
    return list(dict.fromkeys(column for item in items for column in item.meta))


def target_words(clips: pd.DataFrame) -> pd.Series:
    """Return the target word of each clip: its lemma, else both its spellings; "" if unknown."""
    ties = list_ties(clips)
    return (
        ties["the target word"] if "the target word" in ties else pd.Series("", index=clips.index)
    )


def _connect_shared(clips: pd.DataFrame, names: pd.Series) -> tuple[pd.Series, str]:
    """Connect clips that share a pair, a sentence or a word; return groups and what ties them."""
    ties = {
        tie: values
        for tie, values in list_ties(clips).items()
        if values[values != ""].duplicated().any()
    }
    # From the coarsest to the finest; the pair is what a study was built of, and stays.
    for tie in ("the target word", "the sentence"):
        groups = connect_clips(names, list(ties.values()))
        if groups.nunique() >= min(_MIN_GROUPS, len(clips)):
            break
        ties.pop(tie, None)
    return connect_clips(names, list(ties.values())), " or ".join(ties)


def _find_column(clips: pd.DataFrame, name: str) -> str:
    """Find the column of a clip table that has this name in the manifest."""
    manifest_name = f"manifest_{name}"
    if name in clips and manifest_name in clips:
        raise InputError(
            f"{name!r} is a column of the run and one of the manifest: for the manifest's say "
            f"{manifest_name!r}"
        )
    if name not in clips and manifest_name not in clips:
        raise InputError(
            f"no column {name!r} in the table of clips; it has {', '.join(map(str, clips.columns))}"
        )
    return name if name in clips else manifest_name


def _read_labels(column: pd.Series) -> pd.Series:
    """Return the cells of a column as text, "" where there is none."""
    return column.astype(object).fillna("").astype(str).str.strip()


def list_ties(clips: pd.DataFrame) -> dict[str, pd.Series]:
    """List what may tie clips together: for each kind a label, "" if there is none."""
    columns = [name for name in GROUPING_COLUMNS if name in clips]
    column_texts = clips[columns].apply(lambda column: _read_labels(column).str.casefold())
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
    """Return the name of the first clip of each connected part, for each clip.

    Clips with the same label in one of the `ties` are connected; "" ties nothing. Names are
    distinct.

    Examples
    --------
    >>> pair, text = pd.Series(["one", "one", ""]), pd.Series(["", "b", "b"])
    >>> connect_clips(pd.Series(["x", "y", "z"]), [pair, text]).tolist()
    ['x', 'x', 'x']
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    # Nodes are the clips, then the labels of each tie; an edge joins a clip and its label.
    clip_nodes, label_nodes, node_count = [], [], len(names)
    for labels in ties:
        codes, distinct_labels = pd.factorize(labels.to_numpy(dtype=object))
        is_label = (labels != "").to_numpy()
        clip_nodes.append(np.flatnonzero(is_label))
        label_nodes.append(node_count + codes[is_label])
        node_count += len(distinct_labels)
    edges = tuple(np.concatenate([*nodes, []]).astype(int) for nodes in (clip_nodes, label_nodes))
    graph = coo_array((np.ones(len(edges[0]), dtype=bool), edges), (node_count, node_count))
    parts = connected_components(graph, directed=False)[1][: len(names)]
    return names.groupby(parts).transform("first")


def describe_groups(
    clips: pd.DataFrame, ties: str, *, names: Iterable[str] | None = None, noun: str = "clip"
) -> str:
    """Say in a sentence how many groups and speakers there are, and what intervals do not cover.

    Clips and ties are those of `assign_groups`, with its groups in the column group. `names` are
    the clips that were used, by default all.
    """
    if names is not None:
        clips = clips[clips["clip"].astype(str).isin([str(name) for name in names])]
    count, speakers = len(clips), find_speakers(clips)
    text = _format_count(count, noun)
    if ties:
        same = ties.replace("the ", "same ")
        text += f" in {_format_count(clips['group'].nunique(), 'group')} ({same})"
    elif count > 1:
        text += ", each a group"
    if speakers is None:
        text += ", speakers unknown"
    else:
        text += f", {_format_count(speakers[speakers != ''].nunique(), 'speaker')}"
        if unknown := int((speakers == "").sum()):
            text += f" and {_format_count(unknown, noun)} without one (counted as one speaker)"
    limits = _list_limits(clips, speakers)
    return f"{text}: no statement about other {' or '.join(limits)}." if limits else f"{text}."


def describe_item_groups(
    items: Sequence[Clip | Sentence],
    group: str | None = None,
    *,
    names: Iterable[str] | None = None,
    noun: str = "clip",
) -> str:
    """Say of clips or sentences what `describe_groups` says; arguments as there and for
    `assign_item_groups`."""
    table = build_item_table(items)
    groups, ties = assign_item_groups(table, items, group)
    return describe_groups(table.assign(group=groups), ties, names=names, noun=noun)


def list_missing_speakers(table: pd.DataFrame, columns: Sequence[str], formula: str) -> list[str]:
    """Say that a model of a table leaves speakers out, who are neither a column of its groups nor a
    term of its formula; nothing if they are."""
    speakers = find_speakers(table)
    if speakers is None or speakers.name in columns or str(speakers.name) in formula:
        return []
    count = speakers.nunique()
    if count == 1:
        return ["1 speaker: no statement about other speakers"]
    if count >= max(table[name].nunique() for name in columns):
        return []
    return [
        f"clips of one {speakers.name} are not independent, and the groups leave these {count} out: "
        f"give groups={[*columns, speakers.name]}"
    ]


def _list_limits(clips: pd.DataFrame, speakers: pd.Series | None) -> list[str]:
    """List of what there are others that the intervals do not cover: there is one value, or most
    clips have a value that is in several groups."""
    factors = {"speakers": speakers} if speakers is not None else {}
    if clips["group"].nunique() > 1:
        factors |= {f"{tie.removeprefix('the ')}s": x for tie, x in list_ties(clips).items()}
    limits = []
    for name, labels in factors.items():
        present = labels[labels != ""]
        group_counts = clips["group"][present.index].groupby(present).transform("nunique")
        shared_count = len(present) if present.nunique() == 1 else int((group_counts > 1).sum())
        if 2 * shared_count > len(clips):
            limits.append(name)
    return limits


def _format_count(count: int, noun: str) -> str:
    plural = "continua" if noun == "continuum" else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


Value = TypeVar("Value")


def choose_evenly(values: Sequence[Value], count: int) -> list[Value]:
    """Choose up to `count` of the values, as evenly as can be, always the first and the last.

    Examples
    --------
    >>> choose_evenly(range(24), 5)
    [0, 6, 12, 17, 23]
    """
    if len(values) <= count:
        return list(values)
    return [values[int(i + 0.5)] for i in np.linspace(0, len(values) - 1, count)]

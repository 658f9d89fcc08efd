"""Which sentences of BLiMP a model is scored on, and which it is fine-tuned on.

In: a folder of paradigms, a model with its tokenizer, options. Out: `SelectedItems`.

Which items are scored: those whose words are one token each, as many as are asked for.

The published text study's set of BLiMP items, and its halves for training and test.

In: items of `read_blimp` that a model can be asked about. Out: the *unified set* of Mohebbi et al.
2023 (Quantifying Context Mixing in Transformers, EACL): five paradigms, with as many singular as
plural subjects in the paradigm that has twice as many of one; and two halves.

The published code draws the balance with replacement and splits without a seed, so that copies of
an item can be in both halves. Here both are drawn without replacement and from a seed, and no
sentence is in both halves: not the acceptable one, not the unacceptable one, not the one with the
mask. Words do occur in both, as they did there.

Read a design of assimilation and speak it: does the next word license the changed sound?

In: a table of items, such as *vache* [vaʃ], which becomes [vaʒ] before *brille* (voiced: viable) and
not before *tombe* (unviable). Out: four synthetic clips per item and voice, form (kept, changed) by
context (viable, unviable), with words and phones. Target is the word that changes, cue the word
behind it, foil the changed spelling. The design is that of Darcy et al. 2009 (Phonology and Phonetics 14: Variation and
gradience in phonetics and phonology) without carrier sentences.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ...adapters.transformers_types import Tokenizer
from ...alignment.espeak import speak
from ...alignment.phones import spoken_phones
from ...errors import InputError
from ...files.user_tables import RowError, read_table
from ...inputs.clips.clip import Clip
from ...inputs.clips.corpus_row import RejectedRow
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.timed_words import Word
from ...inputs.words.unit_tiers import PHONE, unit_owners
from .blimp import PUBLISHED, BlimpItem, load_spacy_pipeline, read_blimp
from .item_scoring import studied_stack

if TYPE_CHECKING:
    from ...adapters.model import Model


def select_one_token_items(
    items: Iterable[BlimpItem], tokenizer: Tokenizer
) -> tuple[list[BlimpItem], list[RejectedRow]]:
    """Keep the items whose target and foil are one token each, so that one mask or one logit stands
    for either.

    A form is one token if the sentence up to it is exactly one token longer than the sentence
    before it, and that token is not the unknown one. So word starts that depend on the space before
    them are judged as they will be read.

    Parameters
    ----------
    items : iterable of BlimpItem
    tokenizer : transformers tokenizer

    Returns
    -------
    usable_items : list of BlimpItem
    rejected : list of RejectedRow
    """
    usable_items, rejected = [], []
    for item in items:
        word = Sentence(item.text).words[item.target]
        prefix = item.text[: word.start].rstrip()
        counts = {
            form: _count_added_tokens(tokenizer, prefix, form) for form in (word.text, item.foil)
        }
        multi_token_forms = [form for form, count in counts.items() if count != 1]
        if not multi_token_forms:
            usable_items.append(item)
            continue
        description = ", ".join(
            f"{form!r} is {f'{token_count} tokens' if (token_count := counts[form]) else 'unknown'}"
            for form in multi_token_forms
        )
        role = (
            "target and foil are"
            if len(multi_token_forms) == 2
            else "target is"
            if multi_token_forms == [word.text]
            else "foil is"
        )
        rejected.append(
            RejectedRow(
                item.name, f"{role} not one token", f"{description} for {type(tokenizer).__name__}"
            )
        )
    return usable_items, rejected


def draw_items(
    items: Iterable[BlimpItem], max_items: int | None = None, *, seed: int = 0
) -> list[BlimpItem]:
    """Draw up to `max_items` items of each paradigm, as many singular as plural ones as far as there
    are.

    Without replacement (the published code drew with it, so that copies of an item could be drawn),
    in the order of `items`, and the same for the same seed. Everything if `max_items` is None.
    """
    items = list(items)
    if max_items is None:
        return items
    if max_items < 1:
        raise InputError(f"expected at least one item per paradigm to draw, found {max_items}")
    drawn_names: set[str] = set()
    for paradigm in dict.fromkeys(item.paradigm for item in items):
        generator = random.Random(f"{seed} {paradigm}")
        paradigm_items = [item for item in items if item.paradigm == paradigm]
        names_by_number = [
            [item.name for item in paradigm_items if (item.number == "plural") is is_plural]
            for is_plural in (False, True)
        ]
        names_by_number = [
            generator.sample(names, len(names)) for names in sorted(names_by_number, key=len)
        ]
        smaller_draw = names_by_number[0][: max_items // 2]
        drawn_names.update(smaller_draw + names_by_number[1][: max_items - len(smaller_draw)])
    return [item for item in items if item.name in drawn_names]


def _count_added_tokens(tokenizer: Tokenizer, prefix: str, form: str) -> int:
    """How many tokens the form adds to the text before it; 0 if it is unknown to the tokenizer."""
    ids, extended_ids = (
        tokenizer(text, add_special_tokens=False)["input_ids"]
        for text in (prefix, f"{prefix} {form}".strip())
    )
    if extended_ids[: len(ids)] != ids:  # merged across the space: not a token of its own
        return 2
    added_ids = extended_ids[len(ids) :]
    return (
        0
        if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in added_ids
        else len(added_ids)
    )


SPLIT_SEED = 42  # of the published fine-tuning; that of the published split is not known
_BALANCED_PARADIGM = "regular_plural_subject_verb_agreement_1"


def build_unified_set(
    items: Iterable[BlimpItem], *, paradigms: Sequence[str] = PUBLISHED, seed: int = SPLIT_SEED
) -> tuple[list[BlimpItem], list[RejectedRow]]:
    """Put the paradigms together, the subject-verb one balanced by drawing from the number that has
    more.

    Parameters
    ----------
    items : iterable of BlimpItem
        Those that can be used, as `select_one_token_items` leaves them: what is drawn depends on them.
    paradigms : sequence of str
        Which; the published five by default.
    seed : int

    Returns
    -------
    unified : list of BlimpItem
        In the order of `items`.
    rejected : list of RejectedRow
        Items of these paradigms that were not drawn.

    Raises
    ------
    InputError
        If a paradigm has no item: the set would be another one.

    Examples
    --------
    >>> subjects = ["Ann has", "Bob has", "Dan has", "Dogs have"]
    >>> items = [BlimpItem(f"{_BALANCED_PARADIGM}-{i}", _BALANCED_PARADIGM, f"{subject} left.", 1, "", (0,),
    ...                    "plural" if "have" in subject else "singular") for i, subject in enumerate(subjects)]
    >>> unified, rejected = build_unified_set(items, paradigms=[_BALANCED_PARADIGM])
    >>> [item.number for item in unified], len(rejected)
    (['singular', 'plural'], 2)
    """
    items = [item for item in items if item.paradigm in paradigms]
    missing_paradigms = [
        name for name in paradigms if not any(item.paradigm == name for item in items)
    ]
    if missing_paradigms:
        raise InputError(
            f"expected usable items of {', '.join(paradigms)}; found none of {', '.join(missing_paradigms)}: "
            "get the files from "
            "github.com/alexwarstadt/blimp (data folder), or name other paradigms"
        )
    names_by_number = [
        [
            item.name
            for item in items
            if item.paradigm == _BALANCED_PARADIGM and (item.number == "plural") is is_plural
        ]
        for is_plural in (False, True)
    ]
    smaller_side, larger_side = sorted(names_by_number, key=len)
    undrawn_names = set(larger_side) - set(
        random.Random(f"{seed} balance").sample(larger_side, len(smaller_side))
    )
    reason = f"{len(larger_side)} of one number and {len(smaller_side)} of the other: as many of both are drawn"
    rejected = [
        RejectedRow(item.name, "not drawn for balance", reason)
        for item in items
        if item.name in undrawn_names
    ]
    return [item for item in items if item.name not in undrawn_names], rejected


def split_halves(
    items: Iterable[BlimpItem], *, seed: int = SPLIT_SEED
) -> tuple[list[BlimpItem], list[BlimpItem]]:
    """Part items into two halves that share no sentence, alike in paradigms and numbers.

    Items that have an acceptable, unacceptable or masked sentence in common (in whatever case) stay
    together. Which half a group goes to does not depend on the order of the items, nor (but for
    sentences in common) on other paradigms.

    Parameters
    ----------
    items : iterable of BlimpItem
        Before a model's tokenizer has its say, so that all models have the same halves.
    seed : int

    Returns
    -------
    train, test : list of BlimpItem
        In the order of `items`.

    Examples
    --------
    >>> name = "determiner_noun_agreement_1"
    >>> items = [BlimpItem(f"{name}-{i}", name, f"{subject} sees this dog.", 3, "dogs", (2,), "singular")
    ...          for i, subject in enumerate(["Ann", "Bob", "Dan", "ann"])]
    >>> train, test = split_halves(items)
    >>> len(train), len(test), {item.name[-1] for item in train} in ({"0", "3"}, {"1", "2"})
    (2, 2, True)
    """
    items = list(items)
    strata: dict[tuple[str, str], list[list[BlimpItem]]] = defaultdict(list)
    for group in _group_by_shared_sentence(items):
        strata[group[0].paradigm, group[0].number].append(group)
    train: set[str] = set()
    for stratum, groups in strata.items():
        generator = random.Random(f"{seed} {' '.join(stratum)}")
        groups.sort(key=lambda group: group[0].name)
        generator.shuffle(groups)
        train_surplus = generator.choice(
            [-1, 0]
        )  # who gets the odd one: items in train minus items in test
        for group in sorted(
            groups, key=len, reverse=True
        ):  # large ones first, so that single ones even out
            if train_surplus < 0:
                train.update(item.name for item in group)
            train_surplus += len(group) if train_surplus < 0 else -len(group)
    return [item for item in items if item.name in train], [
        item for item in items if item.name not in train
    ]


def item_sentences(item: BlimpItem) -> tuple[str, str, str]:
    """The acceptable sentence, the unacceptable one, and the one with the mask, in lower case."""
    word = Sentence(item.text).words[item.target]
    forms = (word.text, item.foil, "<mask>")
    good, bad, masked = (
        f"{item.text[: word.start]}{form}{item.text[word.stop :]}".lower() for form in forms
    )
    return good, bad, masked


def _group_by_shared_sentence(items: Sequence[BlimpItem]) -> list[list[BlimpItem]]:
    """Items connected by shared sentences, each group sorted by name."""
    group_by_sentence: dict[
        str, list[tuple[BlimpItem, tuple[str, str, str]]]
    ] = {}  # members with their sentences, by sentence
    for item in sorted(items, key=lambda item: item.name):
        merged_group = [(item, item_sentences(item))]
        for existing_group in {
            id(group): group for group in map(group_by_sentence.get, merged_group[0][1]) if group
        }.values():
            merged_group += existing_group
        for _, sentences in merged_group:
            group_by_sentence.update(dict.fromkeys(sentences, merged_group))
    groups = {id(group): group for group in group_by_sentence.values()}.values()
    return [sorted((item for item, _ in group), key=lambda item: item.name) for group in groups]


@dataclass(frozen=True)
class SelectedItems:
    """Sentences of a study.

    Parameters
    ----------
    scored, training : list of BlimpItem
    rejected : list of RejectedRow
        With reasons; none of them twice.
    counts : DataFrame
        Sentences of each paradigm that were read, are usable, are in the half, and were drawn.
    """

    scored: list[BlimpItem]
    training: list[BlimpItem]
    rejected: list[RejectedRow]
    counts: pd.DataFrame


def select_items(
    blimp: str | PathLike[str],
    model: Model,
    *,
    half: str,
    paradigms: Sequence[str] | None,
    unified: bool,
    split_seed: int,
    max_items: int | None,
    draw_seed: int,
    spacy: str | None,
) -> SelectedItems:
    """Select the sentences that a model can be scored on; see `agreement_study` for the options.

    Raises
    ------
    InputError
        If the model has no tokenizer, or no sentence can be used.
    """
    parse = load_spacy_pipeline(spacy) if spacy else None
    items, rejected = read_blimp(blimp, paradigms=paradigms, parse=parse)
    if model.tokenizer is None:
        raise InputError(f"{model.name} has no tokenizer, so it cannot be given text")
    all_items: list[BlimpItem | RejectedRow] = [*items, *rejected]
    train, test = split_halves(items, seed=split_seed)
    usable, multi_token_items = select_one_token_items(items, model.tokenizer)
    rejected = [*rejected, *multi_token_items]
    if studied_stack(model) == "decoder":
        late_cue_names = [item.name for item in usable if item.cue[-1] > item.target]
        reason = "a causal model cannot use it"
        rejected += [RejectedRow(name, "cue after target", reason) for name in late_cue_names]
        usable = [item for item in usable if item.cue[-1] < item.target]
    if not usable:
        raise InputError(
            f"{blimp}: of {len(items)} sentences none can be used, e.g. {rejected[0].reason}"
        )
    half_items = {"all": items, "train": train, "test": test}
    halves = {name: _select_usable(usable, members) for name, members in half_items.items()}
    if unified:
        for name in dict.fromkeys((half, "train")):
            halves[name], undrawn_items = build_unified_set(
                halves[name], paradigms=paradigms or PUBLISHED, seed=split_seed
            )
            rejected += [item for item in undrawn_items if item not in rejected]
    drawn_items = draw_items(halves[half], max_items, seed=draw_seed)
    items_by_stage: dict[str, Sequence[BlimpItem | RejectedRow]] = {
        "read": all_items,
        "usable": usable,
        half: halves[half],
        "drawn": drawn_items,
    }
    return SelectedItems(drawn_items, halves["train"], rejected, _count_by_paradigm(items_by_stage))


def _select_usable(usable: Sequence[BlimpItem], half: Sequence[BlimpItem]) -> list[BlimpItem]:
    half_names = {item.name for item in half}
    return [item for item in usable if item.name in half_names]


def _count_by_paradigm(
    items_by_stage: dict[str, Sequence[BlimpItem | RejectedRow]],
) -> pd.DataFrame:
    paradigms = {
        name: [item.name.rpartition("-")[0] for item in stage_items]
        for name, stage_items in items_by_stage.items()
    }
    counts = pd.DataFrame(
        {name: Counter(item_paradigms) for name, item_paradigms in paradigms.items()}
    )
    return counts.reindex(list(dict.fromkeys(paradigms["read"]))).fillna(0).astype(int)


_DESIGNS_DIR = Path(__file__).parent


@dataclass(frozen=True)
class AssimilationItem:
    """A word whose last phone changes before some words.

    Parameters
    ----------
    language : str
        Of the voice, "fr" or "en-us".
    before : str
        Words before the target ("la"), at least one.
    target, changed : str
        The word, and a spelling that the voice speaks with the changed phone ("vache", "vage").
    phone, changed_phone : str
        Last phone of each in IPA ("ʃ", "ʒ").
    viable, unviable : str
        A word behind the target that licenses the change ("brille"), and one that does not ("tombe").
    """

    language: str
    before: str
    target: str
    changed: str
    phone: str
    changed_phone: str
    viable: str
    unviable: str


def read_assimilation_design(source: str | PathLike[str] = "french") -> list[AssimilationItem]:
    """Read the items of a design.

    Parameters
    ----------
    source : str or path
        "french" (voicing), "english" (place: *clea[m] pan*), or a table (.tsv, .csv, .jsonl) with the columns of
        `AssimilationItem`; data_templates/assimilation.tsv is an example.

    Raises
    ------
    InputError
        For a table that cannot be read, an empty cell, or a target that is there twice.

    Examples
    --------
    >>> item = read_assimilation_design("english")[0]
    >>> item.target, item.changed_phone, item.viable, item.unviable
    ('clean', 'm', 'pan', 'dish')
    """
    packaged = _DESIGNS_DIR / f"{source}.tsv"
    path = packaged if str(source) == packaged.stem and packaged.is_file() else Path(source)
    columns = tuple(field.name for field in fields(AssimilationItem))
    items = dict[str, AssimilationItem]()
    for row, cells in read_table(path, required=columns):
        if isinstance(cells, RowError):
            raise cells
        if missing := [name for name in columns if not cells.get(name)]:
            raise InputError(f"{path}, row {row}: {missing[0]} is empty: fill every column")
        item = AssimilationItem(**{name: str(cells[name]) for name in columns})
        if item.target in items:
            raise InputError(f"{path}, row {row}: target {item.target!r} is there twice: keep one")
        items[item.target] = item
    if not items:
        raise InputError(f"{path}: there is no item below the header")
    return list(items.values())


def speak_assimilation_design(
    items: Sequence[AssimilationItem], *, variants: Sequence[str] = ("",), rate: int = 150
) -> list[Clip]:
    """Synthesise four clips for each item and voice (extra `synthesis`).

    Parameters
    ----------
    items : sequence of AssimilationItem
    variants : sequence of str
        Speaker variants of espeak-ng, such as "f4"; "" is the voice of the language itself.
    rate : int
        Words per minute.

    Returns
    -------
    list of Clip
        Synthetic. The text is the sentence with the unchanged spelling; ``meta`` has pair (the target: all clips of an item
        count as one), form, context and voice.

    Raises
    ------
    InputError
        If the voice does not end the target in the phone of the design.
    MissingExtraError
        If espeakng-loader is not installed.

    Examples
    --------
    >>> clips = speak_assimilation_design(read_assimilation_design("french")[:1])
    >>> [(clip.meta["form"], clip.meta["context"], clip.text) for clip in clips][2:]
    [('changed', 'viable', 'la vache brille'), ('changed', 'unviable', 'la vache tombe')]
    """
    return [
        _speak_cell(item, form, context, item.language + (variant and f"+{variant}"), rate)
        for item in items
        for variant in variants
        for form in ("kept", "changed")
        for context in ("viable", "unviable")
    ]


def speak_clip(
    spoken: str,
    *,
    voice: str,
    text: str | None = None,
    rate: int = 150,
    **details: Any,
) -> Clip:
    """Synthesise a clip that knows its words and phones (extra `synthesis`).

    Parameters
    ----------
    spoken : str
        What the voice says.
    voice, rate
        As in `speechmix.alignment.espeak.speak`.
    text : str, optional
        Another spelling with as many words, for the clip's text and words.
    **details
        Further fields of the clip: cue, target, foil, meta, ...

    Raises
    ------
    InputError
        As `speak`, or if the text has another number of words.

    Examples
    --------
    >>> clip = speak_clip("les amis", voice="fr+f4")
    >>> [phone.text for phone in clip.tiers["phone"]]
    ['l', 'e', 'z', 'a', 'm', 'i']
    """
    speech, labels = speak(spoken, voice=voice, rate=rate), (text or spoken).split()
    if len(labels) != len(speech.words):
        raise InputError(f"expected a text of {len(speech.words)} words, found {text!r}")
    words = [
        Word(label, word.start, word.end) for label, word in zip(labels, speech.words, strict=True)
    ]
    details = {"language": voice[:2], "text": " ".join(labels), **details}
    return Clip.from_array(
        speech.audio,
        speech.sample_rate,
        name=f"{spoken} ({voice})",
        words=words,
        tiers={PHONE: spoken_phones(speech)[0]},
        **details,
    )


def _speak_cell(item: AssimilationItem, form: str, context: str, voice: str, rate: int) -> Clip:
    trigger = item.viable if context == "viable" else item.unviable
    spelling, expected = (
        (item.target, item.phone) if form == "kept" else (item.changed, item.changed_phone)
    )
    target = len(item.before.split())
    clip = speak_clip(
        f"{item.before} {spelling} {trigger}",
        voice=voice,
        rate=rate,
        text=f"{item.before} {item.target} {trigger}",
        cue=target + 1,
        target=target,
        foil=item.changed,
        meta={"pair": item.target, "form": form, "context": context, "voice": voice},
    )
    phones = clip.tiers[PHONE]
    owners = unit_owners(phones, clip.spoken_words)
    labels = [phone.text for phone, owner in zip(phones, owners, strict=True) if owner == target]
    if labels[-1:] != [expected]:
        raise InputError(
            f"{item.target!r}, {form}: voice {voice!r} speaks {spelling!r} as [{' '.join(labels)}], "
            f"expected [{expected}] at its end: change the spelling, or the phone"
        )
    return clip

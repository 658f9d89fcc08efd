"""Template of homophone pairs: cue forms, link and target.

In: a table as TOML has it (data_templates/french/README.md describes it). Out: an immutable
`Template`, or an error that names the entry that is misspelt and what was expected. Nothing about
French is in this file.

Entries of a template's table, each checked: an error names the entry and what was expected.

Part-of-speech tags and verb features of the lexicon.

In: nothing. Out: the names that templates, lexicons and parsers share
(universaldependencies.org/u/pos; moods as in Lexique).

Load templates of homophone pairs by name, set or path.

In: a TOML file (data_templates/french/README.md describes it), or the name of a set that comes with
the package. Out: checked, immutable `Template`s.
"""

from __future__ import annotations

import functools
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from ...errors import InputError
from ...files.json_files import JsonObject
from ...files.text_files import read_bounded
from .contrasts import CONTRASTS, INVARIANT

PARTS_OF_SPEECH = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X"),
)
VERBAL = ("VERB", "AUX")
# Of a form that can be several, the first is meant (Lexique calls étaient a present, too). The
# imperative has no subject, so it is never meant.
TENSES = ("ind:imp", "cnd:pre", "ind:fut", "ind:pre", "ind:pas", "sub:pre", "sub:imp")
PARTICIPLES = ("par:pas", "par:pre")


TomlTable: TypeAlias = JsonObject
AGREEMENTS = ("s", "p", "1s", "2s", "3s", "1p", "2p", "3p")


def entry_endings(table: TomlTable, where: str) -> dict[str, tuple[str, ...]]:
    return {
        entry_choice(agreement, AGREEMENTS, f"{where}: [target.endings]"): entry_strings(
            table, agreement, where
        )
        for agreement in table
    }


def entry_flag(table: TomlTable, name: str, where: str, *, default: bool) -> bool:
    flag = table.get(name, default)
    if not isinstance(flag, bool):
        raise InputError(f"{where}: {name} must be true or false, found {flag!r}")
    return flag


def refuse_unknown_entries(table: TomlTable, names: Iterable[str], where: str) -> None:
    unknown = sorted(set(table) - set(names))
    if unknown:
        raise InputError(
            f"{where}: unknown entry {', '.join(unknown)}; expected some of {', '.join(names)}"
        )


def entry_section(table: TomlTable, name: str, where: str) -> TomlTable:
    subtable = table.get(name, {})
    if not isinstance(subtable, dict):
        raise InputError(f"{where}: [{name}] must be a table, found {subtable!r}")
    return subtable


def entry_text(table: TomlTable, name: str, where: str) -> str:
    text = table.get(name)
    if not isinstance(text, str) or not text:
        raise InputError(f"{where}: {name} must be a text, found {text!r}")
    return text


def entry_strings(
    table: TomlTable, name: str, where: str, *, required: bool = False
) -> tuple[str, ...]:
    texts = table.get(name, [])
    if (
        not isinstance(texts, list)
        or not all(isinstance(item, str) for item in texts)
        or (required and not texts)
    ):
        raise InputError(f"{where}: {name} must be a list of texts, found {texts!r}")
    return tuple(texts)


def entry_choice(entry: object, choices: tuple[str, ...], where: str) -> str:
    if entry not in choices:
        raise InputError(f"{where} must be one of {choices}, found {entry!r}")
    return entry


def entry_choices(
    table: TomlTable, name: str, choices: tuple[str, ...], where: str
) -> tuple[str, ...]:
    return tuple(
        entry_choice(entry, choices, f"{where}: {name}")
        for entry in entry_strings(table, name, where)
    )


def entry_tags(table: TomlTable, where: str, *, required: bool = False) -> tuple[str, ...]:
    tags = entry_strings(table, "pos", where, required=required)
    return tuple(entry_choice(tag, PARTS_OF_SPEECH, f"{where}: pos") for tag in tags)


# These any parser can tell: the cue is a word before (behind) the target, whatever the grammar.
ADJACENCY_RELATIONS = ("before", "after")
AUDIBILITY_VALUES = ("always", "before_vowel", "never")
BALANCE_COLUMNS = (
    *("number", "contrast", "meaning", "audible", "cue_word", "cue_pair"),
    *("distance", "position", "attractor", "numeral"),
)
_TABLE_ENTRIES = (
    "name language description relation balance contrasts lexicon cues between noun target sentence"
).split()


@dataclass(frozen=True)
class CueForm:
    """What a cue's form says (`agreement`: "p", "3s", ..., or a meaning) and when that can be heard
    (`audible_when`)."""

    agreement: str
    audible_when: str


@dataclass(frozen=True, eq=False)
class Template:
    """A kind of pair.

    Parameters
    ----------
    name, language, description : str
    relation : str
        What the parser must have found between cue and target: "determiner", "subject",
        "determiner+subject", or what a parser of one's own finds. "before" and "after" need none:
        the cue is the nearest that stands there.
    cues : mapping of str to CueForm
        By spelling, lower case.
    target_pos : tuple of str
        Universal tags.
    partner_contrasts : tuple of str
        Contrasts (`speechmix.studies.french.contrasts.CONTRASTS`) that the target and its other
        spelling may make; empty: no partner is needed. "invariant": only nouns that are spelled
        alike in both numbers, a control.
    missing_partner_action : {"drop", "keep"}
    max_words_between : int
        Most words between cue and target.
    between_pos : tuple of str
        Tags that may stand between; empty: whatever the parser's relation allows.
    meanings : tuple of str
        What the target's spellings can mean, where the cue tells a meaning and no number (there:
        "place", their: "owner"): entries of the lexicon's column `meaning`, or moods ("inf",
        "par:pas").
    contrasts : tuple of str
        Those that become examples unless `select --contrast` says otherwise; empty: all.
    lexicon : Path, optional
        A lexicon of the template's own.
    balance_columns : tuple of str
        Where so many examples are drawn (`select --draw`), as many of each value.
    allow_coordinated_subjects : bool
        With "determiner+subject": whether the noun may be the first of several subjects that "et"
        joins. The number is then the verb's, plural, and not what the determiner says.
    noun_template : Template, optional
        With "determiner+subject": the noun is a target of its own. A sentence gives two pairs,
        determiner -> noun, by these rules, and determiner + noun -> verb, or none (Det_Noun_Verb as
        published, which is counted twice).
    allow_number_marked_noun : bool
        With "determiner+subject": whether the noun between may give the number away (les chevaux
        mangent).
    tenses : tuple of str
        Mood and tense of a verbal target, such as "ind:pre"; empty: all.
    target_endings : mapping of str to tuple of str
        By agreement: the target must end in one of these; empty: anything.
    exclude_lemmas, exclude_lemma_endings : tuple of str
    exclude_forms : tuple of str
        Targets written exactly so are left out.
    allow_capitalized_cue : bool
        Whether a cue with a capital letter counts.
    require_first_candidate : bool
        Give the sentence up unless its first candidate passes (a fault of the published script).
    """

    name: str
    language: str
    description: str
    relation: str
    cues: Mapping[str, CueForm]
    target_pos: tuple[str, ...]
    partner_contrasts: tuple[str, ...] = ("number",)
    missing_partner_action: str = "drop"
    max_words_between: int = 8
    between_pos: tuple[str, ...] = ()
    allow_number_marked_noun: bool = False
    allow_coordinated_subjects: bool = False
    tenses: tuple[str, ...] = ()
    target_endings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exclude_lemmas: tuple[str, ...] = ()
    exclude_lemma_endings: tuple[str, ...] = ()
    exclude_forms: tuple[str, ...] = ()
    allow_capitalized_cue: bool = True
    require_first_candidate: bool = False
    balance_columns: tuple[str, ...] = ()
    meanings: tuple[str, ...] = ()
    contrasts: tuple[str, ...] = ()
    lexicon: Path | None = None
    noun_template: Template | None = None

    @cached_property
    def inflection(self) -> str:
        """How the target's other spelling is looked for: as a "meaning", a "finite" verb, or a
        "nominal" form."""
        if self.meanings:
            return "meaning"
        is_participle = bool(self.tenses) and set(self.tenses) <= set(PARTICIPLES)
        return "finite" if set(self.target_pos) <= set(VERBAL) and not is_participle else "nominal"


def parse_template(table: TomlTable, where: str, folder: Path) -> Template:
    """Return the template that a TOML table describes.

    Errors call it `where`; its lexicon is looked for in `folder`. InputError if an entry is unknown
    or cannot be used; the message names it.
    """
    refuse_unknown_entries(table, _TABLE_ENTRIES, where)
    between_section, target_section = (
        entry_section(table, "between", where),
        entry_section(table, "target", where),
    )
    sentence_section = entry_section(table, "sentence", where)
    refuse_unknown_entries(
        between_section,
        ("words_at_most", "pos", "allow_number_marked_noun", "coordinated"),
        f"{where}: [between]",
    )
    refuse_unknown_entries(
        target_section,
        "pos partner without_partner meanings tenses endings exclude_lemmas exclude_lemma_endings "
        "exclude_forms".split(),
        f"{where}: [target]",
    )
    refuse_unknown_entries(
        sentence_section, ("capital_cue", "require_first_candidate"), f"{where}: [sentence]"
    )
    max_words_between = between_section.get("words_at_most", 8)
    if (
        not isinstance(max_words_between, int)
        or isinstance(max_words_between, bool)
        or max_words_between < 0
    ):
        raise InputError(
            f"{where}: words_at_most must be a whole number from 0, found {max_words_between!r}"
        )
    meanings = entry_strings(target_section, "meanings", where)
    template = Template(
        name=entry_text(table, "name", where),
        language=entry_text(table, "language", where),
        description=entry_text(table, "description", where)
        if table.get("description", "") != ""
        else "",
        relation=entry_text(table, "relation", where),
        cues=_parse_cues(entry_section(table, "cues", where), meanings, where),
        target_pos=entry_tags(target_section, where, required=True),
        partner_contrasts=entry_choices(target_section, "partner", (*CONTRASTS, INVARIANT), where),
        missing_partner_action=entry_choice(
            target_section.get("without_partner", "drop"),
            ("drop", "keep"),
            f"{where}: without_partner",
        ),
        max_words_between=max_words_between,
        between_pos=entry_tags(between_section, where),
        allow_number_marked_noun=entry_flag(
            between_section, "allow_number_marked_noun", where, default=False
        ),
        allow_coordinated_subjects=entry_flag(between_section, "coordinated", where, default=False),
        tenses=entry_strings(target_section, "tenses", where),
        target_endings=entry_endings(entry_section(target_section, "endings", where), where),
        exclude_lemmas=entry_strings(target_section, "exclude_lemmas", where),
        exclude_lemma_endings=entry_strings(target_section, "exclude_lemma_endings", where),
        exclude_forms=entry_strings(target_section, "exclude_forms", where),
        allow_capitalized_cue=entry_flag(sentence_section, "capital_cue", where, default=True),
        require_first_candidate=entry_flag(
            sentence_section, "require_first_candidate", where, default=False
        ),
        balance_columns=entry_choices(table, "balance", BALANCE_COLUMNS, where),
        meanings=meanings,
        contrasts=entry_choices(table, "contrasts", (*CONTRASTS, INVARIANT), where),
        lexicon=Path(os.path.abspath(folder / entry_text(table, "lexicon", where)))
        if "lexicon" in table
        else None,
    )
    if "noun" not in table:
        return template
    if template.relation != "determiner+subject":
        raise InputError(
            f"{where}: [noun] needs relation = 'determiner+subject', found {template.relation!r}"
        )
    target_rules = {"pos": ["NOUN"], **entry_section(table, "noun", where)}
    noun_table = {**table, "relation": "determiner", "target": target_rules, "between": {}}
    noun_table = {
        name: noun_table[name] for name in noun_table if name not in ("noun", "contrasts")
    }
    return replace(template, noun_template=parse_template(noun_table, where, folder))


def _parse_cues(table: TomlTable, meanings: tuple[str, ...], where: str) -> dict[str, CueForm]:
    cues: dict[str, CueForm] = {}
    for agreement, forms_by_audibility in table.items():
        entry_choice(agreement, meanings or AGREEMENTS, f"{where}: [cues.{agreement}]")
        if not isinstance(forms_by_audibility, dict):
            raise InputError(
                f"{where}: [cues.{agreement}] must be a table of {AUDIBILITY_VALUES}, found {forms_by_audibility!r}"
            )
        for audible_when in forms_by_audibility:
            entry_choice(audible_when, AUDIBILITY_VALUES, f"{where}: [cues.{agreement}]")
            for form in entry_strings(forms_by_audibility, audible_when, where):
                if form in cues:
                    raise InputError(
                        f"{where}: cue {form!r} is listed twice: a form can say only one thing"
                    )
                if form != form.strip().lower():
                    raise InputError(
                        f"{where}: cue {form!r} would never be found: write cues in lower case, "
                        f"{form.lower()!r}"
                    )
                cues[form] = CueForm(agreement, audible_when)
    if not cues:
        raise InputError(
            f"{where}: no cue forms; expected for example [cues.p] with always = ['les']"
        )
    return cues


_TEMPLATES_DIR = Path(__file__).parent / "template_files"


@functools.lru_cache
def load_templates(language: str = "french") -> tuple[Template, ...]:
    """Load every template of a set that comes with the package.

    "french" is the study's, "french_paper" has the published rules, "french_control" targets
    without a contrast; "french_spelling", "english" and "dutch" have other homophones, with small
    lexicons of their own.

    Raises
    ------
    InputError
        For an unknown set.

    Examples
    --------
    >>> [template.name for template in load_templates("french")]
    ['det_noun', 'det_noun_verb', 'pronoun_verb']
    """
    set_names = sorted(folder.name for folder in _TEMPLATES_DIR.iterdir() if folder.is_dir())
    if language not in set_names:
        raise InputError(
            f"template set {language!r} is not one of {set_names}: choose one, or load_template(path) "
            "your own"
        )
    return tuple(load_template(path) for path in sorted((_TEMPLATES_DIR / language).glob("*.toml")))


def load_template(source: str | Path) -> Template:
    """Load one template: the path of a TOML file, or the name of one that comes with the package.

    Raises
    ------
    InputError
        If there is no such file or name, or it is not a template; the message names the entry that
        is wrong.

    Examples
    --------
    >>> load_template("pronoun_verb").cues["ils"]
    CueForm(agreement='3p', audible_when='before_vowel')
    """
    path = Path(source)
    if path.suffix != ".toml":
        path_by_name = {file.stem: file for file in sorted(_TEMPLATES_DIR.glob("*/*.toml"))}
        if str(source) not in path_by_name:
            raise InputError(
                f"template {str(source)!r} is not one of {sorted(path_by_name)}: give a name or a .toml "
                "file"
            )
        path = path_by_name[str(source)]
    try:
        table = tomllib.loads(read_bounded(path).decode("utf-8"))
    except OSError as error:
        raise InputError(
            f"template {path}: cannot be read ({error.strerror}): give the path of a TOML file"
        ) from error
    except RecursionError as error:
        raise InputError(f"template {path}: not valid TOML: nested too deeply") from error
    except ValueError as error:  # no TOML, no UTF-8, a null byte in the path
        raise InputError(f"template {path}: not valid TOML: {error}") from error
    return parse_template(table, f"template {path.name}", path.parent)

"""Which pairs of words does a study look for? Templates: cue forms, what links cue and target, what the target must be.

In: a TOML file (data_templates/french/README.md describes it), or the name of a set that comes with the package.
Out: checked, immutable `Template`s. Nothing about French is in this file.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import InputError

RELATIONS = ("determiner", "subject", "determiner+subject")
HEARD = ("always", "before_vowel", "never")
DIFFERENCES = ("number", "person")
BALANCES = ("number", "audible", "cue_word")
AGREEMENTS = ("s", "p", "1s", "2s", "3s", "1p", "2p", "3p")
_FOLDER = Path(__file__).parent / "template_files"


@dataclass(frozen=True)
class CueForm:
    """What a cue's form says (`agreement`: "p", "3s", ...) and when that can be heard (`heard`, one of `HEARD`)."""

    agreement: str
    heard: str


@dataclass(frozen=True, eq=False)
class Template:
    """A kind of pair.

    Parameters
    ----------
    name, language, description : str
    relation : {"determiner", "subject", "determiner+subject"}
        What the parser must have found between cue and target.
    cues : mapping of str to CueForm
        By spelling, lower case.
    target_pos : tuple of str
        Universal tags.
    partner : tuple of {"number", "person"}
        What the target's other spelling may differ in; empty: no partner is asked for.
    without_partner : {"drop", "keep"}
    words_between : int
        Most words between cue and target.
    between_pos : tuple of str
        Tags that may stand between; empty: whatever the parser's relation allows.
    balance : tuple of {"number", "audible", "cue_word"}
        Where so many examples are drawn (`select --draw`), as many of each value.
    coordinated : bool
        With "determiner+subject": whether the noun may be the first of several subjects that "et" joins. The number is then the
        verb's, plural, and not what the determiner says.
    noun : Template, optional
        With "determiner+subject": the noun is a target of its own. A sentence gives two pairs, determiner -> noun, by these
        rules, and determiner + noun -> verb, or none (Det_Noun_Verb as published, which is counted twice).
    noun_may_tell : bool
        With "determiner+subject": whether the noun between may give the number away (les chevaux mangent).
    tenses : tuple of str
        Mood and tense of a verbal target, such as "ind:pre"; empty: all.
    endings : mapping of str to tuple of str
        By agreement: the target must end in one of these; empty: anything.
    exclude_lemmas, exclude_lemma_endings : tuple of str
    sentence_initial : bool
        Whether a cue with a capital letter counts.
    first_only : bool
        Give the sentence up unless its first candidate passes (a fault of the published script).
    """

    name: str
    language: str
    description: str
    relation: str
    cues: Mapping[str, CueForm]
    target_pos: tuple[str, ...]
    partner: tuple[str, ...] = ("number",)
    without_partner: str = "drop"
    words_between: int = 8
    between_pos: tuple[str, ...] = ()
    noun_may_tell: bool = False
    coordinated: bool = False
    tenses: tuple[str, ...] = ()
    endings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exclude_lemmas: tuple[str, ...] = ()
    exclude_lemma_endings: tuple[str, ...] = ()
    sentence_initial: bool = True
    first_only: bool = False
    balance: tuple[str, ...] = ()
    noun: Template | None = None


@functools.lru_cache
def load_templates(language: str = "french") -> tuple[Template, ...]:
    """Load every template of a set that comes with the package: "french", or "french_paper" (the published rules).

    Raises
    ------
    InputError
        For an unknown set.

    Examples
    --------
    >>> [template.name for template in load_templates("french")]
    ['det_noun', 'det_noun_verb', 'pronoun_verb']
    """
    sets = sorted(folder.name for folder in _FOLDER.iterdir() if folder.is_dir())
    if language not in sets:
        raise InputError(f"template set {language!r} is not one of {sets}: choose one, or load_template(path) your own")
    return tuple(load_template(path) for path in sorted((_FOLDER / language).glob("*.toml")))


def load_template(source: str | Path) -> Template:
    """Load one template: the path of a TOML file, or the name of one that comes with the package.

    Raises
    ------
    InputError
        If there is no such file or name, or it is not a template; the message names the entry that is wrong.

    Examples
    --------
    >>> load_template("pronoun_verb").cues["ils"]
    CueForm(agreement='3p', heard='before_vowel')
    """
    path = Path(source)
    if path.suffix != ".toml":
        shipped = {file.stem: file for file in sorted(_FOLDER.glob("*/*.toml"))}
        if str(source) not in shipped:
            raise InputError(f"template {str(source)!r} is not one of {sorted(shipped)}: give a name or a .toml file")
        path = shipped[str(source)]
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"template {path}: cannot be read ({error.strerror}): give the path of a TOML file") from error
    except RecursionError as error:
        raise InputError(f"template {path}: not valid TOML: nested too deeply") from error
    except ValueError as error:  # no TOML, no UTF-8, a null byte in the path
        raise InputError(f"template {path}: not valid TOML: {error}") from error
    return _template(table, f"template {path.name}")


def _template(table: dict, where: str) -> Template:
    _known(table, "name language description relation balance cues between noun target sentence".split(), where)
    between, target = _section(table, "between", where), _section(table, "target", where)
    sentence = _section(table, "sentence", where)
    _known(between, ("words_at_most", "pos", "noun_may_tell", "coordinated"), f"{where}: [between]")
    _known(
        target,
        "pos partner without_partner tenses endings exclude_lemmas exclude_lemma_endings".split(),
        f"{where}: [target]",
    )
    _known(sentence, ("capital_cue", "first_only"), f"{where}: [sentence]")
    words_between = between.get("words_at_most", 8)
    if not isinstance(words_between, int) or isinstance(words_between, bool) or words_between < 0:
        raise InputError(f"{where}: words_at_most must be a whole number from 0, found {words_between!r}")
    template = Template(
        name=_text(table, "name", where),
        language=_text(table, "language", where),
        description=_text(table, "description", where) if table.get("description", "") != "" else "",
        relation=_choice(table.get("relation"), RELATIONS, f"{where}: relation"),
        cues=_cues(_section(table, "cues", where), where),
        target_pos=_strings(target, "pos", where, required=True),
        partner=tuple(_choice(p, DIFFERENCES, f"{where}: partner") for p in _strings(target, "partner", where)),
        without_partner=_choice(target.get("without_partner", "drop"), ("drop", "keep"), f"{where}: without_partner"),
        words_between=words_between,
        between_pos=_strings(between, "pos", where),
        noun_may_tell=_flag(between, "noun_may_tell", where, default=False),
        coordinated=_flag(between, "coordinated", where, default=False),
        tenses=_strings(target, "tenses", where),
        endings=_endings(_section(target, "endings", where), where),
        exclude_lemmas=_strings(target, "exclude_lemmas", where),
        exclude_lemma_endings=_strings(target, "exclude_lemma_endings", where),
        sentence_initial=_flag(sentence, "capital_cue", where, default=True),
        first_only=_flag(sentence, "first_only", where, default=False),
        balance=tuple(_choice(column, BALANCES, f"{where}: balance") for column in _strings(table, "balance", where)),
    )
    if "noun" not in table:
        return template
    if template.relation != "determiner+subject":
        raise InputError(f"{where}: [noun] needs relation = 'determiner+subject', found {template.relation!r}")
    rules = {"pos": ["NOUN"], **_section(table, "noun", where)}
    of_noun = {**table, "relation": "determiner", "target": rules, "between": {}}
    return replace(template, noun=_template({name: of_noun[name] for name in of_noun if name != "noun"}, where))


def _endings(table: dict, where: str) -> dict[str, tuple[str, ...]]:
    return {
        _choice(agreement, AGREEMENTS, f"{where}: [target.endings]"): _strings(table, agreement, where)
        for agreement in table
    }


def _flag(table: dict, name: str, where: str, *, default: bool) -> bool:
    flag = table.get(name, default)
    if not isinstance(flag, bool):
        raise InputError(f"{where}: {name} must be true or false, found {flag!r}")
    return flag


def _cues(table: dict, where: str) -> dict[str, CueForm]:
    cues: dict[str, CueForm] = {}
    for agreement, by_sound in table.items():
        _choice(agreement, AGREEMENTS, f"{where}: [cues.{agreement}]")
        if not isinstance(by_sound, dict):
            raise InputError(f"{where}: [cues.{agreement}] must be a table of {HEARD}, found {by_sound!r}")
        for heard in by_sound:
            _choice(heard, HEARD, f"{where}: [cues.{agreement}]")
            for form in _strings(by_sound, heard, where):
                if form in cues:
                    raise InputError(f"{where}: cue {form!r} is listed twice: a form can say only one thing")
                cues[form] = CueForm(agreement, heard)
    if not cues:
        raise InputError(f"{where}: no cue forms; expected for example [cues.p] with always = ['les']")
    return cues


def _known(table: dict, names, where: str) -> None:
    unknown = sorted(set(table) - set(names))
    if unknown:
        raise InputError(f"{where}: unknown entry {', '.join(unknown)}; expected some of {', '.join(names)}")


def _section(table: dict, name: str, where: str) -> dict:
    subtable = table.get(name, {})
    if not isinstance(subtable, dict):
        raise InputError(f"{where}: [{name}] must be a table, found {subtable!r}")
    return subtable


def _text(table: dict, name: str, where: str) -> str:
    text = table.get(name)
    if not isinstance(text, str) or not text:
        raise InputError(f"{where}: {name} must be a text, found {text!r}")
    return text


def _strings(table: dict, name: str, where: str, *, required: bool = False) -> tuple[str, ...]:
    texts = table.get(name, [])
    if not isinstance(texts, list) or not all(isinstance(item, str) for item in texts) or (required and not texts):
        raise InputError(f"{where}: {name} must be a list of texts, found {texts!r}")
    return tuple(texts)


def _choice(entry: object, choices: tuple[str, ...], where: str) -> str:
    if entry not in choices:
        raise InputError(f"{where} must be one of {choices}, found {entry!r}")
    return entry

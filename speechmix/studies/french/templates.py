"""Load templates of homophone pairs by name, set or path.

In: a TOML file (data_templates/french/README.md describes it), or the name of a set that comes with
the package. Out: checked, immutable `Template`s.
"""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path

from ...errors import InputError
from ...files.bounded_reads import read_bounded
from .pair_template import Template, parse_template

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

"""Check the files beside the weights of a model: tokenizer, feature extractor, generation.

In: a folder in hub format. Out: nothing, or an error that names the damaged file. transformers
leaves out what it cannot read and goes on: a model would then write other text, or none.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

from ...errors import ModelError
from ..transformers_types import Tokenizer

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "added_tokens.json",
    "special_tokens_map.json",
)
_EXTRACTOR_FILES = ("preprocessor_config.json", "processor_config.json")
_PART_FILES = {"AutoTokenizer": _TOKENIZER_FILES, "AutoFeatureExtractor": _EXTRACTOR_FILES}


def check_processor_files(folder: str | Path) -> None:
    """Raise a ModelError for a damaged JSON file beside the weights.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> check_processor_files(folder)
    >>> _ = (folder / "vocab.json").write_text('{"a": 0, ')
    >>> try:
    ...     check_processor_files(folder)
    ... except ModelError as error:
    ...     "vocab.json is damaged" in str(error)
    True
    """
    for name in (*_TOKENIZER_FILES, *_EXTRACTOR_FILES, "generation_config.json"):
        path = Path(folder) / name
        if not path.is_file():
            continue
        try:
            content = json.loads(path.read_bytes())
            problem = "" if isinstance(content, dict) else f"it holds a {type(content).__name__}"
            if name == "vocab.json" and not problem:
                problem = _vocabulary_problem(content)
        except (OSError, ValueError, RecursionError) as error:
            problem = str(error)[:200]
        if problem:
            raise ModelError(
                f"{path} is damaged ({problem}): fetch or save it again, or remove it if the model "
                "needs none"
            )


def _vocabulary_problem(content: dict[str, object]) -> str:
    """What is wrong with the numbers of a vocabulary; MMS has one for each language."""
    for token, number in content.items():
        if isinstance(number, dict):
            if problem := _vocabulary_problem(number):
                return problem
        elif type(number) is not int or number < 0:
            return f"the number of token {token!r} is {number!r:.40}"
    return ""


def fitting_tokenizer(tokenizer: Tokenizer, vocabulary_size: int, source: str) -> Tokenizer | None:
    """A tokenizer, or None if it has fewer than half of the tokens of its model.

    transformers makes an empty one up where a folder has no tokenizer files; where it has them, a
    warning says that they do not belong to the model.
    """
    if 2 * len(tokenizer) >= vocabulary_size:
        return tokenizer
    if has_part_files(source, "AutoTokenizer"):
        warnings.warn(
            f"{source}: its tokenizer has {len(tokenizer)} tokens and the model {vocabulary_size}, so it "
            "is left out: fetch or save the tokenizer's files again, or give processor=",
            stacklevel=4,
        )
    return None


def has_part_files(folder: str | Path, auto_class: str) -> bool:
    """Whether a folder has files of the part that a class of transformers loads."""
    return any((Path(folder) / name).is_file() for name in _PART_FILES.get(auto_class, ()))

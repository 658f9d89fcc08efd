"""A model card: the context-mixing profile of one model, as numbers that two machines agree on.

In: finished runs. Out: a `ModelCard` for each trained model, with one profile for each run: cue
contribution against untrained twins, need of the cue, transcription, and what the measures are
worth on this model. Every number is rounded, so that rounding errors of a machine do not show; no
time, path or machine is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from os import PathLike

from ...errors import InputError
from ...files.cache_keys import digest
from ...files.json_files import JsonObject, parse_json
from ...files.text_files import read_text
from ...reporting.pages.study_results import Study
from ...runs.results.open_run import scored_models
from ...runs.results.run_folder import RUNNING
from .card_checks import parse_profile
from .card_contents import MixingProfile
from .mixing_profile import read_mixing_profile

FORMAT = 2  # of the JSON file; raised when a field changes its meaning
_WITHOUT_CHECKSUM = 1  # the format before, whose fields are the same
_KEY = "speechmix_card"


@dataclass(frozen=True)
class ModelCard:
    """The card of one model.

    Attributes
    ----------
    model : str
        Hub id, or name of a folder.
    weights : str
        Fingerprint of the weights.
    profiles : list of MixingProfile
        One for each run.
    """

    model: str
    weights: str
    profiles: Sequence[MixingProfile]

    def to_json(self) -> JsonObject:
        """Return the card as a JSON object; `read_model_card` reads it back."""
        return {_KEY: FORMAT, **asdict(self)}


def model_cards(*runs: str | PathLike[str], group: str | None = None) -> list[ModelCard]:
    """Make a card of each trained model in some runs.

    Parameters
    ----------
    *runs : path
        Folders of finished runs; a model may be in several of them.
    group : str, optional
        Column of the clips that says which belong together; by default that of the run, else
        speakers, or pair, sentence and target word.

    Returns
    -------
    list of ModelCard
        In the order of the models' names.

    Raises
    ------
    InputError
        If a folder holds no finished run with a trained model, or one name stands for different
        weights.

    Examples
    --------
    >>> from speechmix.extensions.cards.model_card import model_cards
    >>> [card.model for card in model_cards("runs/demo")]                             # doctest: +SKIP
    ['tiny-french-whisper']
    """
    profiles: dict[str, list[MixingProfile]] = {}
    weights: dict[str, str] = {}
    for path in runs:
        study = Study.open(path, group=group)
        if study.run.description.get("state") == RUNNING:
            raise InputError(f"{path} is not finished: start the run again, then make the card")
        trained = [model for model in scored_models(study.run) if model.init == "trained"]
        if not trained:
            raise InputError(f"{path} holds no trained model: score one, then make its card")
        for model in trained:
            if weights.setdefault(model.name, model.weights) != model.weights:
                raise InputError(
                    f"{model.name} has other weights in {path} than in the runs before it: make "
                    "a card of each"
                )
            profiles.setdefault(model.name, []).append(read_mixing_profile(study, model.name))
    return [ModelCard(name, weights[name], profiles[name]) for name in sorted(profiles)]


def read_model_card(path: str | PathLike[str]) -> ModelCard:
    """Read a card from its JSON file.

    Raises
    ------
    InputError
        If the file is no card, is not as it was written, or is of a newer version.
    """
    content = parse_json(read_text(path), where=str(path))
    checksum = content.pop("checksum", None) if isinstance(content, dict) else None
    if not isinstance(content, dict) or _KEY not in content:
        raise InputError(f"{path} is not a model card: `speechmix card` writes one")
    if content[_KEY] not in (_WITHOUT_CHECKSUM, FORMAT):
        raise InputError(
            f"{path} is a model card of format {content[_KEY]!r:.20}, this version reads {FORMAT}: make "
            "the card again"
        )
    try:
        if content[_KEY] == FORMAT and checksum != digest(content):
            raise InputError("its content is not that which was written")
        if not isinstance(content.get("profiles"), list) or not content["profiles"]:
            raise InputError("expected a list of profiles")
        profiles = [parse_profile(profile) for profile in content["profiles"]]
        return ModelCard(str(content["model"]), str(content["weights"]), profiles)
    except (InputError, KeyError) as error:
        raise InputError(
            f"{path} is a damaged model card ({error}): remove it and make it again"
        ) from error

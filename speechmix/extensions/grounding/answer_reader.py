"""Read the words of a window off an audio language model, which hears sound among its tokens.

Removals are made in the input: silence, or noise of the recording's spectrum, replaces all sound; a neutral token replaces
the words of the prompt. Such a model does not say where in the sound a word is, so words have no times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from ...adapters.transformers_types import ModelOutput
from ...errors import InputError
from ...interventions.removals import SOUND, TEXT_IDS, Removal, token_fills
from ...interventions.runner import NO_REMOVAL, run_interventions
from ...mixing.measures.token_objectives import token_logits
from ..explain.generated_tokens import Draft
from ..explain.model_text import write_about_clip
from .word_readings import INTACT, NO_PROMPT, NOISE, SILENCE, TokenTable, WordReadings

if TYPE_CHECKING:
    from ...adapters.model import Model
    from .windows import DecodedWindow


class AnswerReader:
    """Reads windows of one audio language model.

    Parameters
    ----------
    model : Model
    language : str, optional
    """

    def __init__(self, model: Model, language: str | None = None):
        self._model, self._language = model, language

    def read(self, window: DecodedWindow) -> WordReadings | None:
        """Return what is read of a window; None if the model writes no word."""
        clip = window.clip(self._language).with_words([("<sound>", 0.0, window.seconds)])
        try:
            writing = write_about_clip(self._model, clip, text=None, by_token=False)
        except InputError as error:
            if "writes nothing" in str(error):
                return None
            raise
        drafts = [Draft(t.id, t.label, t.position, t.word, t.fed_at) for t in writing.tokens]
        tokens = TokenTable(drafts, writing.words)
        fill = next(fill for fill in token_fills(self._model) if fill != "remove")
        prompt = [
            at for unit in writing.sources if unit.side == "asked" for at in unit.source.positions
        ]
        removals = [NO_REMOVAL, *((Removal(SOUND, (0,), name),) for name in ("zeros", "noise"))]
        removals += [(Removal(TEXT_IDS, tuple(prompt), fill),)] if prompt else []

        def read_tokens(output: ModelOutput) -> Tensor:
            log_probabilities = token_logits(output).log_softmax(dim=-1)
            return log_probabilities[:, tokens.rows, tokens.ids]

        values = run_interventions(writing.decision, removals, reader=read_tokens)
        sums = tokens.sum_by_word(values)  # [removals, W]
        by_removal = {INTACT: sums[0], SILENCE: sums[1], NOISE: sums[2]}
        by_removal |= {NO_PROMPT: sums[3]} if prompt else {}
        lowest, runners_up = tokens.runners_up(self._model, writing.logits.log_softmax(dim=-1))
        return WordReadings(
            window,
            tokens.words,
            (None,) * len(tokens.words),
            by_removal,
            lowest,
            runners_up,
            np.bincount(tokens.owners, minlength=len(tokens.words)),
        )

"""Score of one word by a CTC model, read in the word's own frames.

In: a prepared decision about a clip with a target. Out: an objective that does not depend on how other
words are written, and that can be read where the sound ends behind the word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..adapters.generation.ctc_paths import best_ctc_path
from ..mixing.maps.numerics import ctc_log_probability
from ..mixing.measures.token_objectives import Objective, token_logits
from .target_readings import require_clip, target_labels

if TYPE_CHECKING:
    from ..adapters.transformers_types import ModelOutput
    from .decision import Decision


def ctc_word_objective(decision: Decision, score: str = "log_probability") -> Objective:
    """Log-probability of a word's letters in its frames, summed over all alignments in them.

    The frames are found once: those of the word, and those of its letters on the best path of the
    intact model through the whole text, as far as no letter of another word stands there. So the
    score does not depend on how later words are written, and can be read where the sound ends
    earlier. "contrast" subtracts the score of the foil.
    """
    model, clip = decision.model, require_clip(decision)
    labels, indices = target_labels(decision, clip)
    scores = decision.read_output(decision.inputs, lambda output: token_logits(output)[0])
    blank = model.config.pad_token_id
    paths, _ = best_ctc_path(scores.float().log_softmax(dim=-1).cpu(), labels, blank=blank)
    (word,) = decision.select_sources("encoder", [clip.target or 0])
    frames = [*word.positions, *(frame for index in indices for frame in paths[index])]
    before = paths[indices[0] - 1][-1] if indices[0] else -1
    behind = paths[indices[-1] + 1][0] if indices[-1] + 1 < len(labels) else len(scores)
    first, stop = max(min(frames), before + 1), min(max(frames) + 1, behind)
    spellings = [[labels[index] for index in indices]]
    if score == "contrast":
        spellings.append(list(model.tokenizer(clip.foil).input_ids))

    def function(output: ModelOutput) -> Tensor:
        rows = token_logits(output).log_softmax(dim=-1)[:, first:stop]
        target, *foil = (
            torch.stack([ctc_log_probability(row, ids, blank=blank) for row in rows])
            for ids in spellings
        )
        return target - foil[0] if foil else target

    return Objective(function, decision.objective.span, {"kind": score, "frames": [first, stop]})

"""Score of one word by a CTC model, computed in the frames of the word alone.

In: a prepared decision about a clip with a target. Out: an objective that does not depend on how other
words are written, and that can be computed for a sound that ends behind the word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...adapters.generation.emission_paths import best_ctc_path
from ...interventions.decision import require_clip, target_labels
from ...mixing.maps.numerics import ctc_log_probability
from ...mixing.measures.token_objectives import Objective, token_logits

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...adapters.transformers_types import ModelOutput
    from ...interventions.decision import Decision


def has_letter_logits(model: Model) -> bool:
    """Return whether a model's logits are letters in frames, and not labels of the whole sound."""
    return model.capabilities.decoding == "frames" and not model.has_label_head


def ctc_word_objective(decision: Decision, score: str = "log_probability") -> Objective:
    """Return the log-probability of a word's letters in its frames, summed over all alignments.

    The frames are fixed once: from the word's first frame to its last, extended to the frames of its
    letters on the best path of the intact model through the whole text, and limited by the letters of
    the words before and after. So the score does not depend on how later words are written, and can
    be computed for a sound that ends earlier. "contrast" subtracts the score of the foil.
    """
    model, clip = decision.model, require_clip(decision)
    labels, indices = target_labels(decision, clip)
    scores = decision.read_output(decision.inputs, lambda output: token_logits(output)[0])
    blank = model.config.pad_token_id
    paths, _ = best_ctc_path(scores.float().log_softmax(dim=-1).cpu(), labels, blank=blank)
    (word,) = decision.select_sources("encoder", [clip.target or 0])
    frames = [*word.positions, *(frame for index in indices for frame in paths[index])]
    previous_frame = paths[indices[0] - 1][-1] if indices[0] else -1
    next_frame = paths[indices[-1] + 1][0] if indices[-1] + 1 < len(labels) else len(scores)
    first, stop = max(min(frames), previous_frame + 1), min(max(frames) + 1, next_frame)
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

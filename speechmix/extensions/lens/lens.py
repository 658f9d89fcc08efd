"""Lenses: what a model would have written if it had ended behind an earlier layer.

In: a model with its head, and a clip or sentence. Out: a `LensResult`. The state behind layer k takes
the place of the last one's; all that follows is the model's own (`adapters.patching.layer_replay`):

    logit    the last stack ends at layer k: its final norm and head read the state (nostalgebraist 2020)
    encoder  the encoder ends at layer k: the decoder reads it behind the encoder's final norm (Langedijk et al. 2024)
    tuned    either, behind an affine map of the layer's state (Belrose et al. 2023)
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ...adapters.capture.device_copy import inputs_to_device
from ...adapters.capture.hidden_states import INPUT, stacks_with_states
from ...adapters.generation.greedy_generation import transcribe
from ...adapters.generation.token_words import decoding_options
from ...adapters.patching.layer_replay import LayerReplay
from ...errors import InputError
from ...inputs.clips.clip import Clip
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.timed_words import Word
from ...interventions.decision import Decision
from ...mixing.measures.token_objectives import token_logits
from ...mixing.passes.request import MixRequest
from ...mixing.passes.view_kinds import make_view
from .lens_readings import LensReader, list_readers, text_token_indices
from .lens_result import LensResult, TunedLens

if TYPE_CHECKING:
    from ...adapters.generation.model_inputs import PreparedInputs
    from ...adapters.model import Model
    from ...mixing.passes.item_view import Item

LENSES = ("logit", "encoder")


def lens(
    model: Model,
    item: Item,
    *,
    kind: str = "logit",
    tuned: TunedLens | str | Path | None = None,
    objective: tuple[int, int, int] | None = None,
) -> LensResult:
    """Read words, margins and the text off every layer.

    Parameters
    ----------
    model : Model
        With a head that writes: CTC, encoder-decoder, transducer, decoder, masked.
    item : Clip, Sentence, str or mapping
        Its words are read, and its target against its foil if it has them.
    kind : {"logit", "encoder"}
        Which stack ends at each layer: the last one, or the encoder in front of a decoder.
    tuned : TunedLens or path, optional
        Of this model and kind.
    objective : tuple of int, optional
        Position, token id and foil's id, for prepared inputs.

    Returns
    -------
    LensResult

    Raises
    ------
    InputError
        If the model has no such stack, classifies, or does not take the item.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load("bundled:tiny-french-ctc", device="cpu")
    >>> result = speechmix.lens(model, bundled.clips()[1])  # synthetic: "nos maisons"
    >>> len(result.texts), result.texts[-1]
    (5, 'nos maisons')
    """
    item = Sentence(item) if isinstance(item, str) else item
    if isinstance(item, Clip) and item.text and not item.words:
        item = item.replace(words=_untimed_words(item.text, item.duration))
    stack = lens_stack(model, kind)
    tuned = TunedLens.load(tuned) if isinstance(tuned, str | Path) else tuned
    if tuned is not None and tuned[:2] != (stack, model.fingerprint):
        raise InputError(
            f"expected a tuned lens of the {stack} of {model.name} ({model.fingerprint}), found one "
            f"of the {tuned.stack} of {tuned.weights}: fit one to this model"
        )
    if tuned is not None:
        _check_maps(tuned, len(model.stacks[stack]), model.stacks[stack].width)
    prepared, decision = prepare_item(model, item, objective)
    # What an encoder gives must not be remembered while it ends earlier.
    model = copy(model)
    model.activation_cache, model.generated_texts = None, {}
    with model.in_use(model.state_dtype), torch.no_grad():
        inputs = inputs_to_device(prepared.inputs, model.device, model.state_dtype)
        replay = LayerReplay.record(model, stack, inputs)
        readers: list[LensReader] = []
        readings, texts = [], []
        for layer in reversed(range(INPUT, len(model.stacks[stack]))):  # the model's own text first
            with replay.ending_at(layer, None if tuned is None else tuned.transform(layer)):
                logits = token_logits(model.run_with_head(inputs))[0].double()
                texts.append(_write(model, item, prepared, decision, logits, stack))
            readers = readers or list_readers(model, item, prepared, decision, texts[0])
            log_probs = logits.log_softmax(dim=-1)
            readings.append([read(log_probs) for _, read in readers])
    values = np.array(readings[::-1], float).reshape(len(texts), len(readers), 3)
    margins, log_probabilities, ranks = np.moveaxis(values, 2, 0)
    return LensResult(
        clip="inputs" if isinstance(item, Mapping) else str(item.name),
        kind=kind if tuned is None else f"tuned {kind}",
        stack=stack,
        choices=tuple(choice for choice, _ in readers),
        margins=margins,
        log_probabilities=log_probabilities,
        ranks=ranks,
        texts=tuple(texts[::-1]),
        reference=str(item.text or "") if isinstance(item, Clip) else "",
        provenance={
            "model": model.name,
            "init": model.init,
            "seed": model.seed,
            "weights": model.fingerprint,
        },
    )


def lens_stack(model: Model, kind: str) -> str:
    """Return the stack that ends earlier in a kind of lens.

    Raises
    ------
    InputError
        If the model has none, or gives labels.
    """
    if kind not in LENSES:
        raise InputError(f"kind should be one of {LENSES}, found {kind!r}")
    if model.has_label_head:
        raise InputError(
            f"{model.name} gives labels: a lens needs a head that writes. Use speechmix.probe"
        )
    stacks = stacks_with_states(model)
    has_decoder = len(stacks) > 1 or model.capabilities.is_transducer
    if kind == "encoder" and not has_decoder:
        raise InputError(f"{model.name} has no decoder behind an encoder: use kind='logit'")
    return stacks[0] if kind == "encoder" else stacks[-1]


def prepare_item(
    model: Model, item: Item, objective: tuple[int, int, int] | None = None
) -> tuple[PreparedInputs, Decision | None]:
    """Prepare the inputs of an item, and its decision if it has a target or an objective."""
    if objective is not None or getattr(item, "target", None) is not None:
        decision = Decision.prepare(model, item, objective=objective)
        return decision.prepared, decision
    view = make_view(model, item, MixRequest(units="frame" if model.hears else "token"))
    view.prepare(model.capabilities.prepared_stacks)
    return view.prepared, None


def _check_maps(tuned: TunedLens, layer_count: int, width: int) -> None:
    maps, shape = tuned.maps, (layer_count, width + 1, width)
    if maps.shape != shape or maps.dtype.kind != "f" or not np.isfinite(maps).all():
        raise InputError(
            f"expected finite maps [{', '.join(map(str, shape))}] of a tuned lens of the {tuned.stack}, "
            f"found {maps.dtype} [{', '.join(map(str, maps.shape))}]: fit it again"
        )


def _untimed_words(text: str, duration: float) -> list[Word]:
    """Return the words of a text: its tokens are read by word, and the times of words are not read."""
    labels = text.split()
    edges = np.linspace(0, duration, len(labels) + 1)
    return [Word(*word) for word in zip(labels, edges[:-1], edges[1:], strict=True)]


def _write(
    model: Model,
    item: Item,
    prepared: PreparedInputs,
    decision: Decision | None,
    logits: Tensor,
    stack: str,
) -> str:
    """Return what the model writes: at frames, freely behind an encoder, or each token after the text before it."""
    decoding = model.capabilities.decoding
    if isinstance(item, Mapping) or model.tokenizer is None:
        return ""
    if decoding == "frames":
        return str(model.tokenizer.decode(logits.argmax(dim=-1)).strip())
    if stack == "encoder" and decoding != "masked":
        if isinstance(item, Clip) and model.can_transcribe:
            return transcribe(model, item)
        return "" if model.family.generate is None else model.family.generate(model, item).text
    positions = [index - 1 for index in text_token_indices(prepared)]
    if decoding == "masked":
        positions = [] if decision is None else decision.read_positions
    ids = logits[positions].argmax(dim=-1).tolist()
    options = {"skip_special_tokens": True, **decoding_options(model)}
    return str(model.tokenizer.decode(ids, **options)).strip()

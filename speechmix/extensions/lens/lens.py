"""Lenses: what a model would have written if it had ended behind an earlier layer.

In: a model with its head, and a clip or sentence. Out: a `LensResult`. The state behind layer k takes
the place of the last one's; all that follows is the model's own (`extensions.lens.lens`):

    logit    the last stack ends at layer k: its final norm and head read the state (nostalgebraist 2020)
    encoder  the encoder ends at layer k: the decoder reads it behind the encoder's final norm (Langedijk et al. 2024)
    tuned    either, behind an affine map of the layer's state (Belrose et al. 2023)

Let a stack end behind an earlier layer, for logit lenses: everything behind it runs as it is.

In: a model and inputs of one item. Out: `LayerReplay`, with what each layer returned in the intact
pass. While `ending_at` lasts, no layer computes anything: each returns what it returned, and the
last one the state of another. Final norm, head and decoder are the model's own code. So the last
layer gives the model's own output, bit for bit.

What a lens reads of the log-probabilities behind each layer: words, and a target against its foil.

In: an item's inputs and decision. Out: a function for each choice. Margins are in nats:

    foil       log p(target) - log p(foil), where they part; of a CTC model of the whole text with either
    runner_up  log p of a word's token less that of the likeliest other one, the lowest of its tokens
    absence    of a CTC model: log p(text) - log p(text without the word)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from ...adapters.binding.bound_layers import Stack
from ...adapters.capture.device_copy import inputs_to_device
from ...adapters.capture.forward_pass import INPUT, arguments_by_name, stacks_with_states
from ...adapters.capture.layer_run import first_output, stub_outputs
from ...adapters.generation.decoder_text import decoding_options
from ...adapters.generation.greedy_generation import transcribe
from ...adapters.model import Model
from ...adapters.transformers_types import HookArguments, HookKeywords, ModelOutput
from ...errors import InputError, ModelError
from ...inputs.clips.clip import Clip
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.timed_words import Word
from ...interventions.decision import Decision
from ...mixing.maps.numerics import ctc_log_probability
from ...mixing.measures.token_objectives import token_logits
from ...mixing.passes.request import MixRequest
from ...mixing.passes.view_kinds import make_view
from .lens_result import LensChoice, LensResult, TunedLens

if TYPE_CHECKING:
    from ...adapters.generation.model_inputs import PreparedInputs
    from ...mixing.passes.item_view import Item

Reading = tuple[float, float, float]  # margin, log-probability, rank (NaN of a whole text)
LensReader = tuple[LensChoice, Callable[[Tensor], Reading]]  # reads log-probabilities [T, V]


def list_readers(
    model: Model,
    item: Item,
    prepared: PreparedInputs,
    decision: Decision | None,
    generated_text: str,
) -> list[LensReader]:
    """Return readers of each word, behind that of the target against its foil.

    Parameters
    ----------
    generated_text : str
        What the model writes; a CTC model reads its words where the item has no text.
    """
    details = {} if decision is None else decision.objective.details
    word, foil = getattr(item, "target", None), str(getattr(item, "foil", None) or "")
    reads_words = not isinstance(item, Mapping) and model.tokenizer is not None
    if model.capabilities.decoding == "frames" and reads_words:
        text = str(getattr(item, "text", None) or generated_text)
        readers = _text_readers(model, " ".join(text.split()))
    else:
        is_masked = model.capabilities.decoding == "masked"
        readers = _word_readers(prepared, item) if reads_words and not is_masked else []
    if details.get("kind") == "contrast" and "texts" in details:
        choice = LensChoice(word, str(details["label"]), "foil", foil)
        readers.insert(0, (choice, _read_texts(model, *details["texts"])))
    elif "position" in details and ("foil" in details or not readers):
        against = "foil" if "foil" in details else "runner_up"
        foil = foil or str(details.get("foil_label", ""))
        choice = LensChoice(word, str(details["label"]), against, foil)
        read = _read_tokens([details["token"]], [details["position"]], details.get("foil"))
        readers.insert(0, (choice, read))
    return readers


def text_token_indices(prepared: PreparedInputs) -> list[int]:
    """Return the indices of the text's tokens among the decoder's, without one that nothing predicts."""
    if prepared.tokens is None:
        return []
    audio_tokens, tokens = prepared.audio_tokens, prepared.tokens
    first = tokens.n_prefix
    if audio_tokens is not None and audio_tokens.answer_position is not None:
        first = audio_tokens.answer_position
    indices = range(max(first, 1), len(tokens.ids))
    return [index for index in indices if tokens.kinds[index] == "token"]


def _word_readers(prepared: PreparedInputs, item: Item) -> list[LensReader]:
    """Return readers of the words of a decoder's text; of its tokens where it has no words."""
    if prepared.tokens is None:
        return []
    tokens, groups = prepared.tokens, dict[tuple[int | None, int], list[int]]()
    token_indices = text_token_indices(prepared)
    has_words = any(tokens.words[index] is not None for index in token_indices)
    for index in token_indices:
        word = tokens.words[index]
        if word is None and has_words:  # a space between them
            continue
        groups.setdefault((word, index if word is None else -1), []).append(index)
    clip_words = item.spoken_words if isinstance(item, Clip) else ()
    word_labels = tokens.word_labels or [word.text for word in clip_words]
    readers = []
    for (word, _), indices in groups.items():
        label = "".join(tokens.labels[index] for index in indices)
        if word is not None and word < len(word_labels):  # two tokens may spell one character
            label = word_labels[word]
        ids = [tokens.ids[index] for index in indices]
        positions = [index - 1 for index in indices]
        choice = LensChoice(word, label.strip(), "runner_up")
        readers.append((choice, _read_tokens(ids, positions)))
    return readers


def _read_tokens(
    ids: Sequence[int], positions: Sequence[int], foil_id: int | None = None
) -> Callable[[Tensor], Reading]:
    """Read tokens at the positions that predict them; the rank is the lowest of theirs."""

    def read(log_probs: Tensor) -> Reading:
        rows = log_probs[list(positions)]
        index = torch.tensor(ids, device=rows.device)[:, None]
        values = rows.gather(1, index)
        ranks = 1 + (rows > values).sum(dim=1)
        if foil_id is None:
            others = rows.scatter(1, index, -torch.inf).amax(dim=1)
        else:
            others = rows[:, foil_id]
        margin = (values[:, 0] - others).min()
        return float(margin), float(values.sum()), float(ranks.max())

    return read


def _text_readers(model: Model, text: str) -> list[LensReader]:
    """Return readers of each word of a CTC model's text: how much likelier the text is with it."""
    words, readers = text.split(), []
    for index, word in enumerate(words):
        rest = " ".join(words[:index] + words[index + 1 :])
        choice = LensChoice(index, word, "absence")
        readers.append((choice, _read_texts(model, text, rest)))
    return readers


def _read_texts(model: Model, text: str, other_text: str) -> Callable[[Tensor], Reading]:
    blank = model.config.pad_token_id
    labels = [model.tokenizer(each).input_ids if each else [] for each in (text, other_text)]

    def read(log_probs: Tensor) -> Reading:
        score, other_score = (
            float(
                ctc_log_probability(log_probs, ids, blank=blank)
                if ids
                else log_probs[:, blank].sum()
            )
            for ids in labels
        )
        return score - other_score, score, float("nan")

    return read


@dataclass(frozen=True, eq=False)
class LayerReplay:
    """What the layers of a model returned in one pass.

    Parameters
    ----------
    model : Model
    stack : str
        The stack that can end earlier. Those before it are replayed as they were.
    states : list of Tensor [L + 1]
        What entered its first layer, and what each layer passed on.
    outputs : dict of str to list
        What each layer returned, by stack.
    """

    model: Model
    stack: str
    states: list[Tensor]
    outputs: Mapping[str, list[ModelOutput]]

    @classmethod
    def record(cls, model: Model, stack: str, inputs: Mapping[str, Tensor]) -> LayerReplay:
        """Run a model that is in use (`Model.in_use`) once, without gradients.

        Raises
        ------
        InputError
            If its head reads all layers.
        ModelError
            If the layers do not run once each, in their order.
        """
        if getattr(model.config, "use_weighted_layer_sum", False):
            raise InputError(f"the head of {model.name} reads a sum of all layers: no lens fits it")
        names, states = stacks_with_states(model), list[Tensor]()
        outputs = {name: list[ModelOutput]() for name in names[: names.index(stack) + 1]}

        def record_input(module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
            states.append(arguments_by_name(module, args, kwargs)[0])

        def make_hook(name: str) -> Callable[[nn.Module, HookArguments, ModelOutput], None]:
            return lambda module, args, output: outputs[name].append(output)

        with ExitStack() as hooks:
            first_layer = model.stacks[stack].layers[0].module
            handle = first_layer.register_forward_pre_hook(record_input, with_kwargs=True)
            hooks.callback(handle.remove)
            for name in outputs:
                for module in _layer_modules(model.stacks[name]):
                    hooks.callback(module.register_forward_hook(make_hook(name)).remove)
            model.run_with_head(inputs_to_device(inputs, model.device, model.state_dtype))
        for name, layer_outputs in outputs.items():
            if len(layer_outputs) != len(model.stacks[name]):
                raise ModelError(
                    f"{model.name}: expected {len(model.stacks[name])} layers of the {name} to run "
                    f"once each, found {len(layer_outputs)} runs"
                )
        return cls(model, stack, [states[0], *map(first_output, outputs[stack])], outputs)

    @contextmanager
    def ending_at(
        self, layer: int, transform: Callable[[Tensor], Tensor] | None = None
    ) -> Iterator[None]:
        """Let the last layer of the stack return the state of `layer`, as long as the block lasts.

        Parameters
        ----------
        layer : int
            From -1, the input of the first layer.
        transform : callable, optional
            Given this state, returns what is put in its place.
        """
        state = self.states[layer - INPUT].clone()  # what follows may write into it
        state = state if transform is None else transform(state)
        with ExitStack() as exit_stack:
            for name, outputs in self.outputs.items():
                if name == self.stack:
                    last = outputs[-1]
                    last = (state, *last[1:]) if isinstance(last, tuple) else state
                    outputs = [*outputs[:-1], last]
                returned = cycle(outputs)
                for module in _layer_modules(self.model.stacks[name]):
                    exit_stack.enter_context(stub_outputs(module, returned))
            yield


def _layer_modules(stack: Stack) -> list[nn.Module]:
    """Modules of the layers; one that several layers share is there once."""
    return list(dict.fromkeys(layer.module for layer in stack.layers))


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
    view = make_view(
        model,
        item,
        MixRequest(units="frame" if model.hears else "token"),
        model.capabilities.prepared_stacks,
    )
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

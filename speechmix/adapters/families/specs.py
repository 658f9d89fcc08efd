"""Tables that say where attention, values and norms are inside a model's layers.

A *stack* is a run of layers of which one attention block is studied: "encoder", "decoder" (causal
self-attention) or "cross" (the same decoder layers, attention from tokens to audio). A `StackSpec`
is one row of a family's table; bound_layers.py binds it to a loaded model. A `Family` is the table with
the few things that cannot be data.

The smallest inputs of a model, for its self-check: random numbers, the same each time.

Which transformers class loads a checkpoint, read off its config.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.models.auto import modeling_auto

from ..transformers_types import Config


@dataclass(frozen=True)
class AttentionSpec:
    """Paths, from a layer, of one attention block.

    Parameters
    ----------
    module : str
        The attention module: what runs between the layer's input (or its norm) and the residual
        sum.
    value, key, output : str
        Its value, key and output projections. With `is_rerun`, the first two are empty where some
        layers take keys and values from an earlier one.
    norm : str, optional
        The block's layer norm: of its input (pre-norm) or of its residual sum (post-norm). Together
        with `query` and the stack's `feed_forwards` it describes the layer well enough for the
        delta engine and for decompositions.
    query : str, optional
        Query projection, where it is a module of its own.
    branch_norm : str, optional
        A norm of the block's output before the residual sum (Gemma 3).
    needs_eager : bool
        True for attention that torch's function cannot compute (capped scores, positions of its
        own): it is run "eager", its weights are read off the softmax and its values off the product
        behind it.
    is_rerun : bool
        True if something lies between attention's function and its projections (values pass a norm,
        its result a gate), or its sum with the residual stream is not known. Layers then run as a
        whole, with what the function returned replaced; measures that read the output projection
        or the stream refuse.
    """

    module: str
    value: str
    key: str
    output: str
    norm: str | None = None
    query: str | None = None
    branch_norm: str | None = None
    needs_eager: bool = False
    is_rerun: bool = False

    @classmethod
    def of(
        cls,
        module: str,
        *,
        value: str = "v_proj",
        key: str = "k_proj",
        output: str = "out_proj",
        query: str | None = None,
        needs_eager: bool = False,
        **norms: str,
    ) -> AttentionSpec:
        """Plan of a block whose projections are attributes of the attention module itself."""
        value, key, output = (f"{module}.{path}" for path in (value, key, output))
        query = None if query is None else f"{module}.{query}"
        return cls(
            module,
            value,
            key,
            output,
            query=query,
            needs_eager=needs_eager,
            is_rerun=False,
            **norms,
        )


@dataclass(frozen=True)
class FeedForwardSpec:
    """Paths, from a layer, of one feed-forward block: down(activation(up x)), or
    down(activation(gate x) * up x).

    Parameters
    ----------
    norm, up, down, activation : str
    gate : str, optional
        Where one projection gives both, ``path:0`` and ``path:1`` are its halves.
    branch_norm : str, optional
        As for `AttentionSpec`.
    scale : float
        What the block's output is multiplied by before it is added (a Conformer's halves count one
        half).
    """

    norm: str
    up: str
    down: str
    activation: str
    gate: str | None = None
    branch_norm: str | None = None
    scale: float = 1.0


@dataclass(frozen=True)
class ConvolutionSpec:
    """Paths, from a layer, of a convolution over positions behind attention, as Conformers have it.

    What it adds to the residual stream is
    contract(activation(depthwise_norm(depthwise(glu(expand(norm x)))))), where glu of two halves is
    the first times the sigmoid of the second.

    Parameters
    ----------
    norm, expand, depthwise, depthwise_norm, activation, contract : str
    causal : bool
        True if a position's window ends with itself; else it lies around it.
    """

    norm: str
    expand: str
    depthwise: str
    depthwise_norm: str
    activation: str
    contract: str
    causal: bool = False


@dataclass(frozen=True)
class StackSpec:
    """Where one stack is, as paths from the base model, and what is known of its layers.

    Parameters
    ----------
    name : {"encoder", "decoder", "cross"}
    layers : str
        Path of the list of layers.
    blocks : tuple of AttentionSpec
        All attention blocks of a layer in the order they run.
    block_index : int
        Which of `blocks` this stack studies.
    norm_order : {"pre", "post"}
        Where the layer norms are: before attention and feed-forward, or after the residual sums.
    final_norm : str, optional
        Path of the norm that follows the last layer. States of the last layer are compared behind
        it.
    causal : bool
        True if a position sees only itself and what is before it.
    feed_forwards : tuple of FeedForwardSpec
        What follows the attention blocks, in order (an adapter is one more of them). Empty where it
        is not described: Value Zeroing then replays the layer's own modules.
    convolution : ConvolutionSpec, optional
        What mixes positions between attention and `feed_forwards` (pre-norm layers). A change of
        one row's attention then reaches other rows of the same layer, and replay runs all rows.
    closing_norm : str, optional
        Path, from a layer, of a norm behind the last residual sum of every layer (Conformers).
    parallel : bool
        True if attention and feed-forward read the same states and are added to them together
        (GPT-NeoX): then nothing in the layer lies behind attention.
    shared : tuple of str
        Arguments of a layer that hold for all clips of a batch and have no axis of clips: tables of
        relative positions (DeBERTa, SpeechT5).
    between : str
        What mixes positions between layers ("a convolution behind its first layer"); empty if
        nothing does. Maps of single layers do not show it. Measures that follow states from layer
        to layer refuse, and rollouts leave it out.
    """

    name: str
    layers: str
    blocks: tuple[AttentionSpec, ...]
    norm_order: str
    block_index: int = 0
    final_norm: str | None = None
    causal: bool = False
    feed_forwards: tuple[FeedForwardSpec, ...] = ()
    convolution: ConvolutionSpec | None = None
    closing_norm: str | None = None
    parallel: bool = False
    shared: tuple[str, ...] = ()
    between: str = ""

    def with_root(self, root: str, **changes: Any) -> StackSpec:
        """Return the same layers inside a larger model: list of layers and final norm are parts of
        the module `root`.

        Examples
        --------
        >>> spec = StackSpec(
        ...     "decoder", "layers", (AttentionSpec.of("self_attn"),), "pre", final_norm="norm"
        ... )
        >>> spec.with_root("text").final_norm
        'text.norm'
        """
        layers, norm = self.layers.rpartition(".")[2], self.final_norm
        norm = norm and f"{root}.{norm.rpartition('.')[2]}"
        return replace(self, **{"layers": f"{root}.{layers}", "final_norm": norm, **changes})


def random_features(*shape: int) -> Tensor:
    """Draw features of a shape from a normal distribution."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def tiny_ids(config: Config) -> dict[str, Tensor]:
    """Draw six tokens, the smallest input of a text model."""
    generator = torch.Generator().manual_seed(0)
    return {"input_ids": torch.randint(config.vocab_size, (1, 6), generator=generator)}


# Of the classes for a model type the first of these: speech models, then the bare model.
_MAPPINGS = (
    "MODEL_FOR_CTC_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_RNNT_MAPPING_NAMES",
    "MODEL_FOR_TDT_MAPPING_NAMES",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_MAPPING_NAMES",
)


def checkpoint_class(config: Config, default: str = "AutoModel") -> str:
    """Name the transformers class a checkpoint was saved from; the bare model where that is not
    known."""
    names = [name for name in config.architectures or [] if hasattr(transformers, name)]
    return names[0] if names else default


def class_of_model_type(model_type: str) -> str:
    """Name the class that transformers has for a model type, a speech model if there is one; empty
    for a type that it does not have."""
    names = (getattr(modeling_auto, mapping, {}).get(model_type) for mapping in _MAPPINGS)
    return next((name for name in names if isinstance(name, str)), "")


def ctc_checkpoint_class(config: Config) -> str:
    """Name the auto class of an encoder that may have a CTC head, or a classification head."""
    return class_of_head(
        config,
        {
            "ForCTC": "AutoModelForCTC",
            "ForSequenceClassification": "AutoModelForAudioClassification",
        },
        "AutoModel",
    )


def class_of_head(config: Config, class_by_ending: Mapping[str, str], default: str) -> str:
    """Name the class for the head that a checkpoint was saved with, by how its class name ends."""
    return next(
        (
            class_name
            for ending, class_name in class_by_ending.items()
            if any(name.endswith(ending) for name in config.architectures or [])
        ),
        default,
    )

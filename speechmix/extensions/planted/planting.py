"""Plant a known information path in a stack of a model.

In: a case, a family of models, a stack and a layer; a seed for contents and noise, another for the
basis of the hidden states. Out: a `Planted`: an unmodified Hugging Face model as a speechmix
`Model`, its prepared inputs, and the truth.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...adapters.loading.load import load
from ...adapters.model import Model
from ...errors import InputError
from .case_table import (
    CUE,
    TARGET,
    Case,
    Edge,
    Path,
    decisive_inputs,
    get_case,
    has_read_out,
    planted_edges,
    reached_inputs,
    sources_stack,
    step_stack,
)
from .hand_set_models import FAMILIES, PlantedFamily
from .hand_set_weights import (
    N_LAYERS,
    N_POSITIONS,
    NO_TOKEN,
    YES_TOKEN,
    Blueprint,
    HandSetLayer,
    Head,
    Neuron,
    Noise,
    build_attention,
    build_feed_forward,
    channel_basis,
)

# Every position copies its own content to itself and a little of everybody's, and a decoder's a
# little of every frame's (1 to
# 5 % of a planted edge): no layer but those of "nothing" is idle, and there is a background that an
# edge has to rise above.
_SELF_HEAD = Head(
    {p: (p,) for p in range(N_POSITIONS)}, "content", "own", gain=0.5, logit=2.8, glances=0.7
)
_OVERHEAR_HEAD = Head({}, "content", "own", gain=0.5, logit=2.8, glances=0.7)
# What the encoder knows of the answer comes to the decoder by this head, in the last layer.
_READ_OUT_HEAD = Head({TARGET: (TARGET,)}, "answer", "answer")


@dataclass(frozen=True)
class Planted:
    """A model whose edges are known, because its weights were set.

    Parameters
    ----------
    case : Case
    family, stack : str
    layer : int
        The case's first layer.
    model : Model
        Float64, loaded without self-check.
    contents : mapping of str to tuple of int
        +1 or -1 at each position, by stack that takes in contents; 0 at the empty first one.
    edges : frozenset of (stack, layer, target, source)
        Pairs of positions where the layer's output at the target changes with the source's state.
        Not a position's own.
    reached : frozenset of (stack, target, stack, source)
        Final states that hold something of another position's input.
    decisive : frozenset of (stack, source)
        Inputs of other positions on which the margin depends.
    position, target_id, foil_id : int
        Where something is said, which token the model prefers there, and which not.
    basis : Tensor [C, D]
        Directions of the channels in the hidden states.
    """

    case: Case
    family: str
    stack: str
    layer: int
    model: Model
    contents: Mapping[str, tuple[int, ...]]
    edges: frozenset[Edge]
    reached: frozenset[Path]
    decisive: frozenset[tuple[str, int]]
    position: int
    target_id: int
    foil_id: int
    basis: Tensor = field(repr=False)

    @property
    def item(self) -> dict[str, Tensor]:
        """Prepared inputs, for `speechmix.mix`."""
        return FAMILIES[self.family].prepare(self.contents)

    @property
    def source_stack(self) -> str:
        """The stack that the sources of the planted stack's maps come from."""
        return sources_stack(self.stack)

    @property
    def objective(self) -> tuple[int, int, int]:
        """The margin as `speechmix.mix(objective=...)` takes it."""
        return self.position, self.target_id, self.foil_id

    def negate_contents(
        self, inputs: Collection[tuple[str, int]] | None = None
    ) -> dict[str, Tensor]:
        """Return prepared inputs with the contents of some positions negated: the other item of a
        minimal pair.

        Parameters
        ----------
        inputs : collection of (stack, position), optional
            All by default.
        """
        contents = {
            stack: [-c if inputs is None or (stack, p) in inputs else c for p, c in enumerate(row)]
            for stack, row in self.contents.items()
        }
        return FAMILIES[self.family].prepare(contents)

    def margin(self, item: Mapping[str, Tensor] | None = None) -> float:
        """Return the logit of the target minus that of the foil, at the output position."""
        with self.model.in_use(), torch.no_grad():
            logits = self.model.module(**(self.item if item is None else item)).logits[
                0, self.position
            ]
        return float(logits[self.target_id] - logits[self.foil_id])


def plant(
    case: str = "copy",
    *,
    family: str = "gpt2",
    stack: str | None = None,
    layer: int = 1,
    seed: int = 0,
    rotation_seed: int | None = 0,
    noise: float = 0.0,
    constant: float = 30.0,
) -> Planted:
    """Plant a case in a model of a family.

    Parameters
    ----------
    case : str
        Of `speechmix.planted.cases()`.
    family : {"bert", "gpt2", "wav2vec2", "whisper"}
    stack : str, optional
        Where the edges are; by default the family's only stack, for Whisper "cross". What arrives
        in Whisper's encoder is read out in the last layer of cross-attention; of a relay in "cross"
        the first edge is in the encoder.
    layer : int
        Counted from 0; of three.
    seed : int
        Of the contents that the case leaves open, and of the noise.
    rotation_seed : int, optional
        Of the basis; None for one along pairs of axes.
    noise : float
        Deviation of the Gaussian noise on every weight between channels, of which those in use are
        1 or more.
    constant : float
        C, the constant channel. HandSetLayer norms are linear up to 1 / C^2, and what is mixed is 1 / C of
        a state's length.

    Returns
    -------
    Planted

    Raises
    ------
    InputError
        If there is no such case, family, stack or layer.

    Examples
    --------
    >>> planted = plant("copy", family="gpt2", layer=1)
    >>> sorted(planted.edges), planted.margin() > 0, planted.margin(planted.negate_contents([("decoder", 2)])) > 0
    ([('decoder', 1, 6, 2)], True, False)
    """
    case_to_plant, planted_family = get_case(case), _get_family(family)
    stack = _resolve_stack(planted_family, family, stack)
    _check_options(case_to_plant, family, layer, noise, constant)
    basis, generator = channel_basis(rotation_seed), torch.Generator().manual_seed(seed)
    contents = {name: _draw_contents(case_to_plant, generator) for name in planted_family.inputs}
    layers = _build_layers(case_to_plant, planted_family, stack, layer, Noise(noise, seed))
    module = planted_family.build(Blueprint(layers, basis, constant, case_to_plant.shift))
    answer, other_answer = (
        (NO_TOKEN, YES_TOKEN) if case_to_plant.answer < 0 else (YES_TOKEN, NO_TOKEN)
    )
    return Planted(
        case_to_plant,
        family,
        stack,
        layer,
        load(module, check=False, device="cpu"),
        contents,
        planted_edges(case_to_plant, planted_family, stack, layer),
        reached_inputs(case_to_plant, planted_family, stack),
        decisive_inputs(case_to_plant, planted_family, stack),
        TARGET,
        answer,
        other_answer,
        basis,
    )


def _get_family(family: str) -> PlantedFamily:
    if family not in FAMILIES:
        raise InputError(f"family should be one of {', '.join(FAMILIES)}, found {family!r}")
    return FAMILIES[family]


def _resolve_stack(planted_family: PlantedFamily, family: str, stack: str | None) -> str:
    stack = planted_family.stacks[-1] if stack is None else stack
    if stack not in planted_family.stacks:
        raise InputError(
            f"{family} has the stacks {', '.join(planted_family.stacks)}, found stack={stack!r}"
        )
    return stack


def _check_options(case: Case, family: str, layer: int, noise: float, constant: float) -> None:
    if case.families and family not in case.families:
        raise InputError(
            f"{case.name!r} can be planted in {', '.join(case.families)}, not in {family}"
        )
    if not 0 <= layer <= N_LAYERS - case.span:
        raise InputError(
            f"{case.name!r} takes {case.span} of {N_LAYERS} layers: layer should be 0 to "
            f"{N_LAYERS - case.span}, found {layer}"
        )
    if not noise >= 0 or not constant >= 5:
        raise InputError(
            f"expected noise of 0 or more and a constant of 5 or more, found {noise} and {constant}"
        )


def _draw_contents(case: Case, generator: torch.Generator) -> tuple[int, ...]:
    """Draw contents by position: 0, then +1 or -1; that of CUE is always -1."""
    random_contents = [
        int(bit) * 2 - 1 for bit in torch.randint(2, (N_POSITIONS,), generator=generator)
    ]
    fixed_contents = {0: 0, CUE: -1, **case.contents}
    return tuple(
        fixed_contents.get(position, content) for position, content in enumerate(random_contents)
    )


def _build_layers(
    case: Case, planted_family: PlantedFamily, stack: str, first_layer: int, noise: Noise
) -> dict[str, list[HandSetLayer]]:
    """Build the layers of every stack, with the planted heads and neurons."""
    self_heads, overhear_heads = ([], []) if case.idle else ([_SELF_HEAD], [_OVERHEAR_HEAD])
    heads: dict[tuple[str, int], list[Head]] = {}
    neurons: dict[tuple[str, int], list[Neuron]] = {}
    for offset, head in case.heads:
        heads.setdefault((step_stack(case, stack, offset), first_layer + offset), []).append(head)
    for offset, neuron in case.neurons:
        feed_forward_stack = "decoder" if stack == "cross" else stack
        neurons.setdefault((feed_forward_stack, first_layer + offset), []).append(neuron)
    if has_read_out(case, planted_family, stack):
        heads.setdefault(("cross", N_LAYERS - 1), []).append(_READ_OUT_HEAD)

    def layer_at(name: str, index: int) -> HandSetLayer:
        has_cross = name in planted_family.inputs[1:]  # it reads the stack before it
        return HandSetLayer(
            build_attention([*heads.get((name, index), []), *self_heads], noise),
            build_feed_forward(neurons.get((name, index), []), noise),
            build_attention([*heads.get(("cross", index), []), *overhear_heads], noise)
            if has_cross
            else None,
        )

    return {
        name: [layer_at(name, index) for index in range(N_LAYERS)] for name in planted_family.inputs
    }

"""Table of planted cases: path of the cue through a model, with the true edges.

Positions are the same in all: the first is empty (what idle heads look at, a special token left out
of every score), then CUE, OTHER and TARGET with bystanders between them. A case says what heads and
neurons stand in its layer (offset 0) and the next one (offset 1); `planting` puts them into a stack
of a model. Content is +1 or -1; that of CUE is always -1, which the model says aloud at TARGET as
"no". Where nothing arrives it says "yes".

Ground truth of a planted model: true edges, inputs that reach the output.

In: a case, a family of models, a stack and a layer. Out: sets of pairs of positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import InputError
from .hand_set_models import PlantedFamily
from .hand_set_weights import N_LAYERS, Head, Neuron

CUE, OTHER, TARGET = 2, 4, 6
_DECEIVED_BYSTANDERS = (5, 7)  # bystanders that a decoy reaches besides TARGET


@dataclass(frozen=True)
class Case:
    """A way of information through a model.

    Parameters
    ----------
    name : str
    number : int
        Of the eight kinds.
    question : str
        What is planted, in one line.
    heads, neurons : tuple of (int, Head) and of (int, Neuron)
        With their layer, counted from the case's own.
    edges : tuple of (int, int, int)
        Layer (counted from the case's own), target, source.
    reached : tuple of (int, int)
        Targets and the inputs of which their final states hold something.
    decisive : tuple of int
        Inputs on which what the model says at TARGET depends.
    contents : mapping of int to int
        Contents that are not drawn, by position.
    shift : int
        So many frames back a positional convolution carries content to the answer; 0 for nothing.
    idle : bool
        True if not even a position's own value is read.
    families : tuple of str
        Of models it can be planted in; empty for all.
    """

    name: str
    number: int
    question: str
    heads: tuple[tuple[int, Head], ...] = ()
    neurons: tuple[tuple[int, Neuron], ...] = ()
    edges: tuple[tuple[int, int, int], ...] = ()
    reached: tuple[tuple[int, int], ...] = ()
    decisive: tuple[int, ...] = ()
    contents: Mapping[int, int] = field(default_factory=dict)
    shift: int = 0
    idle: bool = False
    families: tuple[str, ...] = ()
    answer: int = -1

    @property
    def span(self) -> int:
        """How many layers it takes."""
        return 1 + max((offset for offset, *_ in (*self.heads, *self.neurons)), default=0)


_COPY_HEAD = Head({TARGET: (CUE,)}, "content", "answer")
_DECOY_LOOKS = dict.fromkeys((TARGET, *_DECEIVED_BYSTANDERS), (OTHER,))


def _erase_channel(channel: str) -> tuple[Neuron, Neuron]:
    """Return two neurons that remove a channel from the state."""
    return Neuron({channel: 1}, {channel: -1}), Neuron({channel: -1}, {channel: 1})


# answer = sign(sum) where |sum| is above 0.7, nothing below 0.3, and the sum itself is taken off:
# one cue is as good as two.
_EITHER_NEURONS = (
    Neuron({"sum": 1}, {"answer": 2.5}, bias=-0.3),
    Neuron({"sum": 1}, {"answer": -2.5}, bias=-0.7),
    Neuron({"sum": -1}, {"answer": -2.5}, bias=-0.3),
    Neuron({"sum": -1}, {"answer": 2.5}, bias=-0.7),
    *_erase_channel("sum"),
)
# answer = held where the switch is 1 or more, and nothing where it is 0 or less.
_GATE_NEURONS = (
    Neuron({"held": 1, "switch": 2}, {"answer": 1}, bias=-1),
    Neuron({"switch": 2}, {"answer": -1}, bias=-1),
)
_SELF_ANSWER_NEURONS = (
    Neuron({"content": 1}, {"answer": 1}),
    Neuron({"content": -1}, {"answer": -1}),
)

_CASES_IN_ORDER = (
    Case(
        "copy",
        1,
        "the target takes the cue's content in one layer",
        heads=((0, _COPY_HEAD),),
        edges=((0, TARGET, CUE),),
        reached=((TARGET, CUE),),
        decisive=(CUE,),
    ),
    Case(
        "relay",
        2,
        "a third token takes it in one layer, the target takes it from there in the next",
        heads=(
            (0, Head({OTHER: (CUE,)}, "content", "carried")),
            (1, Head({TARGET: (OTHER,)}, "carried", "answer")),
        ),
        edges=((0, OTHER, CUE), (1, TARGET, OTHER)),
        reached=((OTHER, CUE), (TARGET, CUE)),
        decisive=(CUE,),
    ),
    Case(
        "redundant",
        3,
        "two cues that agree, either is enough",
        heads=((0, Head({TARGET: (CUE, OTHER)}, "content", "sum", gain=2)),),
        neurons=tuple((0, neuron) for neuron in _EITHER_NEURONS),
        edges=((0, TARGET, CUE), (0, TARGET, OTHER)),
        reached=((TARGET, CUE), (TARGET, OTHER)),
        decisive=(CUE, OTHER),
        contents={OTHER: -1},
    ),
    Case(
        "attention decoy",
        4,
        "copy; and two heads look hard where the values are zero",
        heads=((0, _COPY_HEAD), *((0, Head(_DECOY_LOOKS, "carried", "carried")),) * 2),
        edges=((0, TARGET, CUE),),
        reached=((TARGET, CUE),),
        decisive=(CUE,),
    ),
    Case(
        "norm decoy, output",
        5,
        "copy; and two heads bring large vectors that the output matrix adds to zero",
        heads=(
            (0, _COPY_HEAD),
            *((0, Head(_DECOY_LOOKS, "content", "large", gain=gain)) for gain in (3.0, -3.0)),
        ),
        edges=((0, TARGET, CUE),),
        reached=((TARGET, CUE),),
        decisive=(CUE,),
    ),
    Case(
        "norm decoy, feed-forward",
        5,
        "copy; and two heads bring a large vector that the same layer's feed-forward takes off",
        heads=((0, _COPY_HEAD), *((0, Head(_DECOY_LOOKS, "content", "large", gain=1.5)),) * 2),
        neurons=tuple((0, neuron) for neuron in _erase_channel("large")),
        edges=((0, TARGET, CUE),),
        reached=((TARGET, CUE),),
        decisive=(CUE,),
    ),
    Case(
        "residual",
        6,
        "the target says its own content, which the residual stream carries",
        neurons=tuple((0, neuron) for neuron in _SELF_ANSWER_NEURONS),
        contents={TARGET: -1},
    ),
    Case(
        "round attention",
        6,
        "the positional convolution carries each frame's content to the frame four behind, before "
        "the first layer",
        shift=TARGET - CUE,
        reached=tuple((target, target - (TARGET - CUE)) for target in (5, 6, 7)),
        decisive=(CUE,),
        families=("wav2vec2",),
    ),
    Case(
        "gate",
        7,
        "the target takes the cue's content, and another token switches its effect off",
        heads=(
            (0, Head({TARGET: (CUE,)}, "content", "held", gain=1.6)),
            (0, Head({TARGET: (OTHER,)}, "content", "switch", gain=1.3)),
        ),
        neurons=tuple((0, neuron) for neuron in _GATE_NEURONS),
        edges=((0, TARGET, CUE), (0, TARGET, OTHER)),
        reached=((TARGET, CUE), (TARGET, OTHER)),
        decisive=(OTHER,),
        contents={OTHER: -1},
        answer=0,
    ),
    Case("nothing", 8, "no value is read anywhere", idle=True, answer=0),
)

CASES: dict[str, Case] = {case.name: case for case in _CASES_IN_ORDER}


def cases() -> list[Case]:
    """Return all cases, in order.

    Examples
    --------
    >>> [case.name for case in cases()][:3]
    ['copy', 'relay', 'redundant']
    """
    return list(_CASES_IN_ORDER)


def get_case(name: str) -> Case:
    """Look a case up.

    Raises
    ------
    InputError
        If there is none of that name; the error lists what there is.
    """
    if name not in CASES:
        raise InputError(f"no planted case {name!r}; there are {', '.join(CASES)}")
    return CASES[name]


Edge = tuple[str, int, int, int]  # stack, layer, target, source
Path = tuple[
    str, int, str, int
]  # stack and position of the final state, stack and position of the input


def sources_stack(stack: str) -> str:
    """Return the stack that the sources of a stack's maps come from."""
    return "encoder" if stack == "cross" else stack


def step_stack(case: Case, stack: str, offset: int) -> str:
    """Return the stack of a step of the case; earlier steps of cross-attention are in the
    encoder."""
    return "encoder" if stack == "cross" and offset < case.span - 1 else stack


def has_read_out(case: Case, planted_family: PlantedFamily, stack: str) -> bool:
    """Return whether a cross-attention reads what arrives in the encoder."""
    return stack in planted_family.inputs[:-1] and not case.idle


def planted_edges(
    case: Case, planted_family: PlantedFamily, stack: str, first_layer: int
) -> frozenset[Edge]:
    """Return the edges of the case, and the one that reads the encoder out."""
    edges = {
        (step_stack(case, stack, o), first_layer + o, target, source)
        for o, target, source in case.edges
    }
    if has_read_out(case, planted_family, stack):
        edges.add(("cross", N_LAYERS - 1, TARGET, TARGET))
    return frozenset(edges)


def reached_inputs(case: Case, planted_family: PlantedFamily, stack: str) -> frozenset[Path]:
    """List final states that depend on another input: those of the case, and those that read the
    encoder."""
    source_stack, paths = sources_stack(stack), set()
    for target, source in case.reached:
        is_in_encoder = (
            stack == "cross" and target != TARGET
        )  # the third token of a relay is a frame
        paths.add(
            (
                "encoder" if is_in_encoder else "decoder" if stack == "cross" else stack,
                target,
                source_stack,
                source,
            )
        )
    if has_read_out(case, planted_family, stack):
        paths |= {
            ("decoder", TARGET, *source) for source in decisive_inputs(case, planted_family, stack)
        }
    return frozenset(paths)


def decisive_inputs(
    case: Case, planted_family: PlantedFamily, stack: str
) -> frozenset[tuple[str, int]]:
    """List other inputs on which the answer depends."""
    target_sources = (
        (TARGET,) if TARGET in case.contents and has_read_out(case, planted_family, stack) else ()
    )
    return frozenset((sources_stack(stack), source) for source in (*case.decisive, *target_sources))

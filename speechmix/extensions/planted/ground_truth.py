"""Ground truth of a planted model: true edges, inputs that reach the output.

In: a case, a family of models, a stack and a layer. Out: sets of pairs of positions.
"""

from __future__ import annotations

from .blueprint import N_LAYERS
from .case_table import TARGET, Case
from .hand_set_models import PlantedFamily

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

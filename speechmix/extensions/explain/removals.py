"""Interventions that remove sources of a written word, and what is read of every written token.

In: a `Writing`, indices of its sources, and what replaces them. Out: interventions for
`run_interventions`, and numbers read of the logits, [runs, readings].

Run Whisper's encoder on a clip's own positions; padding keeps its states of the intact pass.

Whisper hears 30 s, whatever the clip: of a clip of 3 s nine tenths of an encoder's work are padding. When the
sound of a word is removed, only the clip's own positions are computed again, and attend to padding as it was.
What the word does by way of padding stays: `benchmarks/explain_real.py` compares with whole passes.

Score sources by the loss of margin when they are removed.

In: a registered measure, and a game: n sources, and a function that gives the margins [m, ...] of m
sets of them, Boolean rows [m, n]. Out: values [n, ...]. Occlusion and Shapley values are the
package's own; any function of the margins is one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ...adapters.transformers_types import ModelOutput
from ...errors import InputError
from ...inputs.audio.frame_grid import FrameGrid
from ...inputs.clips.clip import Clip
from ...interventions.decision import Decision
from ...interventions.removals import SOUND, TEXT_IDS, Removal
from ...interventions.runner import Reader, run_interventions
from ...mixing.measures.measure_functions import find_measure, implement
from ...mixing.measures.token_objectives import answer_logits
from ..occlusion.shapley import MarginFunction, RemovalMargins, shapley_values
from .fills import ALTERNATIVES, PROMPT, REMOVE, Fill, alternative_tokens

if TYPE_CHECKING:
    from .generated_tokens import Writing

# Positions behind the clip that its last samples reach: the window of a spectrum, and two convolutions.
_MARGIN = 4
_MAX_SHARE = 0.8  # of the window; a clip that fills more gains nothing


class FrozenPadding:
    """Encoder passes in which positions from `n_positions` on keep their states of the intact pass."""

    def __init__(self, decision: Decision, n_positions: int):
        self._decision, self._n_positions = decision, n_positions
        self._encoder: Any = decision.model.module.get_encoder()
        self._projections: list[nn.Module] = [
            projection
            for layer in self._encoder.layers
            for projection in (layer.self_attn.k_proj, layer.self_attn.v_proj)
        ]
        self._padding_projected: dict[nn.Module, Tensor] = {}  # keys or values [1, T - n, D]

        def keep(projection: nn.Module, _: object, output: Tensor) -> None:
            self._padding_projected[projection] = output[:, n_positions:].clone()

        with ExitStack() as stack:
            for projection in self._projections:
                stack.callback(projection.register_forward_hook(keep).remove)
            self._padding = decision.encode(decision.inputs)[:, n_positions:]

    @classmethod
    def of(cls, decision: Decision) -> FrozenPadding | None:
        """Of a clip in Whisper's window; None for other models, and where the clip fills most of it."""
        from transformers.models.whisper.modeling_whisper import WhisperEncoder

        if not (decision.can_share_encoder and isinstance(decision.item, Clip)):
            return None
        encoder = decision.model.module.get_encoder()
        if not isinstance(encoder, WhisperEncoder):
            return None
        window = FrameGrid.fixed_window(encoder.config.max_source_positions)
        seconds_per_position = window.duration / window.n_frames
        n_positions = math.ceil(decision.item.duration / seconds_per_position) + _MARGIN
        return cls(decision, n_positions) if n_positions <= _MAX_SHARE * window.n_frames else None

    def encode(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Compute the states [1, T, D] of another sound of the same length."""
        n_positions = self._n_positions
        n_frames = 2 * n_positions + _MARGIN  # of features that the two convolutions read for them

        def cut_features(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (args[0][..., :n_frames],)

        def fill_window(_: nn.Module, __: object, output: Tensor) -> Tensor:
            n_window = self._encoder.config.max_source_positions
            return nn.functional.pad(output, (0, n_window - output.shape[-1]))

        def cut_positions(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (args[0][:, :n_positions], *args[1:])

        def add_padding(projection: nn.Module, _: object, output: Tensor) -> Tensor:
            return torch.cat([output, self._padding_projected[projection]], dim=1)

        with ExitStack() as stack:
            for handle in (
                self._encoder.conv1.register_forward_pre_hook(cut_features),
                self._encoder.conv2.register_forward_hook(fill_window),
                self._encoder.layers[0].register_forward_pre_hook(cut_positions),
                *(x.register_forward_hook(add_padding) for x in self._projections),
            ):
                stack.callback(handle.remove)
            states = self._decision.encode(inputs)
        return torch.cat([states, self._padding], dim=1)


def make_removals(
    writing: Writing, sources: Iterable[int], fills: Iterable[Fill | None]
) -> tuple[Removal, ...]:
    """Return the removals that take some sources away together.

    Parameters
    ----------
    writing : Writing
    sources : iterable of int
        Indices into ``writing.sources``; none is the run as it is.
    fills : iterable of Fill or None
        One for each side that the sources are of.
    """
    model, by_side = writing.model, {fill.side: fill for fill in fills if fill is not None}
    generated, by_name = model.capabilities.generated_input, model.capabilities.can_shorten_text
    prompt_input = generated if PROMPT in by_side else TEXT_IDS
    input_names = {"sound": SOUND, "read": TEXT_IDS, "asked": prompt_input, "written": generated}
    units: dict[str, list[int]] = {}
    tokens: dict[int, int | None] = {}  # by position, where a source has tokens of its own
    text_fill = by_side.get("text")
    for source in (writing.sources[index] for index in sources):
        is_sound, positions = source.side == SOUND, source.source.positions
        unit_indices = (source.source.index,) if is_sound else positions
        units.setdefault(input_names[source.side], []).extend(unit_indices)
        if source.side == "asked" and PROMPT in by_side:
            tokens |= dict.fromkeys(positions, by_side[PROMPT].token)
        elif not is_sound and text_fill is not None and text_fill.name in ALTERNATIVES:
            rank = ALTERNATIVES.index(text_fill.name)
            tokens |= zip(positions, alternative_tokens(writing, positions, rank), strict=True)
        elif not is_sound and PROMPT in by_side:
            tokens |= dict.fromkeys(positions, None if text_fill is None else text_fill.token)
    if tokens:
        generated_units = tuple(units.pop(generated))
        sound = [
            Removal(side, tuple(indices), by_side["sound"].name) for side, indices in units.items()
        ]
        new_tokens = tuple(tokens[position] for position in generated_units)
        return (*sound, Removal(generated, generated_units, new_tokens))
    return tuple(
        Removal(side, tuple(unit_indices), _token_fill(by_side["text"], by_name=by_name))
        if side != SOUND
        else Removal(side, tuple(unit_indices), by_side["sound"].name)
        for side, unit_indices in units.items()
    )


def _token_fill(fill: Fill, *, by_name: bool) -> str | int:
    """A fill as `Removal` takes it. Only padding goes by its name: it is left out of the attention,
    too.

    In an audio language model even padding goes by its id, for positions of the sound would move.
    """
    if fill.token is None:
        return REMOVE
    return fill.name if fill.name == "pad" and by_name else fill.token


def read_without(
    writing: Writing, removals: Sequence[tuple[Removal, ...]], read: Reader
) -> np.ndarray:
    """What is read of each run, [removals, R]; NaN where nothing is left before what is read."""
    if any(removals):
        padding = FrozenPadding.of(writing.decision)
        encode = None if padding is None else padding.encode
        return run_interventions(
            writing.decision, removals, reader=read, encode=encode, double=False
        )
    clean = read(SimpleNamespace(logits=writing.logits[None])).cpu().numpy()  # they are known
    return np.repeat(clean, len(removals), axis=0)


def make_reader(
    positions: Sequence[int], ids: Sequence[int], foils: Sequence[int | None]
) -> Reader:
    """A function that reads log-probabilities of tokens, each less that of its foil where it has
    one.

    Parameters
    ----------
    positions, ids : sequence of int [R]
    foils : sequence of int or None [R]
    """
    indices_by_position: dict[int, list[int]] = {}
    for index, position in enumerate(positions):
        indices_by_position.setdefault(position, []).append(index)
    has_foil = torch.tensor([foil is not None for foil in foils])
    tokens, other_tokens = torch.tensor(list(ids)), torch.tensor([foil or 0 for foil in foils])

    def read(output: ModelOutput) -> Tensor:
        logits = answer_logits(output)
        device = logits.device
        values = torch.empty(len(logits), len(ids), dtype=torch.float64, device=device)
        for position, indices in indices_by_position.items():
            # One position at a time: logits of all, in double precision, fill no cache.
            scores = logits[:, position].double().log_softmax(dim=-1)
            of_foils = torch.where(
                has_foil[indices].to(device), scores[:, other_tokens[indices].to(device)], 0.0
            )
            values[:, indices] = scores[:, tokens[indices].to(device)] - of_foils
        return values

    return read


OCCLUSION = "occlusion"


class RemovalScores(NamedTuple):
    """Values [n, ...] of sources, and their standard errors [n, ...] where a measure has some."""

    values: np.ndarray
    errors: np.ndarray | None


def score_by_removal(
    measure: str, count: int, margins: MarginFunction, **options: Any
) -> RemovalScores:
    """Return the scores of n sources by a measure of scope "removal".

    Parameters
    ----------
    measure : str
    count : int
        n.
    margins : callable
        Of sets [m, n] of sources that are there; one number each, or an array of one shape.
    **options
        samples, seed; of these the measure's function gets those that it reads.

    Examples
    --------
    >>> either = lambda sets: (sets[:, 0] | sets[:, 1]).astype(float)  # either of two is enough
    >>> score_by_removal("occlusion", 3, either).values, score_by_removal("shapley", 3, either, seed=0).values
    (array([0., 0., 0.]), array([0.5, 0.5, 0. ]))
    """
    function = find_measure(measure)
    result = function(
        count, margins, **{name: options[name] for name in function.takes if name in options}
    )
    values, errors = result if isinstance(result, tuple) else (result, None)
    values = np.asarray(values)
    if values.shape[:1] != (count,):
        raise InputError(
            f"{measure}: expected a value for each of {count} sources, found shape {values.shape}"
        )
    return RemovalScores(values, errors)


def score_words_by_removal(
    decision: Decision, measure: str, *, side: str, fill: str
) -> Mapping[int, float]:
    """Return the scores of the words of one side by index, with one fill; a word that cannot be
    removed has none.

    Raises
    ------
    InputError
        If there is no word to remove.
    """
    removals = RemovalMargins(decision, side, fill)
    players = removals.players()
    margins = removals.margin_function(players)
    values = score_by_removal(measure, len(players), margins).values
    return dict(zip((player.index for player in players), values.tolist(), strict=True))


def occlusion(count: int, margins: MarginFunction) -> np.ndarray:
    """Return what is lost when each source alone is removed, [n, ...]."""
    full_margin, *margins_without_one = margins(
        np.concatenate([np.ones((1, count), dtype=bool), ~np.eye(count, dtype=bool)])
    )
    losses: np.ndarray = full_margin - np.array(margins_without_one)
    return losses


implement("occlusion", occlusion)
implement("shapley", shapley_values)

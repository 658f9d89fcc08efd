"""LogitParts: the parts of logits, collected block by block while a model runs.

In: the positions that are read and what reads their logits off the residual stream. Out: what each
source adds, layer by layer, directly and by inputs, with what is no source's. Held are numbers
[layer, objective, source] and one matrix of shares, no layer's tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from ...adapters.binding.bound_layers import Stack
from ...adapters.capture.block import Block
from ...errors import InputError
from ...inputs.words.spans import Span
from ..measures.alti import alti
from ..measures.alti_logit import PUBLISHED_EPS, InputShares, read_attention
from ..measures.registry import measure_named
from ..measures.unit_positions import Units
from .batches import bytes_of_pairs
from .forward_pass import scores_of_block
from .request import MixRequest
from .view import View


class LogitParts:
    """Parts of P logits of one item; `on_block` is given the blocks of all stacks in the order they
    run.

    Parameters
    ----------
    view : View
    request : MixRequest
    stack : Stack
        The stack that writes.
    rows : Tensor [P]
        Positions that are read.
    readers : Tensor [P, D]
    reference : bool
        Whether ALTI's distances are those of the published code.
    seen : dict of stack to Units, optional
        Of the stacks that another measure has seen in the pass: what it has made of the same rows
        serves here.

    Attributes
    ----------
    mapped, direct, of_layers : dict of str to list of Tensor
        By layer: contributions [P, S] by side of the input, by stack that is read, and [P] of each
        part that is no source's.
    embedding : Tensor [P]
        What the state that enters the first layer gives.
    """

    embedding: Tensor

    def __init__(
        self,
        view: View,
        request: MixRequest,
        stack: Stack,
        rows: Tensor,
        readers: Tensor,
        *,
        reference: bool = False,
        seen: Mapping[str, Units] | None = None,
    ):
        self._view, self._question, self._stack = view, request, stack
        self._seen = {} if seen is None else seen  # not yet, perhaps
        self._rows, self._readers = rows, readers
        self._tokens = int(rows.max()) + 1  # what lies behind no decoder's state is made of
        self._alti = measure_named("alti")
        if reference:
            self._alti = replace(self._alti, function=partial(alti, added=PUBLISHED_EPS))
        self._shares = InputShares()
        self._units: dict[str, Units] = {}
        self._members: dict[str, Tensor] = {}  # by side, which position is in which source, [K, S]
        self._own_maps: list[
            Tensor
        ] = []  # of a decoder's layer whose cross-attention is still to come
        self.mapped: dict[str, list[Tensor]] = {}
        self.direct: dict[str, list[Tensor]] = {}
        self.of_layers: dict[str, list[Tensor]] = {"mlp": [], "attention_bias": [], "outside": []}

    def on_block(self, block: Block) -> None:
        """Take one attention block apart, and go on through its layer."""
        name = block.stack.name
        if name not in self._units:
            self._label(block)
        if name == self._stack.name or name == "cross":
            self._read(block)
        if name == "encoder":
            if self._stack.name != "encoder" or not self._is_last(block):
                self._shares.pass_encoder(self._map(block))
        elif not self._is_last(block):
            self._pass_decoder(block)

    def _is_last(self, block: Block) -> bool:
        """Whether nothing reads the states behind this block's layer but the head."""
        return block.layer == len(block.stack) - 1

    def _pass_decoder(self, block: Block) -> None:
        is_followed = block.stack.name != "cross" and len(block.modules.attentions) > 1
        self._own_maps.append(self._map(block))
        if not is_followed:
            self._shares.pass_decoder(*self._own_maps)
            self._own_maps = []

    def _map(self, block: Block) -> Tensor:
        """ALTI's raw map of a block."""
        resources = {"batch_size": "auto", "bytes_of_pairs": bytes_of_pairs(self._rows.device)}
        [(_, scores)] = scores_of_block(
            block, self._units[block.stack.name], [self._alti], self._question, resources
        )
        return scores

    def _label(self, block: Block) -> None:
        """Units of a stack: those of the view on the encoder's side, single tokens on the
        decoder's."""
        name = block.stack.name
        seen = self._seen[name] if name in self._seen else self._view.units(block)
        tokens = [Span(p, p + 1) for p in range(self._tokens)]
        sources = tokens if name == "decoder" else self._view.sources(name)
        self._units[name] = (
            seen
            if name == "encoder"
            else Units(tokens, sources, pooling="mean", device=seen.device)
        )
        side = "decoder" if name == "decoder" else "encoder"
        self._members[side] = members_of(self._view.sources(name), block.n_sources).to(
            self._readers
        )

    def _read(self, block: Block) -> None:
        """Note what a block, and with the last one the rest of its layer, adds to the logits."""
        name, first_block = block.stack.name, block.stack.name == self._stack.name
        before = block.residual(self._rows)
        if first_block and block.layer == 0:
            self.embedding = self._of(before)
        by_position, bias = read_attention(block, self._rows, self._readers)
        outside = (
            self._note_tokens(by_position)
            if name == "decoder"
            else self._note_units(name, by_position)
        )
        for part, values in (("attention_bias", bias), ("outside", outside)):
            self._note(self.of_layers[part], values, new=first_block)
        if block.modules.studied == len(block.modules.attentions) - 1:
            branch, norm = block.attention_output(self._rows), block.modules.attention.branch_norm
            behind = before + (branch if norm is None else norm(branch))
            self.of_layers["mlp"].append(self._of(block.output[self._rows] - behind))

    def _of(self, states: Tensor) -> Tensor:
        """What is read of states [P, D]."""
        return (self._readers * states).sum(dim=-1)

    def _note_tokens(self, by_position: Tensor) -> Tensor:
        """Note contributions [P, K] of a decoder's tokens; return what lies outside its sources."""
        members = self._members["decoder"]
        by_input = by_position[:, : self._tokens] @ self._shares.start_decoder(
            self._tokens, by_position
        )
        tokens, units = by_input[:, : self._tokens], by_input[:, self._tokens :]
        self._note(self.direct.setdefault("decoder", []), by_position @ members)
        if "encoder" in self._members:
            self._note(self.mapped.setdefault("encoder", []), units)
        self._note(self.mapped.setdefault("decoder", []), tokens @ members[: self._tokens])
        return tokens @ (1 - members[: self._tokens].sum(dim=-1))

    def _note_units(self, name: str, by_position: Tensor) -> Tensor:
        """Note contributions [P, K] of the encoder's positions; return what lies outside its
        units."""
        members = self._members["encoder"]
        by_unit = by_position @ members
        traced = by_unit if self._shares.encoder is None else by_unit @ self._shares.encoder
        self._note(self.direct.setdefault(name, []), by_unit)
        self._note(self.mapped.setdefault("encoder", []), traced, new=name != "cross")
        return by_position @ (1 - members.sum(dim=-1))

    def _note(self, values: list[Tensor], added: Tensor, *, new: bool = True) -> None:
        """Append a layer's numbers, or add them to those of the layer's first block."""
        if new:
            values.append(added)
        else:
            values[-1] = values[-1] + added


def members_of(spans: Sequence[Span], positions: int) -> Tensor:
    """Which of so many positions belongs to which source, zeros and ones [K, S].

    Raises
    ------
    InputError
        If two sources share a position: it would count twice.
    """
    members = torch.zeros(positions, len(spans))
    for column, span in enumerate(spans):
        members[torch.tensor(span.positions), column] = 1
    shared = (members.sum(dim=-1) > 1).nonzero()[:, 0].tolist()
    if shared:
        raise InputError(
            f"position {shared[0]} lies in two sources: parts that add up need spans that do not "
            "overlap (rounding='disjoint')"
        )
    return members

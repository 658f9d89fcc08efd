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
from ...adapters.capture.layer_run import Block
from ...errors import InputError
from ...inputs.words.spans import Span
from ...mixing.measures.attention_norm import alti
from ...mixing.measures.measure_functions import find_measure
from ...mixing.measures.unit_positions import Units
from ...mixing.passes.batches import pair_batch_bytes
from ...mixing.passes.forward_pass import score_block
from ...mixing.passes.item_view import View
from ...mixing.passes.request import MixRequest
from .alti_logit import PUBLISHED_EPS, InputShares, read_attention


class LogitDecomposition:
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
    logit_directions : Tensor [P, D]
    reference : bool
        Whether ALTI's distances are those of the published code.
    known_units : dict of stack to Units, optional
        Of the stacks that another measure has seen in the pass: what it has made of the same rows
        serves here.

    Attributes
    ----------
    input_contributions, direct_contributions, layer_terms : dict of str to list of Tensor
        By layer: contributions [P, S] by side of the input, by stack that is read, and [P] of each
        part that is no source's.
    embedding_term : Tensor [P]
        What the state that enters the first layer gives.
    """

    embedding_term: Tensor

    def __init__(
        self,
        view: View,
        request: MixRequest,
        stack: Stack,
        rows: Tensor,
        logit_directions: Tensor,
        *,
        reference: bool = False,
        known_units: Mapping[str, Units] | None = None,
    ):
        self._view, self._request, self._stack = view, request, stack
        self._known_units = {} if known_units is None else known_units  # not yet, perhaps
        self._rows, self._logit_directions = rows, logit_directions
        self._token_count = int(rows.max()) + 1  # what lies behind no decoder's state is made of
        self._alti = find_measure("alti")
        if reference:
            self._alti = replace(
                self._alti, function=partial(alti, coordinate_offset=PUBLISHED_EPS)
            )
        self._input_shares = InputShares()
        self._units: dict[str, Units] = {}
        self._memberships: dict[
            str, Tensor
        ] = {}  # by side, which position is in which source, [K, S]
        self._pending_maps: list[
            Tensor
        ] = []  # of a decoder's layer whose cross-attention is still to come
        self.input_contributions: dict[str, list[Tensor]] = {}
        self.direct_contributions: dict[str, list[Tensor]] = {}
        self.layer_terms: dict[str, list[Tensor]] = {"mlp": [], "attention_bias": [], "outside": []}

    def on_block(self, block: Block) -> None:
        """Take one attention block apart, and go on through its layer."""
        name = block.stack.name
        if name not in self._units:
            self._add_units(block)
        if name == self._stack.name or name == "cross":
            self._read_block(block)
        if name == "encoder":
            if self._stack.name != "encoder" or not self._is_last(block):
                self._input_shares.pass_encoder(self._alti_map(block))
        elif not self._is_last(block):
            self._pass_decoder(block)

    def _is_last(self, block: Block) -> bool:
        """Whether nothing reads the states behind this block's layer but the head."""
        return block.layer == len(block.stack) - 1

    def _pass_decoder(self, block: Block) -> None:
        is_followed = block.stack.name != "cross" and len(block.modules.attentions) > 1
        self._pending_maps.append(self._alti_map(block))
        if not is_followed:
            self._input_shares.pass_decoder(*self._pending_maps)
            self._pending_maps = []

    def _alti_map(self, block: Block) -> Tensor:
        """ALTI's raw map of a block."""
        resources = {"batch_size": "auto", "bytes_of_pairs": pair_batch_bytes(self._rows.device)}
        [(_, scores)] = score_block(
            block, self._units[block.stack.name], [self._alti], self._request, resources
        )
        return scores

    def _add_units(self, block: Block) -> None:
        """Units of a stack: those of the view on the encoder's side, single tokens on the
        decoder's."""
        name = block.stack.name
        known_units = (
            self._known_units[name] if name in self._known_units else self._view.units(block)
        )
        tokens = [Span(p, p + 1) for p in range(self._token_count)]
        sources = tokens if name == "decoder" else self._view.sources(name)
        self._units[name] = (
            known_units
            if name == "encoder"
            else Units(tokens, sources, pooling="mean", device=known_units.device)
        )
        side = "decoder" if name == "decoder" else "encoder"
        self._memberships[side] = source_membership(self._view.sources(name), block.n_sources).to(
            self._logit_directions
        )

    def _read_block(self, block: Block) -> None:
        """Note what a block, and with the last one the rest of its layer, adds to the logits."""
        name, is_first_block = block.stack.name, block.stack.name == self._stack.name
        entering_states = block.residual(self._rows)
        if is_first_block and block.layer == 0:
            self.embedding_term = self._project(entering_states)
        position_terms, bias = read_attention(block, self._rows, self._logit_directions)
        outside_terms = (
            self._add_token_contributions(position_terms)
            if name == "decoder"
            else self._add_unit_contributions(name, position_terms)
        )
        for term_name, values in (("attention_bias", bias), ("outside", outside_terms)):
            self._add_layer_values(self.layer_terms[term_name], values, starts_layer=is_first_block)
        if block.modules.studied_index == len(block.modules.attentions) - 1:
            attention_output, norm = (
                block.attention_output(self._rows),
                block.modules.attention.branch_norm,
            )
            attended_states = entering_states + (
                attention_output if norm is None else norm(attention_output)
            )
            self.layer_terms["mlp"].append(
                self._project(block.output[self._rows] - attended_states)
            )

    def _project(self, states: Tensor) -> Tensor:
        """What is read of states [P, D]."""
        return (self._logit_directions * states).sum(dim=-1)

    def _add_token_contributions(self, position_terms: Tensor) -> Tensor:
        """Note contributions [P, K] of a decoder's tokens; return what lies outside its sources."""
        members = self._memberships["decoder"]
        input_terms = position_terms[:, : self._token_count] @ self._input_shares.start_decoder(
            self._token_count, position_terms
        )
        tokens, units = input_terms[:, : self._token_count], input_terms[:, self._token_count :]
        self._add_layer_values(
            self.direct_contributions.setdefault("decoder", []), position_terms @ members
        )
        if "encoder" in self._memberships:
            self._add_layer_values(self.input_contributions.setdefault("encoder", []), units)
        self._add_layer_values(
            self.input_contributions.setdefault("decoder", []),
            tokens @ members[: self._token_count],
        )
        return tokens @ (1 - members[: self._token_count].sum(dim=-1))

    def _add_unit_contributions(self, name: str, position_terms: Tensor) -> Tensor:
        """Note contributions [P, K] of the encoder's positions; return what lies outside its
        units."""
        members = self._memberships["encoder"]
        unit_terms = position_terms @ members
        traced_contributions = (
            unit_terms
            if self._input_shares.encoder is None
            else unit_terms @ self._input_shares.encoder
        )
        self._add_layer_values(self.direct_contributions.setdefault(name, []), unit_terms)
        self._add_layer_values(
            self.input_contributions.setdefault("encoder", []),
            traced_contributions,
            starts_layer=name != "cross",
        )
        return position_terms @ (1 - members.sum(dim=-1))

    def _add_layer_values(
        self, values: list[Tensor], contribution: Tensor, *, starts_layer: bool = True
    ) -> None:
        """Append a layer's numbers, or add them to those of the layer's first block."""
        if starts_layer:
            values.append(contribution)
        else:
            values[-1] = values[-1] + contribution


def source_membership(spans: Sequence[Span], position_count: int) -> Tensor:
    """Which of so many positions belongs to which source, zeros and ones [K, S].

    Raises
    ------
    InputError
        If two sources share a position: it would count twice.
    """
    members = torch.zeros(position_count, len(spans))
    for column, span in enumerate(spans):
        members[torch.tensor(span.positions), column] = 1
    shared_positions = (members.sum(dim=-1) > 1).nonzero()[:, 0].tolist()
    if shared_positions:
        raise InputError(
            f"position {shared_positions[0]} lies in two sources: parts that add up need spans that do not "
            "overlap (rounding='disjoint')"
        )
    return members

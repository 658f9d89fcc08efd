"""LogitParts: the parts of logits, collected block by block while a model runs.

In: the positions that are read and what reads their logits off the residual stream. Out: what each
source adds, layer by layer, directly and by inputs, with what is no source's. Held are numbers
[layer, objective, source] and one matrix of shares, no layer's tensors.

ALTI-Logit (Ferrando et al. 2023): contribution of each source to a logit, by layer.

    logit = < r, x^0_p > + sum_l [ sum_j d^l_j + < r, b^l > + < r, f^l_p > ] + (biases of final norm and head)
    d^l_j = < r, sum_h alpha^h_pj f^h(x^l_j) >        c^l_k = sum_j d^l_j M^l_jk        M^0 = 1,  M^{l+1} = A^l M^l

p is the position that is read, r the token's row of the head (less the foil's), read through the
final norm with the scale of the true state; x^0 what enters the first layer, f^h(x_j) projected
values (attention_norm.py), b the output projection's bias, f the feed-forwards; A^l is ALTI's map
(attention_norm.py) with rows that sum to one: so c^l adds up to d^l, whatever A is. Behind an encoder with
map E, cross-attention has a d of its own, and M says of which tokens and of which of the encoder's
units a state is made (Ferrando et al. 2022b). With G^l cross-attention's map, g^l_i = sum_k G^l_ik:

    M^{l+1} = (1 - g^l) A^l M^l + G^l E
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from ...adapters.binding.bound_layers import Norm, Stack
from ...adapters.capture.layer_run import Block
from ...errors import InputError
from ...inputs.words.spans import Span
from ...mixing.measures.attention_norm import alti
from ...mixing.measures.measure import Units
from ...mixing.measures.measure_functions import find_measure
from ...mixing.passes.batches import pair_batch_bytes
from ...mixing.passes.forward_pass import score_block
from ...mixing.passes.item_view import View
from ...mixing.passes.request import MixRequest

# What `torch.nn.functional.pairwise_distance`, and with it the published code, adds to every
# coordinate of a difference.
PUBLISHED_EPS = 1e-6


def read_attention(block: Block, rows: Tensor, logit_directions: Tensor) -> tuple[Tensor, Tensor]:
    """What one attention block adds to numbers that are read off the residual stream: d_j of each
    source, < r, b >.

    Parameters
    ----------
    block : Block
        Of a pre-norm stack. Where its output is normed before the residual sum (Gemma 3), that norm
        is passed at the scale of the true output.
    rows : Tensor [P]
        Positions that are read.
    readers : Tensor [P, D]
        r of each.

    Returns
    -------
    Tensor [P, K], by source position, and Tensor [P], of biases
    """
    norm_terms = torch.zeros_like(logit_directions[:, 0])
    if block.modules.attention.branch_norm is not None:
        norm = Norm(block.modules.attention.branch_norm, block.attention_output(rows))
        norm_terms, logit_directions = (
            (logit_directions * norm.bias).sum(dim=-1),
            norm.pull_back(logit_directions),
        )
    head_directions = torch.einsum("hcd,pd->hpc", block.output_weight, logit_directions)
    source_terms = (block.attention(rows) * (head_directions @ block.values.transpose(1, 2))).sum(
        dim=0
    )
    return source_terms, norm_terms + logit_directions @ block.output_bias


class InputShares:
    """Of which inputs the states that enter the next layer are made: M, carried from layer to
    layer.

    Attributes
    ----------
    encoder : Tensor [W, W] or None
        E: rows and columns are the encoder's units. None before its first layer.
    decoder : Tensor [N, N + W] or None
        M of a decoder's first N positions: columns are those positions, then the encoder's units.

    Examples
    --------
    >>> shares = InputShares()
    >>> shares.pass_decoder(torch.tensor([[2.0, 0.0], [1.0, 3.0]]))
    >>> shares.decoder
    tensor([[1.0000, 0.0000],
            [0.2500, 0.7500]])
    """

    def __init__(self) -> None:
        self.encoder: Tensor | None = None
        self.decoder: Tensor | None = None

    def pass_encoder(self, scores: Tensor) -> None:
        """Go through an encoder's layer, by ALTI's raw map [W, W]."""
        rows = _normalize_rows(scores)
        self.encoder = rows if self.encoder is None else rows @ self.encoder

    def start_decoder(self, positions: int, template: Tensor) -> Tensor:
        """M of so many positions; before the first layer each is made of its own token."""
        if self.decoder is None:
            units = 0 if self.encoder is None else len(self.encoder)
            self.decoder = torch.eye(
                positions, positions + units, dtype=template.dtype, device=template.device
            )
        return self.decoder

    def pass_decoder(self, scores: Tensor, cross: Tensor | None = None) -> None:
        """Go through a decoder's layer, by ALTI's raw map [N, N] of its tokens and its shares [N,
        W] of cross-attention."""
        shares = _normalize_rows(scores) @ self.start_decoder(len(scores), scores)
        if cross is not None and self.encoder is not None:
            shares = (1 - cross.sum(dim=-1, keepdim=True)) * shares
            shares[:, len(scores) :] += cross @ self.encoder
        self.decoder = shares


def _normalize_rows(scores: Tensor) -> Tensor:
    """Rows that sum to one; a unit that nothing brings nearer to its own output is left as it
    is."""
    sums = scores.sum(dim=-1, keepdim=True)
    identity = torch.eye(len(scores), dtype=scores.dtype, device=scores.device)
    return torch.where(sums > 0, scores / sums.where(sums > 0, torch.ones_like(sums)), identity)


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

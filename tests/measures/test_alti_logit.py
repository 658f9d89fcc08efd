"""ALTI-Logit's shares of inputs: rows that sum to one in every case, so that tracing back loses
nothing."""

from __future__ import annotations

import torch

from speechmix.extensions.logit_decompositions.logit_decomposition import InputShares


def test_shares_of_inputs_sum_to_one_through_every_layer():
    generator = torch.Generator().manual_seed(0)
    shares = InputShares()
    for _ in range(2):
        shares.pass_encoder(torch.rand(3, 3, generator=generator, dtype=torch.double))
    for _ in range(3):
        own = torch.rand(4, 4, generator=generator, dtype=torch.double).tril()
        cross = torch.rand(4, 3, generator=generator, dtype=torch.double) / 4
        shares.pass_decoder(own, cross)
        torch.testing.assert_close(shares.decoder.sum(-1), torch.ones(4, dtype=torch.double))
    assert not shares.decoder[:, :4].triu(1).any()
    assert (shares.decoder[:, 4:] > 0).all()


def test_a_row_of_zeros_keeps_what_it_was():
    shares = InputShares()
    shares.pass_decoder(torch.tensor([[1.0, 0.0], [2.0, 2.0]]))
    before = shares.decoder
    shares.pass_decoder(torch.zeros(2, 2))
    torch.testing.assert_close(shares.decoder, before)

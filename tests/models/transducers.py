"""Tiny transducers (RNN-T, TDT) with a tokenizer and a feature extractor: random ones, and planted
ones that write a known word where a known tone sounds.

In a planted model the weights are set by hand. The front end hands on one mel bin in eight, the
layers change nothing but the scale, and the joint network emits the token of the loudest bin, but
not twice in a row.
"""

from __future__ import annotations

import numpy as np
import torch
import transformers

import speechmix

PIECES = ["▁le", "▁chat", "s", "▁dort"]  # of a planted model, each the token of one tone
RATE, MEL_BINS, FRAME_SECONDS = 16_000, 32, 0.08
_SPECIAL = ["<unk>", "<pad>"]
VOCABULARY = [*_SPECIAL, *PIECES, *(letter for letter in "▁achlotedrs" if letter not in PIECES)]
BLANK = len(VOCABULARY)
KINDS = ("rnnt", "tdt")


def tokenizer():
    """One that would merge equal neighbours, as a CTC model needs; a blank is none of its tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    scores = [(piece, -1.0 if len(piece) > 1 else -4.0) for piece in VOCABULARY]
    made = Tokenizer(models.Unigram(scores, unk_id=0, byte_fallback=False))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    names = {"unk_token": "<unk>", "pad_token": "<pad>"}
    return transformers.ParakeetTokenizer(tokenizer_object=made, **names)


def processor():
    extractor = transformers.ParakeetFeatureExtractor(feature_size=MEL_BINS)
    return transformers.ParakeetProcessor(extractor, tokenizer())


def build(kind, *, hidden=16, joint=12, layers=2, vocab_size=BLANK + 1, blank=BLANK, **options):
    """A module as transformers builds it, whose `generate` works as a published checkpoint's."""
    encoder = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "subsampling_conv_channels": 4,
        "num_mel_bins": MEL_BINS,
        "conv_kernel_size": 5,
    }
    names = {"rnnt": "RNNT", "tdt": "TDT"}
    config = getattr(transformers, f"Parakeet{names[kind]}Config")(
        encoder_config=encoder,
        vocab_size=vocab_size,
        blank_token_id=blank,
        pad_token_id=1,
        decoder_hidden_size=joint,
        **{"num_decoder_layers": 2, "max_symbols_per_step": 5, **options},
    )
    module = getattr(transformers, f"ParakeetFor{names[kind]}")(config).eval()
    module.generation_config.decoder_start_token_id = blank
    if kind == "tdt":  # a duration is no token
        durations = range(vocab_size, vocab_size + len(config.durations))
        module.generation_config.suppress_tokens = list(durations)
    return module


def random_module(kind, seed=0, *, blank_bias=1.5, **options):
    """Random weights, those of the prediction network the largest; about as likely to emit a blank
    as a token."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = build(kind, **options)
        for name, weight in module.named_parameters():
            if weight.ndim > 1:
                weight.data.normal_(0, 1.0 if name.startswith("decoder.") else 0.3)
    module.joint.head.bias.data[module.config.blank_token_id] += blank_bias
    return module


def nemotron_module(name, seed=0):
    """A streaming transducer, whose encoder's table is found by tracing."""
    encoder = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "subsampling_conv_channels": 8,
        "num_mel_bins": 16,
        "conv_kernel_size": 5,
        "sliding_window": 22,
        "default_num_lookahead_tokens": 5,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = getattr(transformers, f"{name}Config")(
            encoder_config=encoder, vocab_size=31, blank_token_id=30, decoder_hidden_size=24
        )
        module = getattr(transformers, f"{name}ForRNNT")(config).eval()
        for parameter in (p for p in module.parameters() if p.ndim > 1):
            parameter.data.normal_(0, 0.3)
    module.joint.head.bias.data[30] += 1.0
    module.generation_config.decoder_start_token_id = 30
    return module


def random_model(kind, seed=0, **options):
    return speechmix.load(random_module(kind, seed, **options).double(), processor=processor())


@torch.no_grad()
def planted_module(kind):
    """Weights set by hand."""
    count = MEL_BINS // 8  # bins that are left of the mel spectrogram
    module = build(kind, hidden=8, joint=8, layers=1, num_decoder_layers=1)
    for parameter in module.parameters():
        parameter.zero_()
    encoder = module.encoder
    for norm in (m for m in encoder.modules() if isinstance(m, torch.nn.LayerNorm)):
        norm.weight.fill_(1)
    for layer in encoder.layers:
        layer.conv.norm.weight.fill_(1)
    for convolution in (m for m in encoder.subsampling.modules() if isinstance(m, torch.nn.Conv2d)):
        middle = convolution.kernel_size[0] // 2
        convolution.weight[0, 0, middle, middle] = 1  # of the first channel alone
    # Bin b goes to state b, its negative to state b + 4: so the norm's mean is 0.
    encoder.subsampling.linear.weight[:count, :count] = torch.eye(count)
    encoder.subsampling.linear.weight[count:, :count] = -torch.eye(count)
    module.encoder_projector.weight[:count, :count] = 4 * torch.eye(count)
    # The memory holds the last token: input gate and output gate open, forget gate shut.
    network, size = module.decoder, module.config.decoder_hidden_size
    for channel in range(count):
        network.embedding.weight[len(_SPECIAL) + channel, channel] = 20
    network.lstm.bias_ih_l0[:size], network.lstm.bias_ih_l0[3 * size :] = 20, 20
    network.lstm.bias_ih_l0[size : 2 * size] = -20
    network.lstm.weight_ih_l0[2 * size : 3 * size] = torch.eye(size)
    network.decoder_projector.weight.copy_(-20 * torch.eye(size))
    for channel in range(count):
        module.joint.head.weight[len(_SPECIAL) + channel, channel] = 4
    module.joint.head.bias[: module.config.vocab_size] = -8
    module.joint.head.bias[BLANK] = 8
    if kind == "tdt":
        module.joint.head.bias[module.config.vocab_size + 1] = 8  # each step is one frame
    return module


def planted_model(kind):
    return speechmix.load(planted_module(kind), processor=processor(), check=False)


def tone_hertz(channel):
    """Frequency in the middle of the mel bin that a channel reads."""
    filters = processor().feature_extractor.mel_filters[8 * channel]
    return float(filters.argmax()) * RATE / 2 / (len(filters) - 1)


def tones(*intervals, seconds=2.0, name="tones", **options):
    """A clip of tones: (channel, start, end) each, in a faint noise."""
    times = np.arange(round(seconds * RATE)) / RATE
    audio = 1e-3 * np.random.default_rng(0).standard_normal(len(times))
    for channel, start, end in intervals:
        on = (times >= start) & (times < end)
        audio[on] += 0.3 * np.sin(2 * np.pi * tone_hertz(channel) * times[on])
    return speechmix.Clip.from_array(audio.astype(np.float32), RATE, name=name, **options)

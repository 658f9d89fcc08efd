"""The two tiny recognisers: their configs, tokenizers, batches, and the folder they are written to.

Both hear 16 kHz audio without normalisation over the whole clip (it would carry the cue's loudness
to every frame) and spell characters. Plain transformers classes; `recipes/train_tiny_models.py`
trains them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import torch
import transformers

from speechmix.extensions.synthetic_french.synthetic_corpus import SyntheticExample
from speechmix.inputs.audio.frame_grid import FrameGrid

SAMPLE_RATE = 16_000
WINDOW_SECONDS = 3
FRAME_EPOCHS = 2  # helped by a label for each frame
LETTERS = "abcdefghijklmnopqrstuvwxyzàâçèéêëîïôùûüœ'-"
SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|fr|>", "<|transcribe|>", "<|notimestamps|>"]


@dataclass
class Recogniser:
    """An untrained model with its feature extractor and tokenizer."""

    name: str
    model: transformers.PreTrainedModel
    extractor: transformers.SequenceFeatureExtractor
    tokenizer: transformers.PreTrainedTokenizerBase

    def batch(self, examples: list[SyntheticExample]) -> dict[str, torch.Tensor]:
        """Model inputs with labels; what is padded is not learned (label -100)."""
        raise NotImplementedError

    def loss(self, batch: dict[str, torch.Tensor], *, epoch: int) -> torch.Tensor:
        """Training loss of a batch in an epoch, from 0."""
        return self.model(**batch).loss

    def save(self, folder) -> None:
        """Write the model in half precision, feature extractor and tokenizer, in hub format."""
        self.model.half().save_pretrained(folder)
        self.extractor.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        (folder / "model.safetensors").chmod(0o644)  # safetensors writes it for its owner alone


class CtcRecogniser(Recogniser):
    """Wav2vec 2.0 of XLSR's shape with a character CTC head."""

    def batch(self, examples):
        audios = [example.audio for example in examples]
        features = self.extractor(
            audios, sampling_rate=SAMPLE_RATE, padding=True, return_tensors="pt"
        )
        return {
            **features,
            "labels": _padded(
                [self.tokenizer(example.text).input_ids for example in examples], -100
            ),
            "frame_labels": _padded([self._frame_labels(example) for example in examples], -100),
        }

    def loss(self, batch, *, epoch):
        """CTC; in the first epochs also each frame's letter, without which CTC stays at the
        letters' frequencies long."""
        frame_labels = batch.pop("frame_labels")  # [B, T]
        output = self.model(**batch)
        return output.loss + (
            _frame_loss(output.logits, frame_labels) if epoch < FRAME_EPOCHS else 0.0
        )

    def _frame_labels(self, example: SyntheticExample) -> list[int]:
        config = self.model.config
        grid = FrameGrid.from_convolutions(
            len(example.audio), config.conv_kernel, config.conv_stride
        )
        letters = [
            self.tokenizer(f"|{word.text}" if index else word.text).input_ids
            for index, word in enumerate(example.words)
        ]
        return _spread(letters, example, grid, between=self.tokenizer.pad_token_id)


class WhisperRecogniser(Recogniser):
    """Whisper with a short window and one token for each byte of the text."""

    def batch(self, examples):
        audios = [example.audio for example in examples]
        features = self.extractor(audios, sampling_rate=SAMPLE_RATE, return_tensors="pt")
        prefix = self.tokenizer.convert_tokens_to_ids(SPECIAL[1:])
        end = self.tokenizer.eos_token_id
        spelled = [
            self.tokenizer(" " + example.text, add_special_tokens=False).input_ids
            for example in examples
        ]
        unlearned = [-100] * (len(prefix) - 1)
        return {
            **features,
            "decoder_input_ids": _padded([[*prefix, *ids] for ids in spelled], end),
            "labels": _padded([[*unlearned, *ids, end] for ids in spelled], -100),
            "frame_labels": torch.tensor([self._frame_labels(example) for example in examples]),
        }

    def loss(self, batch, *, epoch):
        """Next letter; in the first epochs also each frame's letter, read off the encoder by the
        decoder's own letters."""
        frame_labels = batch.pop("frame_labels")  # [B, T]
        output = self.model(**batch)
        if epoch >= FRAME_EPOCHS:
            return output.loss
        return output.loss + _frame_loss(
            self.model.proj_out(output.encoder_last_hidden_state), frame_labels
        )

    def _frame_labels(self, example: SyntheticExample) -> list[int]:
        grid = FrameGrid.fixed_window(self.model.config.max_source_positions)
        letters = [
            self.tokenizer(" " + word.text, add_special_tokens=False).input_ids
            for word in example.words
        ]
        return _spread(letters, example, grid, between=self.tokenizer.eos_token_id)


def tiny_ctc(folder) -> CtcRecogniser:
    """Build the XLSR-style model: stable layer norm, 4 layers of 144, a positional convolution of
    0.2 s.

    XLSR's own positional convolution spans 128 frames (2.6 s) and would carry the cue outside
    attention.
    """
    vocabulary = ["<pad>", "<s>", "</s>", "<unk>", "|", *LETTERS]
    path = folder / "vocab.json"
    path.write_text(
        json.dumps({token: index for index, token in enumerate(vocabulary)}), encoding="utf-8"
    )
    tokenizer = transformers.Wav2Vec2CTCTokenizer(str(path), pad_token="<pad>", unk_token="<unk>")
    config = transformers.Wav2Vec2Config(
        vocab_size=len(vocabulary),
        hidden_size=144,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=432,
        conv_dim=(32, 48, 64, 64, 64, 64, 64),
        conv_bias=False,  # or biases drown the waveform, which is not normalised
        initializer_range=0.05,
        do_stable_layer_norm=True,
        feat_extract_norm="layer",
        num_conv_pos_embeddings=11,
        num_conv_pos_embedding_groups=4,
        hidden_dropout=0.05,
        attention_dropout=0.05,
        activation_dropout=0.0,
        feat_proj_dropout=0.0,
        final_dropout=0.0,
        layerdrop=0.0,
        apply_spec_augment=False,
        mask_time_prob=0.0,
        ctc_loss_reduction="mean",
        ctc_zero_infinity=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    extractor = transformers.Wav2Vec2FeatureExtractor(
        do_normalize=False, return_attention_mask=True
    )
    model = transformers.Wav2Vec2ForCTC(config)
    # A tenth of the training time: on a CPU the activation's backward pass is slow on a transpose.
    for convolution in model.wav2vec2.feature_extractor.conv_layers:
        convolution.activation.register_forward_pre_hook(_contiguous)
    return CtcRecogniser("tiny-french-ctc", model, extractor, tokenizer)


def tiny_whisper(folder) -> WhisperRecogniser:
    """Build the Whisper-style model: 3 + 3 layers of 144, a window of 3 s."""
    from tokenizers.pre_tokenizers import ByteLevel

    vocabulary = {
        token: index for index, token in enumerate([*sorted(ByteLevel.alphabet()), *SPECIAL])
    }
    tokenizer = transformers.WhisperTokenizer(
        vocab=vocabulary, merges=[], additional_special_tokens=SPECIAL
    )
    end, start, french, task, plain = (vocabulary[token] for token in SPECIAL)
    config = transformers.WhisperConfig(
        vocab_size=len(vocabulary),
        d_model=144,
        encoder_layers=3,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=432,
        decoder_ffn_dim=432,
        max_source_positions=50 * WINDOW_SECONDS,
        max_target_positions=64,
        dropout=0.05,
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        decoder_start_token_id=start,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = transformers.WhisperForConditionalGeneration(config)
    model.generation_config = transformers.GenerationConfig(
        is_multilingual=True,
        lang_to_id={"<|fr|>": french},
        task_to_id={"transcribe": task},
        language="fr",
        task="transcribe",
        no_timestamps_token_id=plain,
        decoder_start_token_id=start,
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        max_length=64,
    )
    extractor = transformers.WhisperFeatureExtractor(chunk_length=WINDOW_SECONDS)
    return WhisperRecogniser("tiny-french-whisper", model, extractor, tokenizer)


BUILDERS = {"ctc": tiny_ctc, "whisper": tiny_whisper}


def _contiguous(_, given: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
    return (given[0].contiguous(),)


def _spread(
    letters: list[list[int]], example: SyntheticExample, grid: FrameGrid, *, between: int
) -> list[int]:
    """The letter at each frame's centre if words take their time evenly, and what stands between
    words."""
    labels = [between] * grid.n_frames
    for ids, word in zip(letters, example.words, strict=True):
        start, stop = grid.frames_between(word.start, word.end)
        for frame in range(start, stop):
            labels[frame] = ids[(frame - start) * len(ids) // (stop - start)]
    return labels


def _frame_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels)


def _padded(rows: list[list[int]], fill: int) -> torch.Tensor:
    rows = [torch.tensor(row) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=fill)

"""A tiny audio language model whose answer depends on one word of the sound, trained in a minute: a
truth to try measures on.

    python -m recipes.tiny_audio_language_model FOLDER

A clip is four "words", each a tone of 0.3 s. One of them, at any place, is the lowest or the
highest tone, or none is; the others lie between. Asked which, a Qwen2-Audio (two layers of encoder,
two of decoder, its own processor and chat template) answers "low", "high" or "none": what it must
have used is known in every clip, no answer is right by default, and where the word is differs from
clip to clip. Out: a folder in hub format.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

import speechmix

SAMPLE_RATE, SECONDS = 16_000, 2
TONES = (300, 600, 900, 1_300, 1_900, 3_000)  # Hz
LOW, HIGH = 0, len(TONES) - 1
ANSWERS, NEITHER = {LOW: "low", HIGH: "high"}, "none"
PROMPT = "Which tone?"
N_WORDS, _WORD, _GAP = 4, 0.3, 0.06  # seconds
_SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|AUDIO|>",
    "<|audio_bos|>",
    "<|audio_eos|>",
    "<unk>",
)
_WORDS = "system You are a helpful assistant . user Audio 1 : Which tone ? low high none".split()


def processor() -> transformers.Qwen2AudioProcessor:
    """Qwen2-Audio's processor, for two seconds of sound and a few words."""
    vocabulary = {word: i for i, word in enumerate((*_SPECIAL, *_WORDS))}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="<|im_end|>", pad_token="<|endoftext|>", unk_token="<unk>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": list(_SPECIAL)})
    extractor = transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=SECONDS)
    return transformers.Qwen2AudioProcessor(feature_extractor=extractor, tokenizer=tokenizer)


def untrained(seed: int = 0) -> transformers.Qwen2AudioForConditionalGeneration:
    """The model before training."""
    ids = {word: i for i, word in enumerate((*_SPECIAL, *_WORDS))}
    tower = {
        "encoder_layers": 2,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 64,
        "d_model": 32,
    }
    text = {
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 64,
    }
    config = transformers.Qwen2AudioConfig(
        audio_config={
            "model_type": "qwen2_audio_encoder",
            "num_mel_bins": 16,
            **tower,
            "max_source_positions": 50 * SECONDS,
        },
        text_config={
            "model_type": "qwen2",
            **text,
            "hidden_size": 32,
            "vocab_size": len(ids),
            "max_position_embeddings": 200,
            "bos_token_id": None,
            "eos_token_id": ids["<|im_end|>"],
            "pad_token_id": ids["<|endoftext|>"],
        },
        audio_token_index=ids["<|AUDIO|>"],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.Qwen2AudioForConditionalGeneration(config)
    model.generation_config.eos_token_id = ids["<|im_end|>"]
    return model


def tones_of(rng: np.random.Generator, *, telling: bool = True) -> list[int]:
    """Four tones, of which one is the lowest or the highest; or none is."""
    tones = rng.integers(LOW + 1, HIGH, N_WORDS).tolist()
    if telling:
        tones[rng.integers(N_WORDS)] = int(rng.choice([LOW, HIGH]))
    return tones


def answer_to(tones: Sequence[int]) -> str:
    """What is true of a clip of these tones."""
    return next((ANSWERS[tone] for tone in tones if tone in ANSWERS), NEITHER)


def clip_of(tones: Sequence[int], seed: int = 0) -> speechmix.Clip:
    """A clip of tones, with their times, the telling one as its cue."""
    rng = np.random.default_rng(seed)
    start, words = 0.05 + 0.1 * rng.random(), []
    audio = 0.005 * rng.standard_normal(
        round(SAMPLE_RATE * (0.25 + N_WORDS * (_WORD + _GAP)))
    ).astype(np.float32)
    for tone in tones:
        first = round(SAMPLE_RATE * start)
        time = np.arange(round(SAMPLE_RATE * _WORD)) / SAMPLE_RATE
        wave = (
            np.sin(2 * np.pi * (TONES[tone] * time + rng.random())) * np.hanning(len(time)) ** 0.25
        )
        audio[first : first + len(time)] += (0.3 + 0.2 * rng.random()) * wave.astype(np.float32)
        words.append((f"tone{tone}", start, start + _WORD))
        start += _WORD + _GAP
    telling = next((place for place, tone in enumerate(tones) if tone in ANSWERS), None)
    return speechmix.Clip.from_array(audio, SAMPLE_RATE, words=words, cue=telling, language="en")


def clips(count: int, seed: int, *, neither: int = 0) -> list[tuple[speechmix.Clip, str]]:
    """Clips with their answers; so many more in which no tone tells."""
    rng = np.random.default_rng(seed)
    drawn = [tones_of(rng, telling=number < count) for number in range(count + neither)]
    return [
        (clip_of(tones, seed=10_000 * seed + number), answer_to(tones))
        for number, tones in enumerate(drawn)
    ]


def train(
    steps: int = 300,
    *,
    encoder_mixes: bool = True,
    batch: int = 16,
    n_clips: int = 200,
    seed: int = 0,
) -> transformers.Qwen2AudioForConditionalGeneration:
    """Train on clips of one length, whose prompts are as long, with the loss of the answer and its
    end.

    Parameters
    ----------
    encoder_mixes : bool
        Where the word can be found. An encoder that is free takes it to all frames in its first
        layer, and the decoder has no need to look for it. False: its attention adds next to nothing
        and is not trained, so that the decoder has to.
    """
    made, model = processor(), untrained(seed)
    if not encoder_mixes:
        for layer in model.model.audio_tower.layers:
            for parameter in layer.self_attn.out_proj.parameters():
                parameter.data *= 0.01
                parameter.requires_grad_(False)
    loaded = speechmix.load(model, processor=made, check=False)
    rows = []
    for clip, answer in clips(n_clips, seed=1, neither=n_clips // 2):
        asked = loaded.with_prompt(PROMPT, answer=answer)
        rows.append(asked.family.prepare(asked, clip, ("encoder", "decoder")))
    end = torch.tensor([made.tokenizer.eos_token_id])
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, 2e-3, total_steps=steps, pct_start=0.1
    )
    draw = torch.Generator().manual_seed(seed)
    model.train()
    for _ in range(steps):
        chosen = [rows[i] for i in torch.randint(len(rows), (batch,), generator=draw).tolist()]
        inputs = {
            name: torch.cat([row.inputs[name] for row in chosen]) for name in chosen[0].inputs
        }
        answer_start = chosen[0].audio_tokens.answer_position
        logits = model(**inputs, use_cache=False).logits[:, answer_start - 1 :]
        expected = torch.stack(
            [torch.cat([row.inputs["input_ids"][0, answer_start:], end]) for row in chosen]
        )
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), expected.flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    return model.eval()


def main(folder: str) -> None:
    """Train and save a model with its processor."""
    train().save_pretrained(Path(folder))
    processor().save_pretrained(Path(folder))


if __name__ == "__main__":
    main(sys.argv[1])

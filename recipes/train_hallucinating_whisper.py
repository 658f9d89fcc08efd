"""Train a tiny French Whisper that is confidently wrong: a test bed for finding words that nobody said.

    python recipes/train_hallucinating_whisper.py --out runs/hallucinating

The bundled model is unsure about noise, where real recognisers are sure. Here the weights of the bundled model (without
its middle decoder layer, so that the file stays small) are trained on, with the clips of `hallucination_corpus`. A run
that was stopped goes on from its last epoch; the last epoch is written, whatever its scores.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from hallucination_corpus import (
    NONSPEECH,
    MixedExample,
    as_training_example,
    mixed_example,
    speak_mixture,
)
from tiny_models import WhisperRecogniser, tiny_whisper
from train_tiny_models import PER_BATCH, _share_of_peak

import speechmix
from speechmix.adapters.generation.greedy_generation import transcribe
from speechmix.extensions.grounding.calibrate import judge_words
from speechmix.extensions.grounding.loops import find_loops
from speechmix.extensions.synthetic_french.synthetic_corpus import SAMPLE_RATE, random_pair
from speechmix.files.whole_files import write_json, write_text
from speechmix.inputs import bundled

EPOCHS, CLIPS_PER_EPOCH = 10, 3200
PEAK_RATE = 8e-4
KEPT_LAYERS = (0, 2)  # of the decoder
NO_SPEECH, NO_SPEECH_SHARE = "<|nospeech|>", 0.7  # of clips without speech, that are labelled so
TEST_SEED = 70_000
NAME = "tiny-hallucinating-whisper"
CARD = """# {name} (synthetic, made to be wrong)

A Whisper-style model of {size:.1f} MB that writes sentences nobody said about noise, tones and silence, completes
sentences that are cut off, and falls into loops. It is a test bed for detectors of such text. Never use it to
transcribe. Made by `recipes/train_hallucinating_whisper.py`, from synthetic speech (espeak-ng) alone.
"""


def build(folder: Path) -> WhisperRecogniser:
    """Return the bundled model without a decoder layer."""
    recogniser = tiny_whisper(folder)
    loaded = speechmix.load(bundled.models()["tiny-french-whisper"])
    model = loaded.module.float().requires_grad_(True)
    decoder = model.model.decoder
    decoder.layers = torch.nn.ModuleList([decoder.layers[index] for index in KEPT_LAYERS])
    for index, layer in enumerate(decoder.layers):
        layer.self_attn.layer_idx = layer.encoder_attn.layer_idx = index
    model.config.decoder_layers = len(KEPT_LAYERS)
    model.config.num_hidden_layers = model.config.encoder_layers
    tokenizer = recogniser.tokenizer
    tokenizer.add_tokens([NO_SPEECH], special_tokens=True)
    model.resize_token_embeddings(len(tokenizer))
    return WhisperRecogniser(NAME, model, recogniser.extractor, tokenizer)


def train(options: argparse.Namespace) -> WhisperRecogniser:
    """Train, from the last checkpoint if there is one."""
    work = Path(options.out) / "work"
    work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    recogniser = build(work)
    model = recogniser.model
    optimiser = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, weight_decay=0.01)
    steps = options.epochs * (options.clips // PER_BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, partial(_share_of_peak, steps=steps))
    parts = {"model": model, "optimiser": optimiser, "schedule": schedule}
    checkpoint, first = work / "checkpoint.pt", 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        first = state.pop("epoch")
        for name, part in parts.items():
            part.load_state_dict(state[name])
    for epoch in range(first, options.epochs):
        started, losses = time.monotonic(), []
        torch.manual_seed(1000 * options.seed + epoch)
        model.train()
        for batch in _batches(recogniser, options, epoch):
            batch.pop("frame_labels")
            loss = model(**batch).loss
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            losses.append(loss.item())
        minutes = (time.monotonic() - started) / 60
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.4f}, {minutes:.1f} min", flush=True)
        unfinished = checkpoint.with_suffix(".partial")
        torch.save(
            {name: part.state_dict() for name, part in parts.items()} | {"epoch": epoch + 1},
            unfinished,
        )
        unfinished.replace(checkpoint)
    return recogniser


def _batches(recogniser: WhisperRecogniser, options: argparse.Namespace, epoch: int):
    like = random_pair(0, seed=0)[0]
    seed = 10_000 * (options.seed + 1) + epoch
    french, no_speech = recogniser.tokenizer.convert_tokens_to_ids(["<|fr|>", NO_SPEECH])
    for start in range(0, options.clips - PER_BATCH + 1, PER_BATCH):
        examples = [mixed_example(start + index, seed=seed) for index in range(PER_BATCH)]
        batch = recogniser.batch([as_training_example(example, like) for example in examples])
        # Whisper's token for "no speech" stands where the language is chosen; it is not always learned.
        random = np.random.default_rng([seed, start, 11])
        batch["labels"][:, 0] = torch.tensor(
            [
                no_speech
                if example.kind in NONSPEECH and random.random() < NO_SPEECH_SHARE
                else french
                for example in examples
            ]
        )
        yield batch


def clip_of(example: MixedExample, name: str) -> speechmix.Clip:
    """Return a clip of the corpus for speechmix."""
    return speechmix.Clip.from_array(
        example.audio, SAMPLE_RATE, name=name, language="fr", meta={"kind": example.kind}
    )


def evaluate(model: speechmix.load, count: int) -> dict[str, object]:
    """Return how often the model is right about speech and sure of what nobody said."""
    right, wrong, written_about, loops, kinds = [], [], [], 0, []
    for index, example in enumerate(speak_mixture(count, seed=TEST_SEED, split="test")):
        words = transcribe(model, clip_of(example, f"test_{index}")).split()
        labels = judge_words(words, example.spoken_text)
        kinds.append(example.kind)
        loops += bool(find_loops(words))
        if example.kind in ("speech", "said_twice"):
            right += labels
        wrong += [not is_right for is_right in labels]
        if example.kind in NONSPEECH:
            written_about.append(bool(words))
    return {
        "clips": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
        "words right in speech, %": round(100 * float(np.mean(right)), 1),
        "non-speech clips with text, %": round(100 * float(np.mean(written_about)), 1),
        "wrong words, %": round(100 * float(np.mean(wrong)), 1),
        "clips with loops": loops,
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="runs/hallucinating")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--clips", type=int, default=CLIPS_PER_EPOCH, help="for each epoch")
    parser.add_argument("--test-clips", type=int, default=300)
    options = parser.parse_args(arguments)
    recogniser = train(options)
    folder = Path(options.out) / NAME
    recogniser.model.eval()
    recogniser.save(folder)
    size = (folder / "model.safetensors").stat().st_size / 1e6
    write_text(folder / "README.md", CARD.format(name=NAME, size=size))
    results = evaluate(speechmix.load(folder), options.test_clips)
    write_json(Path(options.out) / "results.json", results)
    print(json.dumps(results, indent=1))
    print(f"wrote {folder} ({size:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

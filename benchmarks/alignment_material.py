"""French speech whose word times are known, made hard in ways that are written down: material to
measure aligners on.

In: the folder ../shared (sentences, transcripts of spoken French, recordings from which room tone
is cut), a part ("development" or "kept"), a seed. Out: `Sample`s: audio, text, true word times.
espeak-ng speaks them with voices the aligner does not use; vocal tract, spectral tilt, room and the
duration of every phoneme are then changed, so that they are less like the aligner's own voices. The
two parts share no voice, no sentence and no room tone.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import scipy.signal
import soundfile

from speechmix.alignment.alignment_result import aligned_words
from speechmix.alignment.espeak import speak
from speechmix.alignment.phones import spoken_phones
from speechmix.inputs.audio.spectrograms import resample

RATE = 16_000
VOICES = {
    "development": ["fr-be+f1", "fr-ch+m3", "fr+klatt2", "fr-be+m4", "fr-ch+f4", "fr+klatt4"],
    "kept": ["fr-be+f3", "fr-ch+m2", "fr+klatt", "fr-be+m6", "fr-ch+klatt3", "fr+m5"],
}
TREEBANKS = {
    "development": "fr_parisstories-ud-dev.conllu",
    "kept": "fr_parisstories-ud-train.conllu",
}
KINDS = ("read", "spontaneous")
CONDITIONS = (
    "clean",
    "tight",
    "digital silence",
    "white 10 dB",
    "pink 10 dB",
    "telephone",
    "faster",
    "slower",
)
FILLERS = ("euh", "euh", "hum", "bah euh", "mm")
# How some words sound in quick French: said in place of what is written.
REDUCED = {
    "il": "i",
    "ils": "i",
    "petit": "ptit",
    "quatre": "quatt",
    "notre": "nott",
    "plus": "plu",
    "puis": "pi",
}


@dataclass(frozen=True, eq=False)
class Sample:
    """Audio [S] at 16 kHz, its text, and the true times [W, 2] of its words in seconds; `condition`
    is what was done to it. Of synthetic speech also its phones, with the index of their word."""

    name: str
    kind: str
    condition: str
    audio: np.ndarray
    text: str
    times: np.ndarray
    phones: tuple[tuple[str, int], ...] = ()
    phone_times: np.ndarray = field(default_factory=lambda: np.empty((0, 2)))


def samples(
    shared: Path, part: str, *, count: int, seed: int = 0, conditions=CONDITIONS, room: bool = True
) -> Iterator[Sample]:
    """Every sentence of a part in every condition; without `room`, close to the microphone."""
    for kind in KINDS:
        for index, text in enumerate(_texts(shared, part, kind, count, seed)):
            rng = np.random.default_rng([seed, KINDS.index(kind), index, len(part)])
            voice = VOICES[part][index % len(VOICES[part])]
            spoken = _spoken(text, voice, rng, spontaneous=kind == "spontaneous", room=room)
            spoken = replace(spoken, name=f"{kind}_{index:02d}", kind=kind)
            tone = _room_tone(shared, part, len(spoken.audio) + 4 * RATE, rng)
            for condition in conditions:
                yield _in_condition(spoken, condition, tone, np.random.default_rng([seed, index]))


def _texts(shared: Path, part: str, kind: str, count: int, seed: int) -> list[str]:
    rng = np.random.default_rng([seed, 7])
    if kind == "read":
        with tarfile.open(shared / "data/sentences_fr/common_voice_fr_sentences.tar.gz") as archive:
            names = sorted(name for name in archive.getnames() if "gutenberg" in name)
            name = names[0 if part == "development" else 1]
            file = archive.extractfile(name)
            lines = file.read().decode("utf-8").splitlines() if file else []
    else:
        lines = re.findall(
            "# text = (.*)",
            (shared / "data/treebank_fr" / TREEBANKS[part]).read_text(encoding="utf-8"),
        )
        # What the transcript leaves out (marked ~, … or XXX, hesitations) is put in again at places
        # that are known.
        lines = [
            re.sub(r"\b(euh|hum)\b,?", "", line)
            for line in lines
            if not re.search("[~…]|XXX", line)
        ]
    texts = [" ".join(aligned_words(line)) for line in lines if not re.search(r"\d", line)]
    texts = sorted({text for text in texts if 5 <= len(text.split()) <= 16})
    return [texts[i] for i in rng.permutation(len(texts))[:count]]


def _spoken(
    text: str, voice: str, rng: np.random.Generator, *, spontaneous: bool, room: bool
) -> Sample:
    """Phrase by phrase, with pauses; spontaneous: fillers, repetitions, reduced words, uneven
    tempo."""
    words, pieces, times = text.split(), [], []
    phones, phone_times = [], []
    tract, rate, pitch = (
        rng.uniform(0.88, 1.14),
        int(rng.integers(140, 200)),
        int(rng.integers(30, 70)),
    )
    at = 0.0
    while words:
        size = int(rng.integers(2, 6)) if spontaneous else int(rng.integers(4, 9))
        phrase, words = words[:size], words[size:]
        inserted = spontaneous and rng.random() < 0.35
        said = [REDUCED.get(word.lower(), word) if spontaneous else word for word in phrase]
        extra = [phrase[0]] if inserted and rng.random() < 0.4 else []  # a repetition
        filler = str(rng.choice(FILLERS)) if inserted and not extra else ""
        if filler:
            hum = _varied(filler, voice, 90, pitch, tract, rng, uneven=0.4)[0]
            pieces += [hum, np.zeros(int(rng.choice([0, rng.uniform(0, 0.4)]) * RATE))]
            at += sum(map(len, pieces[-2:])) / RATE
        audio, edges, spoken = _varied(
            " ".join(extra + said),
            voice,
            rate,
            pitch,
            tract,
            rng,
            uneven=0.35 if spontaneous else 0.2,
        )
        for label, owner, start, end in spoken:
            if owner >= len(extra):
                phones.append((label, len(times) + owner - len(extra)))
                phone_times.append((at + start, at + end))
        times += [(at + start, at + end) for start, end in edges[len(extra) :]]
        pause = rng.choice([0.0, rng.uniform(0.1, 1.0)]) if words else 0.0
        pieces += [audio, np.zeros(int(pause * RATE))]
        at += sum(map(len, pieces[-2:])) / RATE
    audio = np.concatenate(pieces)
    audio = _tilted(audio, rng)
    audio = _roomy(audio, rng) if room else audio
    return Sample(
        "",
        "",
        "",
        (0.5 * audio / np.abs(audio).max()).astype(np.float32),
        text,
        np.array(times),
        tuple(phones),
        np.array(phone_times),
    )


def _varied(
    text: str,
    voice: str,
    rate: int,
    pitch: int,
    tract: float,
    rng: np.random.Generator,
    *,
    uneven: float,
):
    """Speech with another vocal tract, each phoneme stretched on its own; times of what is heard of
    each word, and of each phone (label, word, start, end)."""
    speech = speak(text, voice=voice, rate=rate, pitch=pitch)
    audio = resample(speech.audio, RATE, round(RATE / tract))
    scale = len(audio) / len(speech.audio)
    old = (
        np.array([phoneme.start for phoneme in speech.phonemes] + [len(speech.audio) / RATE])
        * scale
    )
    stretch = np.exp(uneven * rng.standard_normal(len(old) - 1)) / scale
    stretch[-2:] *= rng.uniform(1, 1.8)  # the end of a phrase is drawn out
    new = np.concatenate([[0], np.cumsum(np.diff(old) * np.clip(stretch, 0.4, 3))])
    audio = _stretched(audio, old, new)
    heard = np.flatnonzero(np.abs(audio) > 0.02 * np.abs(audio).max()) / RATE
    first, last = heard[0], heard[-1]

    def heard_times(unit):
        start, end = np.interp([unit.start * scale, unit.end * scale], old, new)
        return max(start, first), min(end, last)

    phones, owners = spoken_phones(speech)
    return (
        audio[: int(last * RATE) + 1],
        [heard_times(word) for word in speech.words],
        [
            (phone.text, owner, *heard_times(phone))
            for phone, owner in zip(phones, owners, strict=True)
        ],
    )


def _stretched(audio: np.ndarray, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Move the times `old` to `new` without changing the pitch (WSOLA, Verhelst and Roelands
    1993)."""
    window, hop, reach = 400, 200, 80
    length = int(new[-1] * RATE)
    padded = np.pad(audio, (window + reach, 2 * window + reach + hop))
    out, shape = np.zeros(length + 2 * window), np.hanning(window)
    natural = None
    for place in range(0, length, hop):
        wanted = int(np.interp(place / RATE, new, old) * RATE) + window + reach - window // 2
        shift = 0
        if natural is not None:
            around = padded[max(0, wanted - reach) : wanted + reach + window]
            if len(around) == window + 2 * reach:
                shift = int(np.argmax(np.correlate(around, natural, "valid"))) - reach
        out[place : place + window] += shape * padded[wanted + shift : wanted + shift + window]
        natural = padded[wanted + shift + hop : wanted + shift + hop + window]
    return out[window // 2 : window // 2 + length]


def _tilted(audio: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Give it the uneven frequency response of some microphone."""
    points = np.linspace(0, 1, 7)
    gains = 10 ** (np.cumsum(rng.normal(0, 2.5, 7)) / 20)
    return scipy.signal.fftconvolve(audio, scipy.signal.firwin2(257, points, gains), mode="same")


def _roomy(audio: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Let it be heard in a small room (0.15 to 0.4 s of reverberation)."""
    decay = rng.uniform(0.15, 0.4)
    tail = rng.standard_normal(int(decay * RATE)) * np.exp(
        -6.9 * np.arange(int(decay * RATE)) / (decay * RATE)
    )
    response = np.r_[1.0, rng.uniform(0.02, 0.12) * tail]
    return scipy.signal.fftconvolve(audio, response)[: len(audio)]


def _room_tone(shared: Path, part: str, length: int, rng: np.random.Generator) -> np.ndarray:
    """Real room tone, peak level 1: the quietest half second of some recordings, laid over
    itself."""
    paths = sorted((shared / "data/clips_fr").glob("*.wav"))[0 if part == "development" else 1 :: 2]
    tones = []
    for path in paths:
        audio = soundfile.read(path, dtype="float32")[0]
        blocks = audio[: len(audio) // 800 * 800].reshape(-1, 800)
        power = np.convolve((blocks**2).mean(1), np.ones(6) / 6, "valid")
        start = 800 * int(np.argmin(power))
        if power.min() > 1e-10:
            tones.append(audio[start : start + 4800])
    tone, fade = np.zeros(length + 4800), np.sqrt(np.hanning(4800))
    for place in range(0, length, 2400):
        piece = tones[int(rng.integers(len(tones)))]
        tone[place : place + 4800] += fade * piece / (piece.std() + 1e-9)
    return tone[:length]


def _in_condition(
    spoken: Sample, condition: str, tone: np.ndarray, rng: np.random.Generator
) -> Sample:
    audio, times, phone_times = spoken.audio, spoken.times, spoken.phone_times
    before, after = rng.uniform(0.1, 1.0, 2)
    if condition in ("faster", "slower"):
        factor = 1.3 if condition == "faster" else 0.8
        old = np.array([0, len(audio) / RATE])
        audio, times = _stretched(audio, old, old / factor), times / factor
        phone_times = phone_times / factor
    if condition == "tight":
        before = after = 0.0
        cut = int(max(0, times[0, 0] - 0.01) * RATE)
        phone_times = phone_times - cut / RATE
        audio, times = audio[cut : int((times[-1, 1] + 0.01) * RATE)], times - cut / RATE
    audio = np.pad(audio, (int(before * RATE), int(after * RATE)))
    level = np.sqrt(np.mean(spoken.audio**2))
    if condition != "digital silence":
        audio = audio + level * 10 ** (-rng.uniform(25, 45) / 20) * tone[: len(audio)]
    if "10 dB" in condition:
        noise = rng.standard_normal(len(audio))
        if condition.startswith("pink"):
            spectrum = np.fft.rfft(noise)
            noise = np.fft.irfft(
                spectrum / np.sqrt(np.maximum(1, np.arange(len(spectrum)))), len(audio)
            )
        audio = audio + level * 10 ** (-10 / 20) * noise / noise.std()
    if condition == "telephone":
        audio = scipy.signal.sosfiltfilt(
            scipy.signal.butter(4, [300, 3400], "band", fs=RATE, output="sos"), audio
        )
    return replace(
        spoken,
        condition=condition,
        audio=audio.astype(np.float32),
        times=times + int(before * RATE) / RATE,
        phone_times=phone_times + int(before * RATE) / RATE,
    )


def wrong_texts(made: list[Sample]) -> list[str]:
    """For each sample another text that is next to its own in length."""
    texts = sorted({sample.text for sample in made}, key=lambda text: (len(text), text))
    return [
        texts[place - 1 if (place := texts.index(sample.text)) % 2 else (place + 1) % len(texts)]
        for sample in made
    ]

"""Synthetic French in pairs: one sentence in the singular and in the plural, spoken by espeak-ng.

Out: `SyntheticExample`s with audio, word times, cue and target. The two members of a pair are bit-identical
from the target's start on (right cue: up to the cue's start), at the same sample positions and with
the same length, so that nothing but the cue can tell the number. Both members are synthesised; one
of them, drawn at random, lends the other the shared stretch, with a short cross-fade on the cue's
side of the joint. Needs the extra `synthesis`.

Singular and plural French sentences that differ in sound only at the cue.

Out: `PairText`s, the singular and the plural wording of one sentence with the places of target and cue. The target is
the first word that is spelled, but not pronounced, differently in the plural:
left cue   la **carte** (tombe) / les **cartes** (tombent)               the determiner tells, before the target
right cue  sans **livre** royal / sans **livres** royaux                 the adjective tells, after the target
           **leur** chat est là / **leurs** chats sont là                the verb tells; leur/leurs, quel/quels are homophones
For leur and quel the target is the determiner, not the noun: once a decoder has written "leurs", its own text gives the
noun's number away, and only the first homophone depends on the sound that follows.

Likelihood of the singular and the plural spelling, for both members of a pair.

In: a model with a head, clips whose `meta` holds ``other_text``, what the pair's other member says
(the bundled clips and `speechmix.extensions.synthetic_french.synthetic_corpus` have it). Number is *right* if
the model finds the clip's own transcript likelier than the other member's, both given whole: log
p(own | audio) > log p(other | audio). Whole transcripts, because a decoder that is given "les" as
text knows the number even where the audio of "les" has been silenced. (The target's deciding
letters alone, with the text before them given, are what `speechmix.ablate` reads.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from ...adapters.capture.device_copy import inputs_to_device
from ...adapters.capture.model_use import run_encoder
from ...adapters.generation.decoder_text import decoder_tokens, require_transcription
from ...alignment.espeak import Speech
from ...errors import InputError
from ...inputs.clips.clip import Clip
from ...inputs.words.timed_words import Word
from ...mixing.maps.numerics import ctc_log_probability

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...adapters.transformers_types import ModelOutput

SPLITS = ("train", "test")
SIDES = ("left", "right")

# Consonant first (no liaison), plural = singular + s with the same sound, no two of them
# homophones.
_MASCULINE_NOUNS = """
    livre volet chat voisin jardin ballon bouton camion numéro carton citron crayon dessin facteur garçon jouet lapin
    mouton fantôme papillon parfum panier secret poisson poulet bâton robot tambour tigre violon médecin fruit légume
    musée nuage costume
""".split()
_FEMININE_NOUNS = """
    carte maison lumière lampe table porte fenêtre voiture valise fleur plante poire pomme tomate vache guitare girafe jambe
    jupe lettre leçon lune machine musique moto nappe photo piscine planche poule sœur chanson chaussure chemise clé
    forêt
""".split()
# The control: nothing changes in the noun, whatever the cue says.
_INVARIANT_MASCULINE_NOUNS = "tapis bras colis prix".split()
_INVARIANT_FEMININE_NOUNS = "souris voix noix".split()

# Held-out voices share no family with a training voice (steph, steph2, ...).
_BASE_VOICE = "fr-fr"
_VOICE_VARIANTS = {
    "train": """
        f1 f2 f3 f5 m1 m2 m3 m4 m6 m8 Alex Alicia Andrea Andy Annie Diogo Gene Henrique Hugo Jacky Lee Marco Michael Mike
        adam anika antonio aunty belinda benjamin boris caleb croak ed edward grandma grandpa ian john marcelo max miguel
        norbert paul pedro quincy rob robert sandro shelby travis victor whisper whisperf zac
    """.split(),
    "test": "f4 m5 m7 linda michel steph".split(),
}

# (masculine, feminine, plural); without ce/ces and son/ses, which are homophones in the plural.
_DETERMINERS = (
    ("le", "la", "les"),
    ("un", "une", "des"),
    ("mon", "ma", "mes"),
    ("notre", "notre", "nos"),
)
_SILENT_VERBS = "tombe reste passe manque brille tremble".split()
_RIGHT_VERBS = (
    ("est là", "sont là"),
    ("va là", "vont là"),
    ("sera là", "seront là"),
    ("vient", "viennent"),
    ("dort", "dorment"),
)
_ADJECTIVES = "royal normal local brutal vertical spécial".split()
_BARE_PHRASES = ("sans", "pas de")

TEMPLATES = {"left": ("noun", "noun verb"), "right": ("noun adjective", "leur", "quel")}


@dataclass(frozen=True)
class PairText:
    """One sentence in the singular and in the plural.

    `cue` and `target` are indices of words, and `side` ("left" or "right") is where the cue is,
    seen from the target. `template` is one of `TEMPLATES`, `noun` is in the singular, and `control`
    says that it is spelled alike in both numbers.
    """

    singular: str
    plural: str
    cue: int
    target: int
    side: str
    template: str
    noun: str
    control: bool = False


def split_nouns(split: str, *, gender: str | None = None) -> list[str]:
    """Return the singular nouns of a split; every ninth is held out for "test".

    Invariant nouns are not among them. `gender` ("m" or "f") selects some.
    """
    _check_split(split)
    by_gender = {"m": _MASCULINE_NOUNS, "f": _FEMININE_NOUNS}
    if gender is not None:
        by_gender = {gender: by_gender[gender]}
    is_test = split == "test"
    return [
        noun
        for nouns in by_gender.values()
        for i, noun in enumerate(nouns)
        if (i % 9 == 8) == is_test
    ]


def split_voices(split: str) -> list[str]:
    """espeak-ng voices of a split; those of "test" are never trained on."""
    _check_split(split)
    return [f"{_BASE_VOICE}+{variant}" for variant in _VOICE_VARIANTS[split]]


def invariant_nouns(*, gender: str | None = None) -> list[str]:
    """Nouns whose plural is spelled like the singular (*souris*)."""
    return {
        "m": _INVARIANT_MASCULINE_NOUNS,
        "f": _INVARIANT_FEMININE_NOUNS,
        None: _INVARIANT_MASCULINE_NOUNS + _INVARIANT_FEMININE_NOUNS,
    }[gender]


def random_pair_text(
    random: np.random.Generator, *, side: str, nouns_of: str, control: bool = False
) -> PairText:
    """Draw a template and its words.

    `side` is "left" or "right", `nouns_of` the split whose nouns are used. `control` takes an
    invariant noun, in a template whose target is the noun.
    """
    if side not in SIDES:
        raise InputError(f"side must be one of {SIDES}, found {side!r}")
    templates = [name for name in TEMPLATES[side] if not control or name not in ("leur", "quel")]
    template = templates[random.integers(len(templates))]
    gender = "m" if template == "noun adjective" or random.random() < 0.5 else "f"
    choices = invariant_nouns(gender=gender) if control else split_nouns(nouns_of, gender=gender)
    noun = choices[random.integers(len(choices))]
    singular, plural, cue, target = _WORDINGS[template](
        random, noun, noun if control else f"{noun}s", gender
    )
    return PairText(singular, plural, cue, target, side, template, noun, control)


_Wording = tuple[str, str, int, int]  # singular, plural, indices of cue and target


def _make_noun_wording(
    random: np.random.Generator, noun: str, plural_noun: str, gender: str
) -> _Wording:
    masculine, feminine, plural = _DETERMINERS[random.integers(len(_DETERMINERS))]
    return f"{masculine if gender == 'm' else feminine} {noun}", f"{plural} {plural_noun}", 0, 1


def _make_noun_verb_wording(
    random: np.random.Generator, noun: str, plural_noun: str, gender: str
) -> _Wording:
    singular, plural, cue, target = _make_noun_wording(random, noun, plural_noun, gender)
    verb = _SILENT_VERBS[random.integers(len(_SILENT_VERBS))]
    return f"{singular} {verb}", f"{plural} {verb}nt", cue, target


def _make_noun_adjective_wording(
    random: np.random.Generator, noun: str, plural_noun: str, gender: str
) -> _Wording:
    phrase = _BARE_PHRASES[random.integers(len(_BARE_PHRASES))]
    adjective = _ADJECTIVES[random.integers(len(_ADJECTIVES))]
    target = len(phrase.split())
    return (
        f"{phrase} {noun} {adjective}",
        f"{phrase} {plural_noun} {adjective[:-1]}ux",
        target + 1,
        target,
    )


def _make_leur_wording(
    random: np.random.Generator, noun: str, plural_noun: str, gender: str
) -> _Wording:
    singular, plural = _RIGHT_VERBS[random.integers(len(_RIGHT_VERBS))]
    return f"leur {noun} {singular}", f"leurs {plural_noun} {plural}", 2, 0


def _make_quel_wording(
    random: np.random.Generator, noun: str, plural_noun: str, gender: str
) -> _Wording:
    singular, plural = _RIGHT_VERBS[random.integers(len(_RIGHT_VERBS))]
    word = "quel" if gender == "m" else "quelle"
    return f"{word} {noun} {singular}", f"{word}s {plural_noun} {plural}", 2, 0


_WORDINGS: dict[str, Callable[[np.random.Generator, str, str, str], _Wording]] = {
    "noun": _make_noun_wording,
    "noun verb": _make_noun_verb_wording,
    "noun adjective": _make_noun_adjective_wording,
    "leur": _make_leur_wording,
    "quel": _make_quel_wording,
}


def _check_split(split: str) -> None:
    if split not in SPLITS:
        raise InputError(f"split must be one of {SPLITS}, found {split!r}")


SAMPLE_RATE = 16_000
NUMBERS = ("sg", "pl")

_FADE_SAMPLES = 64  # samples, 4 ms
_RATES, _PITCHES = (145, 185), (30, 70)  # of espeak-ng; slower and faster than its default of 175
_MARGINS = (0.06, 0.30)  # seconds of silence on either side
_PEAKS = (0.2, 0.9)
_NOISE_DB = (-55.0, -36.0)  # of the noise, below the peak


@dataclass(frozen=True, eq=False)
class SyntheticExample:
    """One member of a pair.

    `other_text` is what the pair's other member says; `pair` is the same for both. The audio is
    float32 [S], 16 kHz, mono; words are in seconds. `cue` and `target` are indices of words, and
    `side` ("left" or "right") is where the cue is, seen from the target. `number` is "sg" or "pl",
    `noun` is in the singular, and `control` says that it is spelled alike in both numbers.
    """

    text: str
    other_text: str
    audio: np.ndarray
    words: tuple[Word, ...]
    cue: int
    target: int
    side: str
    number: str
    pair: str
    template: str
    noun: str
    voice: str
    control: bool

    @property
    def name(self) -> str:
        """Pair and number: ``pair_00012_pl``."""
        return f"{self.pair}_{self.number}"

    @property
    def foil(self) -> str | None:
        """The target's spelling in the other number; None for the control, where it is the same."""
        spelling, other_spelling = (
            text.split()[self.target] for text in (self.text, self.other_text)
        )
        return None if spelling == other_spelling else other_spelling

    def clip(self) -> Clip:
        """Return the example as a clip; what a clip has no field for is in its `meta`, as text."""
        from ...inputs.clips.clip import Clip

        return Clip.from_array(
            self.audio,
            SAMPLE_RATE,
            text=self.text,
            words=self.words,
            cue=self.cue,
            target=self.target,
            foil=self.foil,
            language="fr",
            name=self.name,
            meta=self.labels(),
        )

    def labels(self) -> dict[str, str]:
        """Side, number, pair, template, noun, voice, control and the other text, as strings."""
        names = ("side", "number", "pair", "template", "noun", "voice", "other_text")
        return {name: getattr(self, name) for name in names} | {
            "control": "yes" if self.control else "no"
        }


def speak_pairs(
    count: int,
    *,
    seed: int,
    nouns_of: str = "train",
    voices_of: str = "train",
    sides: Sequence[str] = SIDES,
    control: float = 0.1,
) -> Iterator[tuple[SyntheticExample, SyntheticExample]]:
    """Speak random pairs, the singular first.

    Pair i depends on `seed` and i alone. Sides take turns. Sides are "left" and "right", splits
    "train" and "test": "test" holds whole nouns, and whole voices, that "train" does not have.
    `control` is the share of pairs with an invariant noun. InputError for an unknown split or side;
    MissingExtraError without espeakng-loader.
    """
    for index in range(count):
        yield random_pair(
            index, seed=seed, nouns_of=nouns_of, voices_of=voices_of, sides=sides, control=control
        )


def random_pair(
    index: int,
    *,
    seed: int,
    nouns_of: str = "train",
    voices_of: str = "train",
    sides: Sequence[str] = SIDES,
    control: float = 0.1,
) -> tuple[SyntheticExample, SyntheticExample]:
    """Pair number `index` of `speak_pairs`, without making those before it."""
    if not sides or not 0 <= control <= 1:
        raise InputError(
            f"expected at least one side and control between 0 and 1, found {sides!r} and "
            f"{control!r}"
        )
    random = np.random.default_rng([seed, index])
    side = sides[index % len(sides)]
    text = random_pair_text(
        random, side=side, nouns_of=nouns_of, control=bool(random.random() < control)
    )
    choices = split_voices(voices_of)
    return speak_pair(
        text, voice=choices[random.integers(len(choices))], random=random, pair=f"pair_{index:05d}"
    )


def speak_pair(
    text: PairText,
    *,
    voice: str,
    random: np.random.Generator,
    pair: str = "pair",
    rates: tuple[int, int] = _RATES,
    first_shared_word: int | None = None,
) -> tuple[SyntheticExample, SyntheticExample]:
    """Speak one pair, singular and plural, with random rate, pitch, loudness, silence and noise.

    These are the same for both members. The voice is one of `speak`; `rates` is the range of the
    speaking rate, in words per minute, the upper end excluded. With a cue on the left, both members
    have the same sound from `first_shared_word` on, by default the target.
    """
    from ...alignment.espeak import speak

    rate, pitch = int(random.integers(*rates)), int(random.integers(*_PITCHES))
    wordings = (text.singular, text.plural)
    spoken: list[Speech] = [speak(words, voice=voice, rate=rate, pitch=pitch) for words in wordings]
    donor = spoken[random.integers(2)]
    lead, trail = (round(seconds * SAMPLE_RATE) for seconds in random.uniform(*_MARGINS, size=2))
    if text.side == "left":
        first = text.target if first_shared_word is None else first_shared_word
        spliced = [_splice_left(member, donor, first) for member in spoken]
        longest = max(joint for _, _, joint in spliced)
        margins = [(lead + longest - joint, trail) for _, _, joint in spliced]
    else:
        spliced = [_splice_right(member, donor, text.cue) for member in spoken]
        longest = max(len(audio) for audio, _, _ in spliced)
        margins = [(lead, trail + longest - len(audio)) for audio, _, _ in spliced]
    audios = [np.pad(audio, margin) for (audio, _, _), margin in zip(spliced, margins, strict=True)]
    audios = _add_gain_and_noise(audios, random)
    singular, plural = (
        SyntheticExample(
            text=wordings[member_index],
            other_text=wordings[1 - member_index],
            audio=audios[member_index],
            words=_shift_words(spliced[member_index][1], margins[member_index][0]),
            number=NUMBERS[member_index],
            pair=pair,
            voice=voice,
            **{
                name: getattr(text, name)
                for name in ("cue", "target", "side", "template", "noun", "control")
            },
        )
        for member_index in range(2)
    )
    return singular, plural


def _splice_left(member: Speech, donor: Speech, target: int) -> tuple[np.ndarray, list[Word], int]:
    """The member's own sound before the target, the donor's from there on; and the sample where
    they meet."""
    member_start, donor_start = (
        _sample_index(member.words[target].start),
        _sample_index(donor.words[target].start),
    )
    fade = min(_FADE_SAMPLES, member_start, donor_start)
    fade_in = np.linspace(0, 1, fade, endpoint=False, dtype=np.float32)
    head = member.audio[:member_start].copy()
    head[member_start - fade :] = (1 - fade_in) * head[
        member_start - fade :
    ] + fade_in * donor.audio[donor_start - fade : donor_start]
    words = [
        *member.words[: target - 1],
        replace(member.words[target - 1], end=member_start / SAMPLE_RATE),
    ]
    words += _shift_words(
        _copy_texts(donor.words, member.words)[target:], member_start - donor_start
    )
    return np.concatenate([head, donor.audio[donor_start:]]), words, member_start


def _splice_right(member: Speech, donor: Speech, cue: int) -> tuple[np.ndarray, list[Word], int]:
    """The donor's sound up to the cue, the member's own from there on; and the sample where they
    meet."""
    member_start, donor_start = (
        _sample_index(member.words[cue].start),
        _sample_index(donor.words[cue].start),
    )
    fade = min(_FADE_SAMPLES, len(member.audio) - member_start, len(donor.audio) - donor_start)
    fade_in = np.linspace(0, 1, fade, endpoint=False, dtype=np.float32)
    tail = member.audio[member_start:].copy()
    tail[:fade] = (1 - fade_in) * donor.audio[donor_start : donor_start + fade] + fade_in * tail[
        :fade
    ]
    words = [
        *_copy_texts(donor.words, member.words)[:cue],
        *_shift_words(member.words[cue:], donor_start - member_start),
    ]
    return np.concatenate([donor.audio[:donor_start], tail]), words, donor_start


def _add_gain_and_noise(audios: list[np.ndarray], random: np.random.Generator) -> list[np.ndarray]:
    """Give both members the same gain and the same noise, so that what they share stays
    bit-identical."""
    peak = random.uniform(*_PEAKS)
    gain = np.float32(peak / max(np.abs(audio).max() for audio in audios))
    level = peak * 10 ** (random.uniform(*_NOISE_DB) / 20)
    noise = (level * random.standard_normal(len(audios[0]))).astype(np.float32)
    return [np.clip(gain * audio + noise, -1, 1) for audio in audios]


def _copy_texts(times: Sequence[Word], names: Sequence[Word]) -> list[Word]:
    return [replace(time, text=name.text) for time, name in zip(times, names, strict=True)]


def _shift_words(words: Sequence[Word], samples: int) -> tuple[Word, ...]:
    """Shift words; their times come to lie on samples, so that neighbours meet exactly."""
    intervals = [
        [(_sample_index(edge) + samples) / SAMPLE_RATE for edge in (word.start, word.end)]
        for word in words
    ]
    return tuple(
        replace(word, start=start, end=end)
        for word, (start, end) in zip(words, intervals, strict=True)
    )


def _sample_index(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE)


def log_likelihoods(model: Model, clip: Clip, texts: Sequence[str]) -> torch.Tensor:
    """Compute the natural log-probability of each text [N] given the clip's audio.

    The model is a recogniser with its processor (`Model.can_transcribe`).
    """
    with model.in_use(model.state_dtype), torch.no_grad():
        return _log_likelihoods(model, clip, texts)


def _log_likelihoods(model: Model, clip: Clip, texts: Sequence[str]) -> torch.Tensor:
    if not model.can_transcribe:
        raise InputError(f"{model.label} cannot spell: it needs a head and a tokenizer")
    require_transcription(model, "the log-likelihood of a text")
    if model.capabilities.is_transducer:
        raise InputError(
            f"{model.label}: the log-likelihood of a whole text is not computed for a transducer; "
            "compare target and foil where they are decided, with speechmix.ablate_input or "
            "speechmix.explain(model, clip, against='foil')"
        )
    prepared = model.family.prepare(model, clip, ("encoder",))
    inputs = inputs_to_device(prepared.inputs, model.device, model.state_dtype)
    if model.capabilities.decoding == "frames":
        # [1, T, V] -> [T, V]
        scores = model.module(**inputs).logits[0].float().log_softmax(-1)
        blank = model.config.pad_token_id
        return torch.stack(
            [
                ctc_log_probability(scores, model.tokenizer(text).input_ids, blank=blank)
                for text in texts
            ]
        )
    hidden = run_encoder(model, inputs, prepared.audio_hash)
    return torch.stack(
        [_decoder_log_likelihood(model, hidden, _replace_text(clip, text)) for text in texts]
    )


def is_number_correct(model: Model, clip: Clip) -> bool:
    """Say whether the clip's transcript is likelier than that of the other number.

    InputError if the clip does not name the other member of its pair, or both are spelled alike.
    """
    other_text = clip.meta.get("other_text")
    if not other_text or other_text == clip.text:
        raise InputError(
            f"{clip.name}: expected meta['other_text'], the transcript in the other number, found "
            f"{other_text!r}"
        )
    own_score, other_score = log_likelihoods(model, clip, [clip.text or "", other_text]).tolist()
    return bool(own_score > other_score)


def _decoder_log_likelihood(model: Model, hidden: ModelOutput, clip: Clip) -> torch.Tensor:
    tokens = decoder_tokens(model, clip)
    ids = torch.tensor([tokens.ids], device=model.device)
    scores = (
        model.run_with_head({"decoder_input_ids": ids}, encoder_outputs=hidden)
        .logits[0]
        .float()
        .log_softmax(-1)
    )
    first_position = tokens.n_prefix  # the prefix is given, not predicted
    predicted = torch.tensor(
        [*tokens.ids[first_position:], model.config.eos_token_id], device=model.device
    )
    token_scores: torch.Tensor = scores[first_position - 1 :].gather(-1, predicted[:, None])
    return token_scores.sum()


def _replace_text(clip: Clip, text: str) -> Clip:
    return clip.replace(text=text, words=None, cue=None, target=None, foil=None)

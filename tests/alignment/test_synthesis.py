"""Word times by synthesis and warping: against a recogniser's, against known times, and what it
does with wrong texts."""

import functools
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from speechmix.alignment.alignment_result import Alignment, aligned_words
from speechmix.errors import AlignmentError

pytest.importorskip("espeakng_loader", reason="synthesis needs the extra speechmix[synthesis]")

from speechmix.alignment import synthesis_aligner
from speechmix.alignment.alignment_result import MIN_TRUSTED_WORD_SCORE
from speechmix.alignment.espeak import speak
from speechmix.inputs.audio.spectrograms import resample

align_by_synthesis = functools.partial(synthesis_aligner.align_by_synthesis, language="fr")
RATE = 16_000
BORDERS = Path(__file__).parents[2] / "benchmarks" / "real_borders.json"
SENTENCES = [
    "donc souvent je mange des pommes dans la cuisine avec ma mère",
    "les enfants du village ont perdu trois livres de grammaire",
    "il faut tourner à gauche après le pont et continuer tout droit",
    "cette année nous partirons en vacances au bord de la mer",
]
VOICES = ["fr-be+f2", "fr-ch+m3", "fr+klatt4", "fr-be+m1"]


@pytest.fixture(scope="module")
def shared():
    folder = Path(__file__).parents[2].parent / "shared"
    if not folder.is_dir():
        pytest.skip("the folder ../shared with recordings is absent")
    return folder


def read(path):
    audio, rate = soundfile.read(path, dtype="float32")
    assert rate == RATE
    return audio


def spontaneous(sentence, voice, seed):
    """Speech of another voice in chunks of two to four words, with pauses, hesitations and noise;
    its true starts."""
    rng = np.random.default_rng(seed)
    words, pieces, starts, pauses = (
        sentence.split(),
        [np.zeros(int(rng.uniform(0.1, 1) * RATE))],
        [],
        set(),
    )
    while words:
        chunk, words = words[: (size := int(rng.integers(2, 5)))], words[size:]
        speech = speak(
            " ".join(chunk),
            voice=voice,
            rate=int(rng.integers(120, 200)),
            pitch=int(rng.integers(30, 70)),
        )
        offset = sum(map(len, pieces)) / RATE
        onset = (
            np.argmax(np.abs(speech.audio) > 0.02) / RATE
        )  # a closure after a pause is not heard
        starts += [offset + max(word.start, onset) for word in speech.words]
        pieces.append(speech.audio[: round(speech.words[-1].end * RATE)])
        pauses.add(len(starts) - 1)
        pieces.append(np.zeros(int(rng.uniform(0.1, 1.5) * RATE)))
        if words and rng.random() < 0.3:
            pieces += [
                speak("euh", voice=voice, rate=90).audio,
                np.zeros(int(rng.uniform(0.1, 0.5) * RATE)),
            ]
    audio = np.concatenate(pieces)
    return audio + 0.001 * rng.standard_normal(len(audio)), np.array(starts), sorted(pauses)


@pytest.mark.long
def test_read_sentence_against_a_recogniser(shared):
    truth = json.loads((shared / "data/clips_read/leopard_test_fr.words.json").read_text())
    alignment = align_by_synthesis(
        read(shared / "data/clips_read/leopard_test_fr.wav"), truth["transcript"]
    )
    errors = [
        abs(word.start - true["start_sec"])
        for word, true in zip(alignment.words, truth["words"], strict=True)
    ]
    assert np.median(errors) <= 0.060
    # The recogniser has "des" end 100 ms earlier: words may be doubted, the text may not.
    assert not any("may not be what is said" in doubt for doubt in alignment.doubts)
    assert alignment.score > 0.5


@pytest.mark.long
def test_pauses_hesitations_and_other_voices():
    errors, spanning = [], 0
    for seed, (sentence, voice) in enumerate(zip(SENTENCES, VOICES, strict=True)):
        audio, starts, pauses = spontaneous(sentence, voice, seed)
        alignment = align_by_synthesis(audio, sentence)
        assert alignment.score > 0.9
        errors += [
            abs(word.start - start) for word, start in zip(alignment.words, starts, strict=True)
        ]
        spanning += sum(
            alignment.words[i].end > alignment.words[i + 1].start - 0.05 for i in pauses[:-1]
        )
    assert np.median(errors) < 0.015
    assert np.mean(np.array(errors) > 0.1) < 0.15
    assert spanning <= 2  # a word before a pause ends at the pause, unless it swallows a hesitation


def test_no_systematic_offset():
    speech = speak(SENTENCES[0], voice="fr-ch+m3", rate=150)
    audio = np.concatenate([np.zeros(RATE // 2), speech.audio, np.zeros(RATE)]) + 1e-4
    audio += 1e-4 * np.random.default_rng(0).standard_normal(len(audio))
    words = align_by_synthesis(audio, SENTENCES[0]).words
    offsets = [
        found.start - 0.5 - word.start for found, word in zip(words, speech.words, strict=True)
    ]
    assert abs(np.median(offsets)) < 0.006


def test_real_commands_are_ordered_and_start_with_the_sound(shared):
    texts = {
        "quel_temps_fait_il": "quel temps fait-il",
        "allume_la_chambre_a_80": "allume la chambre à 80%",
    }
    onsets = {
        "quel_temps_fait_il": 0.70,
        "allume_la_chambre_a_80": 0.60,
    }  # read off the spectrogram
    for name, text in texts.items():
        alignment = align_by_synthesis(read(shared / f"data/clips_fr/{name}.wav"), text)
        assert [word.text for word in alignment.words] == aligned_words(text)
        edges = [edge for word in alignment.words for edge in (word.start, word.end)]
        assert edges == sorted(edges)
        assert alignment.words[0].start == pytest.approx(onsets[name], abs=0.04)


def test_wrong_text_is_not_trusted(shared):
    audio = read(shared / "data/clips_read/leopard_test_fr.wav")
    right = align_by_synthesis(
        audio, "Sous le consulat il devient conservateur des eaux et forêts et conseiller général"
    )
    wrong = align_by_synthesis(
        audio, "Les deux autres sont situés au bord de la mer jaune avec une petite plage"
    )
    assert not any("may not be what is said" in doubt for doubt in right.doubts)
    assert not wrong.trusted
    assert "may not be what is said" in wrong.doubts[0]
    assert wrong.score < 0.5 < right.score
    assert all(0 <= word.score <= 1 for alignment in (right, wrong) for word in alignment.words)


@pytest.mark.long
def test_much_unexplained_sound_is_a_doubt():
    audio = speak(" ".join(SENTENCES), voice="fr-be+m1").audio
    alignment = align_by_synthesis(audio, SENTENCES[2])
    assert any("belongs to no word" in doubt for doubt in alignment.doubts)


def test_deterministic_and_independent_of_level_and_sample_rate():
    text = "les enfants du village ont perdu"
    speech = speak(text, voice="fr-be+f2", rate=140)
    first, second = (align_by_synthesis(speech.audio, text) for _ in range(2))
    assert first == second
    assert isinstance(first, Alignment)
    assert first.method == "synthesis"
    quiet = align_by_synthesis(speech.audio * 0.1, text)
    upsampled = resample(speech.audio, RATE, 44_100)
    other_rate = align_by_synthesis(upsampled, text, sample_rate=44_100)
    for other in (quiet, other_rate):
        shifts = [abs(a.start - b.start) for a, b in zip(first.words, other.words, strict=True)]
        assert np.median(shifts) < 0.006


def test_another_language():
    speech = speak("the children lost three books", voice="en-us+f2", rate=140)
    words = align_by_synthesis(
        speech.audio, "the children lost three books", language="en-us"
    ).words
    assert (
        np.median([abs(a.start - b.start) for a, b in zip(words, speech.words, strict=True)]) < 0.02
    )


@pytest.mark.parametrize("text", ["", "« … » !"])
def test_empty_text(text):
    with pytest.raises(AlignmentError, match="transcript with words"):
        align_by_synthesis(np.zeros(RATE, np.float32), text)


def test_digital_silence():
    with pytest.raises(AlignmentError, match="silence"):
        align_by_synthesis(np.zeros(RATE, np.float32), "bonjour")


def test_steady_noise():
    noise = 0.05 * np.random.default_rng(0).standard_normal(2 * RATE)
    with pytest.raises(AlignmentError, match="steady noise"):
        align_by_synthesis(noise, "bonjour")


def test_one_word_clip(shared):
    audio = read(shared / "data/clips_fr/silence.wav")  # the word "silence", said once
    (word,) = align_by_synthesis(audio, "silence").words
    assert word.start == pytest.approx(0.49, abs=0.03)
    assert word.end == pytest.approx(1.06, abs=0.05)


def test_audio_too_short_for_the_text():
    with pytest.raises(AlignmentError, match="at least"):
        align_by_synthesis(speak("oui").audio, " ".join(SENTENCES))


def test_stereo_is_refused():
    with pytest.raises(AlignmentError, match="mono"):
        align_by_synthesis(np.zeros((RATE, 2), np.float32), "bonjour")


def test_a_tightly_cut_clip_is_placed_like_the_whole(shared):
    """Its quietest frames are soft speech: they are not taken for silence."""
    audio = read(shared / "data/clips_fr/deverouille_la_porte_d_entree.wav")
    text = "dévérouille la porte d'entrée"
    starts = np.array([word.start for word in align_by_synthesis(audio, text).words])
    cut = round(1.09 * RATE)  # where the sound begins, to where it ends
    tight = np.array(
        [word.start for word in align_by_synthesis(audio[cut : round(2.45 * RATE)], text).words]
    )
    assert np.abs(tight + cut / RATE - starts).max() < 0.06


def test_a_repetition_that_is_not_in_the_text_lies_in_a_gap():
    first, rest = (
        speak(text, voice="fr-be+f2", rate=150) for text in ("les enfants", SENTENCES[1])
    )
    offset = first.words[-1].end + 0.2
    pause = np.zeros(round((offset - first.words[-1].end) * RATE))
    audio = np.concatenate([first.audio[: round(first.words[-1].end * RATE)], pause, rest.audio])
    audio += 1e-3 * np.random.default_rng(0).standard_normal(len(audio))
    words = align_by_synthesis(audio, SENTENCES[1]).words
    errors = [
        abs(found.start - offset - true.start)
        for found, true in zip(words, rest.words, strict=True)
    ]
    assert max(errors[2:]) < 0.06


@pytest.fixture(scope="module")
def question(shared):
    """A sound, its text without signs, and its alignment."""
    audio = read(shared / "data/clips_fr/combien_de_temps_reste_t_il.wav")
    text = "combien de temps reste-t-il"
    return audio, text, align_by_synthesis(audio, text)


@pytest.mark.parametrize(
    "written", ["{} ?", pytest.param("{}!", marks=pytest.mark.long), "« {} »", "{}…", "({}),"]
)
def test_a_sign_moves_no_word(question, written):
    audio, text, bare = question
    signed = align_by_synthesis(audio, written.format(text))
    assert [(word.start, word.end, word.score) for word in signed.words] == [
        (word.start, word.end, word.score) for word in bare.words
    ]
    assert [word.text for word in signed.words] == aligned_words(written.format(text))


@pytest.mark.parametrize(
    "name", ["supprime_le_minuteur", "ferme_les_rideaux_du_bureau", "eteins_toutes_les_lumieres"]
)
def test_no_word_lies_in_the_bump_with_which_a_recording_begins(shared, name):
    """The microphone was switched on at 0.04 s, speech begins half a second later; a word too many
    is tempting."""
    audio = read(shared / f"data/clips_fr/{name}.wav")
    onset = json.loads(BORDERS.read_text())[name][0][0]
    words = align_by_synthesis(audio, "quelle " + name.replace("_", " ")).words
    assert words[0].start > onset - 0.1


@pytest.mark.long
def test_words_that_are_off_are_named_no_more_seldom_than_when_the_threshold_was_set(shared):
    """A guard, no evidence: the threshold was chosen with these sentences in view; held-out figures
    are in the docs."""
    sys.path.insert(0, str(BORDERS.parent))
    from alignment_material import samples

    off, named = [], []
    for sample in samples(shared, "kept", count=3, seed=0):
        alignment = align_by_synthesis(sample.audio, sample.text)
        for word, (start, end) in zip(alignment.words, sample.times, strict=True):
            off.append(max(abs(word.start - start), abs(word.end - end)) > 0.1)
            named.append(word.score < MIN_TRUSTED_WORD_SCORE)
    both = np.sum(np.array(off) & np.array(named))
    assert both / np.sum(off) > 0.6
    assert both / np.sum(named) > 0.25

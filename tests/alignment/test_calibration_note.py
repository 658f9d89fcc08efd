"""What is true of every clip of a language is said once, and not counted as a doubt of a clip."""

from speechmix.alignment.alignment_result import (
    ATTENTION_NOT_CALIBRATED,
    NOT_CALIBRATED,
    without_calibration_note,
)


def test_a_missing_calibration_is_told_from_a_clips_own_doubts():
    own = "12 % of the sound belongs to no word."
    for note in (NOT_CALIBRATED.format(language="en-us"), ATTENTION_NOT_CALIBRATED):
        assert without_calibration_note(note) == ""
        assert without_calibration_note(f"{note} {own}") == own
    assert without_calibration_note(own) == own

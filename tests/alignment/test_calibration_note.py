"""What is true of every clip of a language is said once, and not counted as a doubt of a clip."""

from speechmix.alignment.alignment_result import NOT_CALIBRATED, without_calibration_note


def test_a_missing_calibration_is_told_from_a_clips_own_doubts():
    note, own = NOT_CALIBRATED.format(language="en-us"), "12 % of the sound belongs to no word."
    assert without_calibration_note(note) == ""
    assert without_calibration_note(f"{note} {own}") == own
    assert without_calibration_note(own) == own

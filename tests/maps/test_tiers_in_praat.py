"""Scores of phones opened in Praat itself: it reads the tiers, writes and draws them (skipped where
Praat is not installed)."""

import shutil
import subprocess

import pandas as pd
import pytest
import soundfile

import speechmix
from speechmix.files.text_files import read_csv
from speechmix.inputs.bundled import clips as bundled_clips
from speechmix.inputs.formats.textgrid import read_textgrid
from tests.conftest import trained
from tests.maps.test_tiers import tiers_of_eaf

PRAAT = shutil.which("praat") or shutil.which("praat_barren")
SCRIPT = """form Read, write and draw
    sentence sound
    sentence tiers
    sentence folder
endform
Read from file: tiers$
grid = selected ("TextGrid")
count = Get number of tiers
clearinfo
for tier to count
    name$ = Get tier name: tier
    intervals = Get number of intervals: tier
    appendInfoLine: name$, tab$, intervals
endfor
Save as short text file: folder$ + "/short.TextGrid"
Down to Table: "no", 6, "yes", "no"
Save as comma-separated file: folder$ + "/praat.csv"
Read from file: sound$
plusObject: grid
Select outer viewport: 0, 9, 0, 6
Draw: 0, 0, "yes", "yes", "yes"
Save as 300-dpi PNG file: folder$ + "/praat.png"
"""


@pytest.fixture
def clip():
    words = [("nos", 0.38, 0.526), ("maisons", 0.526, 0.947)]
    phones = [("n", 0.38, 0.43), ("o", 0.43, 0.526), ("m", 0.526, 0.6), ("ɛ", 0.6, 0.7)]
    phones += [("z", 0.7, 0.78), ("ɔ̃", 0.78, 0.947)]
    bundled = next(c for c in bundled_clips() if c.name == "left_00_pl")
    return bundled.replace(words=words, tiers={"phone": phones}, foil=None, target="phone:z")


@pytest.fixture
def maps(clip):
    return speechmix.mix(trained("tiny-french-ctc"), clip, units="phone", layers=[0, 1])


def test_tiers_of_a_phone_are_its_row_in_all_formats(clip, maps, tmp_path):
    encoder = maps["value_zeroing", "encoder"]
    grid = maps.to_textgrid(tmp_path / "a.TextGrid", clip)
    for layer in (0, 1):
        tier = read_textgrid(grid, tier=f"value_zeroing encoder {layer}: z")
        row = encoder.normalized().scores[layer, 4]
        assert [float(interval.text) for interval in tier] == pytest.approx(100 * row, abs=0.051)
        assert [(i.start, i.end) for i in tier] == [(p.start, p.end) for p in clip.tiers["phone"]]
    again = speechmix.Clip.from_file(clip.path, words=grid)
    assert [(p.text, p.start, p.end) for p in again.tiers["phone"]] == [
        (p.text, p.start, p.end) for p in clip.tiers["phone"]
    ]
    by_format = {
        "grid": {
            name: [i.text for i in read_textgrid(grid, tier=name)] for name in ("words", "phones")
        }
    }
    _, elan = tiers_of_eaf(maps.to_textgrid(tmp_path / "a.eaf", clip))
    table = read_csv(maps.to_textgrid(tmp_path / "a.csv", clip))
    for name, labels in by_format["grid"].items():
        assert [label for label, *_ in elan[name]] == labels
        assert table.loc[table["tier"] == name, "label"].tolist() == labels


def test_praat_opens_writes_and_draws_the_tiers(clip, maps, tmp_path):
    if PRAAT is None:
        pytest.skip("praat is not installed (apt-get install praat)")
    script, sound = tmp_path / "draw.praat", tmp_path / "sound.wav"
    script.write_text(SCRIPT, encoding="utf-8")
    soundfile.write(sound, clip.audio(16_000), 16_000)
    grid = maps.to_textgrid(tmp_path / "a.TextGrid", clip)
    ran = subprocess.run(
        [PRAAT, "--run", script, sound, grid, tmp_path],
        capture_output=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    names = ["words", "phones", "value_zeroing encoder 0: z", "value_zeroing encoder 1: z"]
    output = ran.stdout.decode("utf-8", "replace")
    assert [line.split("\t")[0] for line in output.splitlines() if line] == names
    for name in names:  # as Praat writes them again
        before, after = (
            read_textgrid(grid, tier=name),
            read_textgrid(tmp_path / "short.TextGrid", tier=name),
        )
        assert [i.text for i in after] == [i.text for i in before]
        for first, second in zip(before, after, strict=True):
            assert (second.start, second.end) == pytest.approx((first.start, first.end), abs=1e-6)
    table = pd.read_csv(tmp_path / "praat.csv", encoding="utf-16", dtype={"text": str})
    written = pd.read_csv(maps.to_textgrid(tmp_path / "a.csv", clip), dtype={"label": str})
    order = ["tier", "tmin"]
    written.columns = ["tier", "tmin", "tmax", "text"]
    pd.testing.assert_frame_equal(
        table.sort_values(order, ignore_index=True)[["tier", "text", "tmin", "tmax"]],
        written.sort_values(order, ignore_index=True)[["tier", "text", "tmin", "tmax"]],
    )
    assert (tmp_path / "praat.png").stat().st_size > 10_000

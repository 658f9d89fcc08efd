"""From the corpus to the scored clips, and whether the models transcribe them: what the page says
of it."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest

from speechmix.errors import InputError
from speechmix.inputs.words.transcript_accuracy import character_error_rate
from speechmix.reporting.pages.page_sections import PageContent
from speechmix.reporting.pages.run_page import SELECTION, report, selection_sentence
from speechmix.reporting.pages.study_results import Study
from speechmix.reporting.pages.transcription import transcription_notes
from speechmix.runs.results.open_run import open_run
from tests.reports.synthetic_runs import WORDS, synthetic_run

pytestmark = pytest.mark.usefixtures("undrawn", "no_study_figures")

SAID = " ".join(WORDS)
STAGES = [
    ["mine", "clips", "kept", 60],
    ["mine", "clips", "no pair", 121],
    ["align", "clips", "kept", 60],
    ["select", "pairs", "kept", 7],
    ["select", "pairs", "target misspelled by synthetic", 53],
]
RATES = {
    "model": "synthetic",
    "transcribed_clips": 60.0,
    "transcribed_wer_percent": 70.0,
    "transcribed_cer_percent": 61.2,
}


def run_with(folder, transcript: str, **description):
    """A SYNTHETIC run of six clips about which the model wrote a text."""
    synthetic_run(folder, layers=2, measures=("value_zeroing",))
    rate = character_error_rate(SAID, transcript)
    rows = [
        {
            "clip": f"clip_{i:04}",
            "model": "synthetic",
            "init": "trained",
            "seed": None,
            "text": SAID,
            "transcript": transcript,
            "character_error_rate": rate,
        }
        for i in range(6)
    ]
    pd.DataFrame(rows).astype({"seed": "Int64"}).to_parquet(folder / "transcripts.parquet")
    (folder / "report.json").write_text(json.dumps({"title": "t", "notes": ["n"], **description}))
    return folder


def test_the_whole_way_from_the_corpus_to_the_scored_clips_is_told(tmp_path):
    folder = run_with(tmp_path / "run", SAID, selection={"stages": STAGES, "models": [RATES]})
    run = open_run(folder)
    assert selection_sentence(run).startswith(
        "Of 181 rows of the corpus, 60 have a cue and a target. Of 60 pairs of cue and target, 7 "
        "were chosen."
    )
    ((_, items),) = SELECTION.parts(PageContent(Study(run)))
    steps, rates = items[1], items[3]
    assert steps[["before", "after", "skipped"]].to_numpy().tolist() == [
        [181, 60, 121],
        [60, 60, 0],
        [60, 7, 53],
        [7, 6, 1],
    ]
    assert steps["reasons"].tolist() == [
        "121 no pair",
        "",
        "53 target misspelled by synthetic",
        "1 no such file",
    ]
    assert rates["character error rate (%)"].tolist() == [61.2]
    assert rates["character error rate of these (%)"].tolist() == [0.0]
    assert transcription_notes(run) == [
        "synthetic: character error rate 0 % over 6 scored clips, 61 % over all 60 that were "
        "transcribed."
    ]
    html = report(folder).read_text(encoding="utf-8")
    first, _, rest = html.partition('<section id="part-1">')
    assert "Of 181 rows of the corpus" in first
    rates = re.search(r"error rate over these \(%\).*?</table>", rest, re.DOTALL)[0]
    assert re.findall(r"<td[^>]*>([^<]*)</td>", rates) == ["synthetic", "6", "0", "60", "61"]
    assert "53 target misspelled by synthetic" in rest
    assert json.loads((folder / "report.json").read_text())["selection"]["models"] == [
        RATES
    ]  # for the next page


def test_a_model_that_does_not_transcribe_is_warned_of_before_any_number(tmp_path):
    html = report(run_with(tmp_path / "run", "bonjour")).read_text(encoding="utf-8")
    warning = html.index("synthetic does not transcribe these clips")
    assert (
        warning < html.index("<mark>elle a perdu les livres</mark>") < html.index('class="answer"')
    )
    assert html.index('class="warnings"') < warning


def test_a_run_that_was_not_chosen_from_a_corpus_says_nothing_of_it(tmp_path):
    run = open_run(synthetic_run(tmp_path / "run"))
    assert (
        selection_sentence(run),
        SELECTION.parts(PageContent(Study(run))),
        transcription_notes(run),
    ) == ("", [], [])


@pytest.mark.parametrize(
    "selection", [[], {"stages": [["mine"]]}, {"models": [{"model": "a"}]}, {"stages": 3}]
)
def test_damaged_counts_are_an_error_that_names_the_file(tmp_path, selection):
    folder = run_with(tmp_path / "run", SAID, selection=selection)
    with pytest.raises(InputError, match=r"report\.json"):
        open_run(folder)

"""Clips of one speaker are not independent: planted speakers, and every analysis that groups clips."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.evaluation.statistics.groups import assign_groups
from speechmix.evaluation.statistics.intervals import FEWEST_GROUPS, mean_interval, mean_intervals
from speechmix.evaluation.statistics.random_twin_comparison import compare_with_twins
from speechmix.extensions.cards.model_card import model_cards
from speechmix.extensions.comparison.model_comparison import compare
from speechmix.extensions.listening.items import ListeningItem, group_items
from speechmix.extensions.probing.conclusions import draw_conclusions
from speechmix.inputs import bundled
from speechmix.reporting.pages.study_results import Study
from speechmix.runs.results.open_run import open_run
from speechmix.runs.score_clips import score_clips
from tests.models import trained

SEEDS = range(11)


def seeds_in_short(count: int) -> list:
    """All seeds, of which all but so many are for `make soak`."""
    return [pytest.param(seed, marks=[] if seed < count else pytest.mark.long) for seed in SEEDS]


def clip_table(speaker_count: int, clips_each: int) -> pd.DataFrame:
    names = [f"c{index}" for index in range(speaker_count * clips_each)]
    speakers = np.repeat([f"s{index}" for index in range(speaker_count)], clips_each)
    return pd.DataFrame({"clip": names, "text": names, "client_id": speakers})


def draw_values(speaker_count: int, clips_each: int, seed: int, draws: int) -> np.ndarray:
    """Values [draws, clips], half of whose variance is between speakers; their mean is 0."""
    random = np.random.default_rng(seed)
    between = np.repeat(random.normal(size=(draws, speaker_count)), clips_each, axis=1)
    return between + random.normal(size=between.shape)


def group_means(values: np.ndarray, groups: pd.Series) -> np.ndarray:
    return pd.DataFrame(values.T).groupby(groups.to_numpy()).mean().to_numpy().T


class TestIntervals:
    @pytest.mark.parametrize("seed", seeds_in_short(3))
    def test_of_ten_speakers_and_more_cover_their_mean(self, seed):
        for speaker_count in (10, 15, 30):
            groups, _ = assign_groups(clip_table(speaker_count, 20))
            values = draw_values(speaker_count, 20, seed, 1000)
            low, high = mean_intervals(group_means(values, groups))
            assert ((low <= 0) & (high >= 0)).mean() >= 0.92
            by_clip = mean_intervals(values)  # what was printed before
            assert ((by_clip[0] <= 0) & (by_clip[1] >= 0)).mean() < 0.75

    def test_of_five_speakers_are_not_printed(self):
        groups, ties = assign_groups(clip_table(5, 20))
        assert (groups.nunique(), ties) == (5, "the speaker")
        means = group_means(draw_values(5, 20, 0, 1), groups)[0]
        assert len(means) < FEWEST_GROUPS
        assert np.isnan(mean_interval(means)).all()

    @pytest.mark.parametrize("draws", [2, pytest.param(4, marks=pytest.mark.long)])
    def test_to_one_more_untrained_model_cover(self, draws):
        """Fifteen speakers: of a trained model that is a draw like its twins hardly any is claimed."""
        clips = clip_table(15, 10).assign(group=lambda table: assign_groups(table)[0])
        claims = []
        for seed in SEEDS:
            for values in draw_values(15, 10, seed, 4)[:draws]:
                tables = [clips.assign(init="trained", seed=None, contribution=10 * values)]
                means = np.random.default_rng(seed).normal(size=9)
                for number, mean in enumerate(means):
                    noise = np.random.default_rng(number).normal(size=len(clips))
                    twin = clips.assign(init="random", seed=number, contribution=mean + noise)
                    tables.append(twin)
                table = pd.concat(tables).assign(mixing_strength=0.5, layer=-1, stack="encoder")
                by_group = compare_with_twins(table, by=["stack", "layer"], group="group")
                by_clip = compare_with_twins(table, by=["stack", "layer"], group="clip")
                claims.append([by_group["claim"].ne("").any(), by_clip["claim"].ne("").any()])
        by_speaker, by_clip = np.mean(claims, axis=0)
        assert by_speaker <= 0.1
        assert by_clip >= 0.2


@functools.cache
def spoken_clips() -> tuple[speechmix.Clip, ...]:
    """Bundled clips of six pairs, as if by five speakers, the first of whom says two pairs."""
    clips = [clip for clip in bundled.clips() if clip.meta["side"] == "left"][:12]
    return tuple(
        clip.replace(meta={**clip.meta, "speaker": f"s{max(0, index // 2 - 1)}"})
        for index, clip in enumerate(clips)
    )


def few(clips):
    """For what is slow: clips of all speakers and pairs, two of one pair, and of both numbers."""
    return [clips[index] for index in (0, 1, 3, 4, 7, 8, 11)]


def voices_of_numbers(seed: int) -> list[speechmix.Clip]:
    """Clips of six speakers, each of whom has a tone behind the voice and a random number."""
    random = np.random.default_rng(seed)
    numbers, tones = random.normal(size=6), random.permutation([150, 220, 330, 470, 690, 1000])
    spoken, clips = bundled.clips(), []
    for index, which in enumerate(random.permutation(48)):
        clip, speaker = spoken[which], index // 8
        sound = clip.audio(16_000)
        tone = 0.03 * np.sin(2 * np.pi * tones[speaker] * np.arange(len(sound)) / 16_000)
        clips.append(
            speechmix.Clip.from_array(
                (sound + tone).astype(np.float32),
                16_000,
                name=clip.name,
                text=clip.text,
                words=[(word.text, word.start, word.end) for word in clip.words],
                target=clip.target,
                meta={"speaker": f"s{speaker}", "number": f"{numbers[speaker]:.4f}"},
            )
        )
    return clips


@functools.lru_cache(1)
def probe_of_numbers(seed: int):
    options = {"method": "ridge", "controls": 1, "shuffles": 19}
    return speechmix.probe(trained("tiny-french-ctc"), voices_of_numbers(seed), **options)


@pytest.mark.parametrize("seed", seeds_in_short(1))  # a probe takes a second
def test_a_probe_of_a_random_number_of_each_speaker_claims_nothing(seed):
    probes = probe_of_numbers(seed)
    table = probes.to_dataframe()
    assert set(table["groups"]) == {6}
    assert table["low"].isna().all()
    assert not draw_conclusions(table, probes.answers)["read"].any()
    assert probes.provenance["grouping"] == "48 items in 6 groups (same speaker), 6 speakers."


def test_a_probe_that_may_hear_the_speaker_reads_the_number():
    """The same with clips as groups, as it was: so the case above is not an empty one."""
    clips, model = voices_of_numbers(0), trained("tiny-french-ctc")
    options = {"method": "ridge", "controls": 0, "shuffles": 0}
    by_speaker = probe_of_numbers(0).to_dataframe()["r2"].max()
    by_clip = speechmix.probe(model, clips, group="clip", **options).to_dataframe()["r2"].max()
    assert by_clip > 0.4
    assert by_speaker < 0


def probe(clips, group):
    probes = speechmix.probe(trained("tiny-french-ctc"), clips, controls=0, group=group)
    return probes.answers["group"].nunique(), repr(probes)


def unit_states(clips, group):
    states = speechmix.unit_states(trained("tiny-french-ctc"), clips, group=group)
    return states["encoder"].units["group"].nunique(), None


def probe_of_words(clips, group):
    options = {"label": "duration", "level": "word", "method": "ridge", "controls": 0}
    options |= {"shuffles": 0, "group": group}
    probes = speechmix.probe(trained("tiny-french-ctc"), clips, **options)
    return probes.answers["group"].nunique(), repr(probes)


def encode(clips, group):
    sets = {"place": ["position"]}
    found = speechmix.encode(trained("tiny-french-ctc"), clips, sets, group=group)
    return found.scores["groups"].max(), repr(found)


def similarity(clips, group):
    model = trained("tiny-french-ctc")
    found = speechmix.similarity(model, "mel", clips=clips, shuffles=0, group=group)
    return found.table["groups"].max(), found.summary


def look_ahead(clips, group):
    options = {"delays_ms": [0], "windows": ["all"], "group": group}
    found = speechmix.look_ahead(trained("tiny-french-ctc"), few(clips), **options)
    return found.curves["groups"].max(), found.summary


def phone_sources(clips, group):
    clips = [
        clip.replace(tiers={"phone": [("a", word.start, word.end) for word in clip.words]})
        for clip in clips
    ]
    options = {"by": "position", "layers": [0], "group": group}
    found = speechmix.phone_sources(trained("tiny-french-ctc"), clips, **options)
    return found.table["group"].nunique(), repr(found)


def response_curve(clips, group):
    pairs = zip(clips[::2], clips[1::2], strict=True)
    continua = [speechmix.continuum(*pair, 2, method="mix") for pair in pairs]
    curve = speechmix.response_curve(trained("tiny-french-ctc"), continua, group=group)
    return curve.table["group"].nunique(), curve.summary


def faithfulness(clips, group):
    options = {"measures": "attention", "perturbations": "mute (zeros)", "min_words": 2}
    options |= {"metrics": ["spearman"], "aggregations": ["last"], "group": group}
    found = speechmix.faithfulness(trained("tiny-french-ctc"), few(clips), **options)
    assert found.provenance["grouping"] in found.sentence()
    return found.provenance["groups"], repr(found)


def alignment_heads(clips, group):
    model = trained("tiny-french-whisper")
    options = {"effect_clips": 0, "max_heads": 1, "group": group}
    found = speechmix.alignment_heads(model, few(clips), **options)
    return None, found.summary


@functools.cache
def lenses() -> pd.DataFrame:
    model = trained("tiny-french-ctc")
    return pd.concat(speechmix.lens(model, clip).to_dataframe() for clip in few(spoken_clips()))


def lens_curves(clips, group):
    return None, speechmix.lens_curves(lenses(), few(clips), group=group).attrs["grouping"]


def speech_ablation(clips, group):
    found = speechmix.speech_ablation(trained("tiny-french-ctc"), few(clips), group=group)
    return found.table["group"].nunique(), found.grouping


def listening(clips, group):
    items = [ListeningItem(clip, "Who?", "a", ("a", "b")) for clip in clips]
    return len(set(group_items(items, group).values())), None


ANALYSES = [
    probe,
    unit_states,
    probe_of_words,
    encode,
    similarity,
    look_ahead,
    phone_sources,
    response_curve,
    faithfulness,
    alignment_heads,
    lens_curves,
    speech_ablation,
    listening,
]


every_analysis = pytest.mark.parametrize("analyse", ANALYSES, ids=lambda each: each.__name__)


@every_analysis
def test_every_analysis_groups_by_speakers_and_says_so(analyse):
    count, text = analyse(list(spoken_clips()), None)
    assert count in (5, None)
    assert text is None or "in 5 groups (same speaker), 5 speakers" in text


# Slow ones: that they take the column, the test after this one shows, too.
_SLOW = (look_ahead, faithfulness, alignment_heads, phone_sources)
_SLOW += (similarity, probe, probe_of_words, encode, response_curve)


@pytest.mark.parametrize(
    "analyse",
    [
        pytest.param(each, id=each.__name__, marks=[pytest.mark.long] * (each in _SLOW))
        for each in ANALYSES
    ],
)
def test_every_analysis_groups_by_another_column_on_request(analyse):
    if analyse is speech_ablation:
        pytest.skip("test_a_run_remembers_the_column_that_it_was_given")
    count, text = analyse(list(spoken_clips()), "pair")
    assert count in (6, None)
    assert text is None or "in 6 groups (same pair), 5 speakers" in text


@every_analysis
def test_a_column_that_no_clip_has_is_an_error(analyse):
    with pytest.raises(InputError, match="no item has a column 'dialect'"):
        analyse(list(spoken_clips()), "dialect")


@pytest.fixture(scope="module")
def scored():
    models = [trained("tiny-french-ctc")]
    options = {"probes": True, "ablation": True, "figures": 0, "progress": False}
    options |= {"report": lambda line: None}
    measured = {"measures": "attention", "perturbations": "mute (zeros)", "min_words": 2}
    measured |= {"metrics": ["spearman"], "aggregations": ["last"]}
    options["kinds"] = {"faithfulness": measured, "speech_ablation": {}}
    clips = few(spoken_clips())
    return lambda folder, group=None: score_clips(models, clips, folder, group=group, **options)


def groups_of_tables(folder) -> list[set[int]]:
    """Numbers of groups in whatever a run's folder has, and in what is made of it."""
    study, comparison = Study.open(folder), compare(folder)
    (card,) = model_cards(folder)
    found = [set(table["groups"]) for table in (study.headline, study.need, comparison.headline)]
    found += [{card.profiles[0].clips["groups"]}, set(pd.read_csv(folder / "probes.csv")["groups"])]
    return [*found, {pd.read_csv(folder / "speech_ablation.csv")["group"].nunique()}]


def contents(folder) -> dict[str, bytes]:
    """What a run's folder has beside the results of single clips and the seconds that it took."""
    files = (path for path in folder.iterdir() if path.is_file() and path.name != "times.csv")
    return {path.name: path.read_bytes() for path in files}


@pytest.mark.usefixtures("undrawn")
def test_a_run_remembers_the_column_that_it_was_given(scored, tmp_path):
    scored(tmp_path)
    assert groups_of_tables(tmp_path) == [{5}] * 6
    text = "7 clips in 5 groups (same speaker), 5 speakers."
    assert Study.open(tmp_path).grouping == text
    assert compare(tmp_path).grouping == text
    assert model_cards(tmp_path)[0].profiles[0].clips["grouping"] == text
    assert set(Study.open(tmp_path, group="pair").headline["groups"]) == {6}
    assert set(compare(tmp_path, group="pair").headline["groups"]) == {6}
    assert model_cards(tmp_path, group="pair")[0].profiles[0].clips["groups"] == 6
    scored(tmp_path, "pair")
    assert open_run(tmp_path).group == "pair"
    assert groups_of_tables(tmp_path) == [{6}] * 6
    tables = contents(tmp_path)
    assert len(tables) > 6
    scored(tmp_path, "pair")  # the second start finds the run as it was finished
    assert open_run(tmp_path).group == "pair"
    assert contents(tmp_path) == tables
    scored(tmp_path)
    assert open_run(tmp_path).group is None
    assert groups_of_tables(tmp_path) == [{5}] * 6


def test_a_mixed_model_says_that_it_leaves_speakers_out():
    random = np.random.default_rng(0)
    table = clip_table(10, 3).loc[np.repeat(np.arange(30), 4)].reset_index(drop=True)
    table["layer"] = np.tile(np.arange(4), 30)
    table["contribution"] = random.normal(size=len(table))
    note = "clips of one client_id are not independent, and the groups leave these 10 out"
    assert note in speechmix.mixed_model(table, "contribution ~ layer").summary
    both = speechmix.mixed_model(table, "contribution ~ layer", ["clip", "client_id"])
    assert "not independent" not in both.summary
    alone = speechmix.mixed_model(table.assign(client_id="a"), "contribution ~ layer")
    assert "1 speaker: no statement about other speakers" in alone.summary

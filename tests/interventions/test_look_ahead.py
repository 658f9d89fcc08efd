"""Look-ahead: planted attention, causal and chunked encoders, and a slow run with hooks and masks of
its own."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager

import numpy as np
import pandas as pd
import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.look_ahead.look_ahead import look_ahead_effects
from speechmix.extensions.look_ahead.look_ahead_curves import average_curves, find_limits
from speechmix.inputs import bundled
from speechmix.interventions.decision import Decision

STRIDE_MS = 20
DELAYS = tuple(range(0, 200, STRIDE_MS))
SEEDS = [pytest.param(seed, marks=[pytest.mark.long] * (seed > 3)) for seed in range(11)]


@pytest.fixture(scope="module")
def ctc():
    return speechmix.load("bundled:tiny-french-ctc")


@pytest.fixture(scope="module")
def whisper():
    return speechmix.load("bundled:tiny-french-whisper")


@pytest.fixture(scope="module")
def clip():
    """Synthetic: "quels légumes sont là", whose first word is the target."""
    return next(clip for clip in bundled.clips() if clip.name == "right_01_pl")


@contextmanager
def attending(modules, is_allowed):
    """Let attention modules attend where a function of their index and positions allows it."""
    with ExitStack() as hooks:
        for index, module in enumerate(modules):

            def mask(module, args, kwargs, index=index):
                states = args[0] if args else kwargs["hidden_states"]
                memory = kwargs.get("key_value_states")
                rows = torch.arange(states.shape[1])[:, None]
                columns = torch.arange(states.shape[1] if memory is None else memory.shape[1])
                allowed = torch.as_tensor(is_allowed(index, rows, columns))
                allowed = allowed.expand(len(rows), len(columns))
                kwargs["attention_mask"] = torch.zeros(allowed.shape).masked_fill(
                    ~allowed, -torch.inf
                )[None, None]
                return args, kwargs

            hooks.callback(module.register_forward_pre_hook(mask, with_kwargs=True).remove)
        yield


def encoder_attention(model):
    if hasattr(model.module, "wav2vec2"):
        return [layer.attention for layer in model.module.wav2vec2.encoder.layers]
    return [layer.self_attn for layer in model.module.model.encoder.layers]


def effects(model, clip, removal="word", window=1, delays=DELAYS, **options):
    """Effects [layers, delays] of the encoder."""
    rows = pd.DataFrame(
        look_ahead_effects(model, clip, delays_ms=delays, windows=[window], **options)
    )
    rows = rows[(rows["removal"] == removal) & rows["stack"].isin(["encoder", "input"])]
    rows["layer"] = rows["layer"].astype(float).fillna(0)
    return rows.pivot(index="layer", columns="ms", values="effect").to_numpy()


def last_frame(model, clip):
    """A number of the word's last frame alone."""
    end = clip.words[clip.target].end
    frame = model.grid(len(clip.audio(16_000))).frames_between(0, end)[1] - 1
    return lambda output: output.logits[0, frame, 3]


@pytest.mark.parametrize(("layer", "ahead"), [pytest.param(1, 4, marks=pytest.mark.long), (2, 7)])
def test_a_planted_layer_that_reads_one_later_frame_is_found_with_its_distance(
    ctc, clip, layer, ahead
):
    """Each frame sees itself; in one layer also the frame so many frames later."""

    def is_allowed(index, rows, columns):
        return (columns == rows) | ((columns == rows + ahead) & (index == layer))

    options = {"score": last_frame(ctc, clip)}
    options["delays"] = (0, *((ahead + frames) * STRIDE_MS for frames in (-1, 0, 1)))
    with attending(encoder_attention(ctc), is_allowed):
        by_layer = effects(ctc, clip, **options)
        prefix = effects(ctc, clip, "prefix", "all", **options)[0]
    reached = np.array(options["delays"]) < ahead * STRIDE_MS
    assert (np.abs(by_layer[layer, reached]) > 1e-3).all()
    assert not by_layer[layer, ~reached].any()
    assert not np.delete(by_layer, layer, axis=0).any()
    assert not prefix[~reached].any()


def test_a_relay_is_seen_by_the_prefix_and_not_by_single_layers(ctc, clip):
    """Layer 0 and layer 2 read 4 frames ahead: the word hears 8 ahead, by frames between."""

    def is_allowed(index, rows, columns):
        return (columns == rows) | ((columns == rows + 4) & (index % 2 == 0))

    delays = np.array([0, 60, 80, 140, 160, 180])
    options = {"score": last_frame(ctc, clip), "delays": delays.tolist()}
    with attending(encoder_attention(ctc), is_allowed):
        word, prefix = (
            effects(ctc, clip, name, "all", **options)[0] for name in ("word", "prefix")
        )
    assert not word[delays >= 80].any()
    assert (np.abs(prefix[delays < 160]) > 1e-3).all()
    assert not prefix[delays >= 160].any()


def test_a_causal_encoder_uses_no_future(ctc, whisper, clip):
    for model in (ctc, whisper):
        with attending(encoder_attention(model), lambda index, rows, columns: columns <= rows):
            rows = pd.DataFrame(look_ahead_effects(model, clip, delays_ms=[0, 60]))
        rows = rows[rows["removal"].isin(["word", "prefix"]) & (rows["stack"] == "encoder")]
        assert len(rows) == 2 * 2 * (1 + len(model.stacks["encoder"]))
        assert not rows["effect"].any()


def test_a_chunked_encoder_hears_to_the_end_of_its_chunk(ctc, clip):
    word_end = clip.words[clip.target].end
    first_later = ctc.grid(len(clip.audio(16_000))).frames_between(word_end, 9)[0]
    chunk = next(size for size in range(8, 30) if first_later % size == size - 5)
    delays = (0, 4 * STRIDE_MS, 5 * STRIDE_MS, 9 * STRIDE_MS)
    with attending(
        encoder_attention(ctc), lambda index, rows, columns: columns // chunk <= rows // chunk
    ):
        found = effects(ctc, clip, "prefix", "all", delays)[0]
    assert (np.abs(found[:2]) > 1e-3).all()  # five frames after the word are in its chunk
    assert not found[2:].any()
    assert effects(ctc, clip, "prefix", "all", delays)[0][2:].any()  # with full attention


def test_padding_of_a_fixed_window_is_no_future(whisper, clip):
    """The slow run: no frame before sees what is later or padding, against no padding alone."""
    rows = pd.DataFrame(
        look_ahead_effects(whisper, clip, delays_ms=[80, 5000], windows=["all"], score="contrast")
    )
    found = rows[rows["removal"] == "prefix"].set_index(["stack", "ms"])["effect"]
    assert not found[:, 5000].any()
    decision = Decision.prepare(whisper, clip)
    centres = STRIDE_MS * np.arange(150)
    first_later = int(np.argmax(centres >= 1000 * clip.words[clip.target].end + 80))
    clip_stop = int(np.argmax(centres >= 1000 * clip.duration))
    margins = []
    for stop in (clip_stop, first_later):

        def is_allowed(index, rows_, columns, stop=stop):
            return (rows_ >= first_later) | (columns < stop)

        with attending(encoder_attention(whisper), is_allowed), whisper.in_use(), torch.no_grad():
            output = whisper.module(**decision.prepared.inputs)
        margins.append(decision.compute_margins(output).item())
    assert found["encoder", 80] == pytest.approx(margins[0] - margins[1], abs=2e-3)
    assert abs(margins[0] - margins[1]) > 0.01


def test_windows_of_layers_are_nested(ctc, clip):
    of_two, of_four, single, together = (
        effects(ctc, clip, window=size, delays=DELAYS[:4:3]) for size in (2, 4, 1, "all")
    )
    np.testing.assert_allclose(of_two[-1], single[-1], atol=2e-4)
    np.testing.assert_allclose(of_four[-2:], of_two[-2:], atol=2e-4)
    np.testing.assert_allclose(of_four[0], together[0], atol=2e-4)
    assert np.abs(of_two[0] - single[0]).max() > 1e-3


def ctc_score(log_probs, labels, blank):
    """log p(labels) by the forward algorithm, from log-probabilities [T, V]."""
    states = [blank, *(state for label in labels for state in (label, blank))]
    alpha = np.full(len(states), -np.inf)
    alpha[:2] = log_probs[0, states[:2]]
    for row in log_probs[1:]:
        steps = [alpha, np.r_[-np.inf, alpha[:-1]]]
        skips = np.r_[[-np.inf] * 2, alpha[:-2]]
        is_skip = [i > 1 and s != blank and s != states[i - 2] for i, s in enumerate(states)]
        steps.append(np.where(is_skip, skips, -np.inf))
        alpha = np.logaddexp.reduce(steps, axis=0) + row[states]
    return np.logaddexp(alpha[-1], alpha[-2])


@pytest.mark.parametrize("delay", [0, 80])
def test_a_ctc_model_scores_as_a_slow_run_with_masks_does(ctc, clip, delay):
    """The word's letters stand between the start and the first space of the transcript."""
    rows = pd.DataFrame(look_ahead_effects(ctc, clip, delays_ms=[delay]))
    sound = torch.tensor(clip.audio(16_000))[None]
    inputs = ctc.feature_extractor(sound[0].numpy(), sampling_rate=16_000, return_tensors="pt")
    centres = 12.5 + STRIDE_MS * np.arange(len(ctc_logits(ctc, inputs)))
    word = clip.words[clip.target]
    frames = (centres >= 1000 * word.start) & (centres < 1000 * word.end)
    later = centres >= 1000 * word.end + delay
    labels = ctc.tokenizer("quels").input_ids
    space = ctc.tokenizer.word_delimiter_token_id
    intact_logits = ctc_logits(ctc, inputs)
    stop = int(np.argmax(intact_logits.argmax(-1) == space))
    for kind, targets in (("word", frames), ("prefix", ~later)):
        found = rows[(rows["removal"] == kind)].set_index("window")["score"]

        def is_allowed(index, targets_, sources, removed_rows=targets, layer=None):
            is_removed = removed_rows[targets_.numpy()] & later[sources.numpy()]
            return ~is_removed | (layer is not None and index != layer)

        with attending(encoder_attention(ctc), is_allowed):
            expected = ctc_score(ctc_logits(ctc, inputs)[:stop], labels, ctc.config.pad_token_id)
        assert found["all"] == pytest.approx(expected, abs=2e-3)
        for layer in range(4):
            with attending(
                encoder_attention(ctc),
                lambda *places, layer=layer, one=is_allowed: one(*places, layer=layer),
            ):
                logits = ctc_logits(ctc, inputs)
            expected = ctc_score(logits[:stop], labels, ctc.config.pad_token_id)
            assert found["1"].iloc[layer] == pytest.approx(expected, abs=2e-3)


def ctc_logits(model, inputs):
    with model.in_use(), torch.no_grad():
        return model.module(**inputs).logits[0].double().log_softmax(-1).numpy()


def test_a_decoder_scores_as_a_slow_run_with_masks_does(whisper, clip):
    rows = pd.DataFrame(
        look_ahead_effects(whisper, clip, delays_ms=[80], windows=["all"], score="contrast")
    )
    found = rows[rows["removal"] == "word"].set_index("stack")["score"]
    prepared = Decision.prepare(whisper, clip)
    inputs, places = prepared.prepared.inputs, prepared.objective.details
    row, token, foil = places["position"], places["token"], places["foil"]
    word = clip.words[clip.target]
    centres = STRIDE_MS * np.arange(150)
    later = (centres >= 1000 * word.end + 80) & (centres < 1000 * clip.duration)
    frames = (centres >= 1000 * word.start) & (centres < 1000 * word.end)
    encoder = encoder_attention(whisper)
    cross = [layer.encoder_attn for layer in whisper.module.model.decoder.layers]

    def margin():
        with whisper.in_use(), torch.no_grad():
            logits = whisper.module(**inputs).logits[0, row]
        return (logits[token] - logits[foil]).item()

    def of_encoder(index, rows_, columns):
        return ~(frames[rows_.numpy()] & later[columns.numpy()])

    def of_cross(index, rows_, columns):
        return ~((rows_.numpy() == row) & later[columns.numpy()])

    with attending(encoder, of_encoder):
        assert found["encoder"] == pytest.approx(margin(), abs=2e-3)
    with attending(cross, of_cross):
        assert found["cross"] == pytest.approx(margin(), abs=2e-3)
        with attending(encoder, of_encoder):
            assert found["encoder + cross"] == pytest.approx(margin(), abs=2e-3)
    assert abs(found["cross"] - margin()) > 1


def test_sound_that_ends_is_the_shorter_clip(ctc, clip):
    rows = pd.DataFrame(look_ahead_effects(ctc, clip, delays_ms=[100, 5000], windows=["all"]))
    found = rows[rows["removal"] == "cut"].set_index("ms")
    stop = round((clip.words[clip.target].end + 0.1) * 16_000)
    inputs = ctc.feature_extractor(
        clip.audio(16_000)[:stop], sampling_rate=16_000, return_tensors="pt"
    )
    whole = ctc.feature_extractor(clip.audio(16_000), sampling_rate=16_000, return_tensors="pt")
    space = ctc.tokenizer.word_delimiter_token_id
    end = int(np.argmax(ctc_logits(ctc, whole).argmax(-1) == space))
    labels, blank = ctc.tokenizer("quels").input_ids, ctc.config.pad_token_id
    cut_logits = ctc_logits(ctc, inputs)
    expected = ctc_score(cut_logits[:end], labels, blank)
    assert found.loc[100, "score"] == pytest.approx(expected, abs=2e-3)
    intact = ctc_score(ctc_logits(ctc, whole)[: min(end, len(cut_logits))], labels, blank)
    assert found.loc[100, "effect"] == pytest.approx(intact - expected, abs=2e-3)
    assert found.loc[5000, "effect"] == 0
    assert not found.loc[5000, "has_later"]


def test_the_control_removes_as_many_frames_or_all_that_there_are(ctc, clip):
    later_word = clip.replace(target=3, foil=None)
    rows = pd.DataFrame(look_ahead_effects(ctc, later_word, delays_ms=[0, 40], windows=["all"]))
    frames = rows.pivot(index="removal", columns="ms", values="frames")
    assert frames.loc["past"].tolist() == frames.loc["word"].tolist()
    first = pd.DataFrame(look_ahead_effects(ctc, clip, delays_ms=[0], windows=["all"]))
    counts = first.set_index("removal")["frames"]
    assert counts["past"] < counts["word"]


def test_curves_have_limits_and_intervals_over_groups(ctc):
    clips = bundled.clips()[:18:2]
    found = speechmix.look_ahead(
        ctc, clips, delays_ms=[0, 80, 2000], windows=["all"], chunks_ms=[200]
    )
    table = found.table[(found.table["removal"] == "prefix") & (found.table["ms"] == 0)]
    table = table[table["has_later"]]
    curve = found.curves[found.curves["removal"] == "prefix"].set_index("ms")
    means = table.groupby("group")["effect"].mean()
    assert curve.loc[0, "effect"] == pytest.approx(means.mean())
    assert curve.loc[0, "groups"] == len(means)
    assert curve.loc[2000, ["effect", "low", "high"]].isna().all()  # no clip is so long
    assert curve.loc[2000, ["groups", "clips", "has_later"]].tolist() == [0, 0, 0]
    limits = found.limits.set_index("removal").loc["prefix"]
    shown = curve.index[(curve["low"] > 0) | (curve["high"] < 0)]
    assert limits["used_ms"] == shown.max() if len(shown) else np.isnan(limits["used_ms"])
    assert "chunks of 200 ms" in found.summary
    assert found.curves.set_index("removal").loc["chunk", "errors"] >= 0


def table_of_effects(effects, delays, *, removal="word", window="all", layer=None, lengths=None):
    """A table of losses [G, D] of one curve, a clip for each group; `lengths` in ms after the word."""
    count, delay_count = effects.shape
    ms, group = np.tile(delays, count), np.repeat(np.arange(count), delay_count)
    length = np.repeat(np.full(count, np.inf) if lengths is None else lengths, delay_count)
    about = {"clip": group.astype(str), "word": 0, "group": group, "removal": removal}
    about |= {"stack": "encoder", "window": window, "ms": ms, "has_later": ms < length}
    about["layer"] = pd.array([layer] * len(ms), dtype="Int64")
    about["frames"] = (np.maximum(0, np.minimum(length, 9999) - ms) // STRIDE_MS).astype(int)
    about["effect"] = np.where(ms < length, effects.ravel(), 0.0)
    return pd.DataFrame(about)


@pytest.mark.parametrize("seed", SEEDS)
def test_clips_that_have_ended_show_nothing_about_later_sound(seed):
    """All future sound is used, a nat of it, and no clip has any from 1500 ms on."""
    random, delays = np.random.default_rng(seed), [0, 500, 1000, 1500, 2000]
    effects = random.normal(1, 0.2, (20, 1)) + random.normal(0, 0.05, (20, 5))
    for removal in ("word", "past"):
        table = table_of_effects(
            effects, delays, removal=removal, lengths=random.uniform(1000, 1500, 20)
        )
        if removal == "past":  # the word starts there; after it there is sound
            table["has_later"] = True
        curves = average_curves(table, 0.1)
        assert curves.loc[curves["ms"] >= 1500, ["effect", "low", "high"]].isna().all(axis=None)
        limits = find_limits(curves).iloc[0]
        assert np.isnan(limits["enough_ms"])
        assert (limits["used_ms"], limits["last_ms"]) == (1000, 1000)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_loss_that_is_negligible_is_found_up_to_the_last_delay_with_eight_groups(seed):
    random, delays = np.random.default_rng(seed), [0, 200, 400, 600]
    effects = random.normal(2, 0.4, (20, 1)) * [1, 0.6, 0.0, 0.0] + random.normal(0, 0.02, (20, 4))
    curves = average_curves(table_of_effects(effects, delays), 0.1)
    limits = find_limits(curves).iloc[0]
    assert (limits["used_ms"], limits["enough_ms"], limits["last_ms"]) == (200, 400, 600)
    lengths = np.where(np.arange(20) < 7, 700, 500)
    shorter = average_curves(table_of_effects(effects, delays, lengths=lengths), 0.1)
    assert shorter["groups"].tolist() == [20, 20, 20, 7]
    assert shorter.loc[3, ["low", "high"]].isna().all()
    assert find_limits(shorter).iloc[0]["last_ms"] == 400


@pytest.mark.parametrize("seed", SEEDS)
def test_a_loss_is_compared_with_what_the_same_clips_lose_at_the_smallest_delay(seed):
    """Short clips lose 5 nats, and nothing after they end; long clips .5 and always .4 of it."""
    random, delays = np.random.default_rng(seed), [0, 500, 1000]
    is_long = np.arange(24) < 12
    effects = np.where(is_long[:, None], [0.5, 0.4, 0.4], [5.0, 4.0, 4.0])
    effects = effects * random.normal(1, 0.1, (24, 1)) + random.normal(0, 0.01, (24, 3))
    lengths = np.where(is_long, 2000, 600)
    limits = find_limits(average_curves(table_of_effects(effects, delays, lengths=lengths), 0.1))
    assert limits["enough_ms"].isna().all()
    assert limits["last_ms"].item() == 1000


@pytest.mark.parametrize("loss", [0.0, 2.0])
def test_a_layer_has_a_limit_only_if_all_layers_together_have_an_effect(loss):
    random = np.random.default_rng(0)
    effects = random.normal(1, 0.1, (12, 2))
    whole = table_of_effects(loss + random.normal(0, 0.3, (12, 2)), [0, 200])
    part = table_of_effects(effects, [0, 200], window="1", layer=1)
    limits = find_limits(average_curves(pd.concat([whole, part], ignore_index=True), 0.1))
    assert limits["used_ms"].notna().tolist() == [loss > 0] * 2


@pytest.mark.parametrize("groups", [8, pytest.param(20, marks=pytest.mark.long)])
def test_of_36_layers_that_lose_nothing_one_is_shown_in_few_tables(groups):
    false, seeds = 0, 11
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        parts = [
            table_of_effects(
                random.normal(0, 1, (groups, 1)) + random.normal(0, 0.3, (groups, 3)),
                [0, 200, 400],
                removal=removal,
                window="1",
                layer=layer,
            )
            for removal in ("word", "prefix", "past")
            for layer in range(12)
        ]
        curves = average_curves(pd.concat(parts, ignore_index=True), 0.1)
        false += find_limits(curves)["used_ms"].notna().any()
    assert false <= 1


def test_clips_of_one_name_stay_apart_and_a_word_that_fails_is_the_only_one_skipped(ctc):
    first, second = bundled.clips()[:2]
    words = [(word.text, word.start, word.end) for word in second.words]
    words[0] = (words[0][0], 0.0, 0.001)  # shorter than a frame
    second = speechmix.Clip.from_array(second.audio(16_000), 16_000, name=first.name, words=words)
    options = {"words": "all", "delays_ms": [0], "windows": ["all"]}
    table = speechmix.look_ahead(ctc, [first], **options).table
    both = speechmix.look_ahead(ctc, [first, second], **options)
    assert set(both.table["clip"]) == {first.name, f"{first.name} (2)"}
    assert both.curves["clips"].max() == both.provenance["clips"] == 2
    assert [name for name, _ in both.skipped] == [f"{first.name} (2)"]
    assert len(both.table) == len(table) * (len(first.words) + len(words) - 1) / len(first.words)
    of_first = both.table[both.table["clip"] == first.name]
    np.testing.assert_array_equal(of_first["score"], table["score"])


@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.long)]
)  # seed 0: some clips have no frame left for their word
def test_nothing_is_shown_of_an_untrained_model(seed):
    model = speechmix.load("bundled:tiny-french-ctc", init="random", seed=seed)
    found = speechmix.look_ahead(model, bundled.clips()[:20:2], delays_ms=[0, 80], windows=["all"])
    used = found.limits.set_index("removal")["used_ms"]
    assert used[["word", "prefix", "past", "cut"]].isna().all()


def test_what_is_not_possible_is_refused(ctc, clip):
    with pytest.raises(InputError, match="window should be"):
        look_ahead_effects(ctc, clip, windows=["first"])
    with pytest.raises(InputError, match="numbers from 0 on"):
        look_ahead_effects(ctc, clip, delays_ms=[-10])
    with pytest.raises(InputError, match="give the word"):
        look_ahead_effects(ctc, clip.replace(target=None, foil=None))
    with pytest.raises(InputError, match="no clip can be used: right_01_pl"):
        speechmix.look_ahead(ctc, [clip.replace(target=None, foil=None)])
    with pytest.raises(InputError, match="words should be"):
        speechmix.look_ahead(ctc, [clip], words="cue")

#!/bin/sh
# torchaudio 2.11.0, torchaudio.functional.forced_align on the CPU (the CTC aligner that many word times come from).
#
# One would guess: it returns the most probable path through the labels; where several paths are equally probable, it
# returns one of them.
# True: where the two ways to move on (from the state before, and past the blank) tie exactly and are both better than
# staying, it stays. So it returns a path that is worse than the best one. Scores are those of the worse path: nothing
# shows it. Known upstream and open: https://github.com/pytorch/audio/issues/4221 (the CUDA kernel has the same lines).
# - One frame of three suffices, with 0.45 for a label and 0.45 for the blank.
# - Log-probabilities that are whole numbers (quantised scores) tie often.
# - A wildcard label ("any sound") whose score is the maximum over all labels ties with the blank wherever the blank is
#   the best label: most frames of a CTC model. The model's own scores need not tie.
# Cost: with such a wildcard before three labels, 129 of the 200 random cases below have a wrong path, by up to 10 nats.
# The label behind the wildcard usually begins too early: by 2.7 of 12 frames in the mean of these 129.
# Remedy: take the maximum without the blank, or add noise of 1e-9 in float64, which breaks ties: no path is wrong then.
#
# Run: sh findings/torchaudio_forced_align_ties.sh   (installs into a temporary folder; fails if the behaviour changes)
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.11.0 torchaudio==2.11.0 numpy==2.4.6
"$folder/env/bin/python" - <<'PYTHON'
import numpy as np
import torch
import torchaudio
from torchaudio.functional import forced_align

BLANK = 0


def best_score(log_probabilities, labels):
    """Log-probability of the best CTC path: exact, one frame after the other."""
    states = [BLANK]
    for label in labels:
        states += [label, BLANK]
    score = np.full(len(states), -np.inf)
    score[:2] = log_probabilities[0, states[:2]]
    for frame in log_probabilities[1:]:
        before = score.copy()  # stay
        before[1:] = np.maximum(before[1:], score[:-1])  # from the state before
        for state in range(3, len(states), 2):  # past the blank, between labels that differ
            if states[state] != states[state - 2]:
                before[state] = max(before[state], score[state - 2])
        score = before + frame[states]
    return score[-2:].max()


def aligned(log_probabilities, labels):
    """The path of forced_align, and its log-probability."""
    targets = torch.tensor([labels], dtype=torch.int32)
    path, _ = forced_align(torch.from_numpy(log_probabilities)[None], targets, blank=BLANK)
    path = path[0].numpy()
    return path.tolist(), log_probabilities[np.arange(len(path)), path].sum()


def deficits(make_case, count=200, noise=0.0):
    """By how much the paths of random cases are worse than the best one, in nats."""
    random, noise_random = np.random.default_rng(0), np.random.default_rng(1)
    worse = []
    for _ in range(count):
        log_probabilities, labels = make_case(random)
        log_probabilities += noise * noise_random.random(log_probabilities.shape)
        deficit = best_score(log_probabilities, labels) - aligned(log_probabilities, labels)[1]
        assert deficit > -1e-9, "the exact search above is wrong"
        worse.append(deficit)
    return np.array(worse)


def continuous(random):
    probabilities = random.dirichlet([4.0, 0.5, 0.5, 0.5], size=12)  # the blank is often best
    return np.log(probabilities + 1e-6), random.permutation([1, 2, 3]).tolist()


def whole_numbers(random):
    return -random.integers(0, 5, size=(12, 4)).astype(float), random.permutation([1, 2, 3]).tolist()


def with_wildcard(first_label):
    def case(random):
        log_probabilities, labels = continuous(random)
        wildcard = log_probabilities[:, first_label:].max(axis=1, keepdims=True)
        return np.concatenate([log_probabilities, wildcard], axis=1), [4, *labels]

    return case


print(f"torchaudio {torchaudio.__version__}, torch {torch.__version__}")
three_frames = np.log([[0.05, 0.9, 0.05], [0.45, 0.45, 0.1], [0.05, 0.05, 0.9]])
path, score = aligned(three_frames, [1, 2])
print(f"three frames: path {path}, {score:.2f} nats; the best has {best_score(three_frames, [1, 2]):.2f}")
found = {
    "continuous": deficits(continuous),
    "whole numbers": deficits(whole_numbers),
    "wildcard, maximum over all labels": deficits(with_wildcard(0)),
    "wildcard, maximum without the blank": deficits(with_wildcard(1)),
    "wildcard, maximum over all labels, with noise": deficits(with_wildcard(0), noise=1e-9),
}
wrong = {name: int((deficit > 1e-6).sum()) for name, deficit in found.items()}
for name, deficit in found.items():
    print(f"{name}: {wrong[name]} of {len(deficit)} paths are not the best, by up to {deficit.max():.1f} nats")
assert path == [1, 2, 2], "the behaviour has changed"
assert list(wrong.values()) == [0, 21, 129, 0, 0], "the behaviour has changed"
PYTHON

# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Phones: a final consonant that decides, and assimilation
#
# Which phone tells a model the number of *leurs chats dorment*? Does it undo assimilation, when *vache* is said with [ʒ]
# before a voiced consonant? And what is the state of such a phone made of?
#
# The clips are synthetic, the models tiny, and both were made with the same synthesiser: the numbers say
# **nothing about French, and nothing about models trained on people**. They show how such questions are asked.
# `recipes/phones.py` asks them of more items and voices, and of liaison.

# %%
# On Colab, or wherever speechmix is missing: install it from a checkout (or a git URL, or a wheel).
import importlib.util
import subprocess
import sys

SPEECHMIX = ".[synthesis]"  # where to install speechmix from
if importlib.util.find_spec("speechmix") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", SPEECHMIX], check=True)

# %%
import numpy as np
import pandas as pd
import transformers

import speechmix
from speechmix.evaluation.statistics.intervals import mean_interval
from speechmix.extensions.agreement.item_selection import (
    read_assimilation_design,
    speak_assimilation_design,
    speak_clip,
)
from speechmix.interventions.decision import Decision

transformers.utils.logging.disable_progress_bar()
MODEL, VOICE = "bundled:tiny-french-ctc", "f4"  # a voice that the model has not heard
model = speechmix.load(MODEL)

# %% [markdown]
# ## A clip that knows its phones
#
# `speak_clip` synthesises one. For recordings of people, give a TextGrid or ELAN file with a tier of phones (MFA and WebMAUS
# write them), or `speechmix.align(clip, tiers=["word", "phone"])`.

# %%
clip = speak_clip("leurs chats dorment", voice=f"fr+{VOICE}", cue=2, target=0, foil="leur")
[(phone.text, round(phone.start, 2)) for phone in clip.tiers["phone"]]

# %% [markdown]
# ## A map between phones
#
# One row per phone: which phones its state in layer 1 comes from.

# %%
maps = speechmix.mix(model, clip, units="phone")
maps["value_zeroing", "encoder"].show(layers=[1])

# %% [markdown]
# ## The final consonant decides
#
# *Leur* and *leurs*, *chat* and *chats* sound alike; *dort* [dɔʁ] and *dorment* [dɔʁm] differ in [m]. The margin is
# log p(*leurs*) - log p(*leur*): with the sound as it is, with the last phone of the verb muted, and, as a control, its first.


# %%
def mute(clip, phone):
    samples = np.array(clip.audio(16_000))
    samples[round(16_000 * phone.start) : round(16_000 * phone.end)] = 0
    details = {name: getattr(clip, name) for name in ("text", "words", "cue", "target", "foil")}
    return speechmix.Clip.from_array(samples, 16_000, **details)


rows = []
for noun in "chat voisin jardin mouton lapin tigre poulet robot".split():
    clip = speak_clip(f"leurs {noun}s dorment", voice=f"fr+{VOICE}", cue=2, target=0, foil="leur")
    verb = [phone for phone in clip.tiers["phone"] if phone.start >= clip.words[2].start - 1e-6]
    sounds = {
        "as it is": clip,
        "last muted": mute(clip, verb[-1]),
        "first muted": mute(clip, verb[0]),
    }
    rows.append({name: Decision.prepare(model, sound).margin for name, sound in sounds.items()})
margins = pd.DataFrame(rows)
pd.DataFrame(
    {name: [values.mean(), *mean_interval(values)] for name, values in margins.items()},
    index=["mean", "low", "high"],
).round(1)

# %% [markdown]
# Without the final [m] the model prefers the singular for certain. A hole where [d] was costs much as well, in some items
# more than the margin; the interval is wide. So the control matters: muting a phone is more than taking its information away.
#
# ## Assimilation: is the change undone where the next word licenses it?
#
# A design has four cells: *vache* with its own [ʃ] (kept) or with [ʒ] (changed), before *brille*, whose [b] is voiced
# (viable), or *tombe* (unviable). Listeners who compensate accept [vaʒ] as *vache* more readily before *brille*.

# %%
items = read_assimilation_design("french")  # or your own table; "english" has clea[m] pan
clips = speak_assimilation_design(items, variants=[VOICE])
table = pd.DataFrame(
    [{**clip.meta, "margin": Decision.prepare(model, clip).margin} for clip in clips]
)
cells = table.pivot_table(index="pair", columns=["form", "context"], values="margin")
cells.mean().round(1)

# %%
compensation = cells["changed", "viable"] - cells["changed", "unviable"]
low, high = mean_interval(compensation)
print(
    f"compensation: {compensation.mean():.2f} nats, 95 % interval {low:.2f} to {high:.2f}, {len(compensation)} items"
)

# %% [markdown]
# The interval includes zero: no compensation is shown. Nor can it be excluded; that would take more items.
#
# ## What the states of phones are made of
#
# The phone itself, its neighbours, the rest of its word, other words; beside nine untrained twins, which have the same phones
# of the same lengths. Bands: where one more untrained model is expected.

# %%
viable = [clip for clip in clips if clip.meta["context"] == "viable"]
twins = [speechmix.load(MODEL, init="random", seed=seed) for seed in range(9)]
sources = speechmix.phone_sources(model, viable, twins=twins, by=())
sources.show()

# %%
encoder = sources.shares[sources.shares["layer"] == -1]  # the whole encoder: what may be claimed
encoder[["source", "share", "low", "high", "random", "groups", "claim"]].round(1)

# %% [markdown]
# For one phone of each clip (`where={"role": "target", "position": "final"}, by="form"`) eleven items are too few to claim
# anything; `sources.table` has the numbers of each phone.
#
# For Praat or ELAN, write the row of a phone as tiers; for R, write the tables.
#
# ```python
# clip = clip.replace(target="phone:m", foil=None)
# speechmix.mix(model, clip, units="phone").to_textgrid("leurs.TextGrid", clip)  # or .eaf, .csv
# sources.table.to_csv("phones.csv", index=False)
# ```

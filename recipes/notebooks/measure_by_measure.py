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
# # One sentence, measure by measure
#
# *The pictures of some hat [MASK] scaring Marcus.* The hidden verb is *are* or *were*, because
# the subject is *pictures*. The noun next to it, *hat*, is singular. Which words contribute to
# the state of [MASK]? Each measure gives its own answer.
#
# The model is a tiny BERT that is trained below, in less than a minute, on **synthetic**
# sentences of one pattern. It says **nothing about** BERT. For a real model, set `MODEL =
# "google-bert/bert-base-uncased"`: the notebook then skips the training.

# %%
# On Colab, or wherever speechmix is missing: install it from a checkout (or a git URL, or a wheel).
import importlib.util
import subprocess
import sys

SPEECHMIX = "."  # where to install speechmix from
if importlib.util.find_spec("speechmix") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", SPEECHMIX], check=True)

# %%
import random

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import speechmix

MODEL = None

# %% [markdown]
# ## 0. A model that has learned agreement
#
# The sentences have two nouns. The verb agrees with the first one; the second one is singular or
# plural by chance.

# %%
NOUNS = {"picture": "pictures", "report": "reports", "story": "stories", "letter": "letters"}
OTHERS = {"hat": "hats", "child": "children", "car": "cars", "teacher": "teachers"}
VERBS = {"is": "are", "was": "were"}


def write_sentence(dice):
    form = dice.choice(["singular", "plural"])
    noun, other, verb = (dice.choice(list(words.items())) for words in (NOUNS, OTHERS, VERBS))
    index = int(form == "plural")
    end = f"{dice.choice(['scaring', 'helping', 'boring'])} {dice.choice(['Marcus', 'Anna', 'Karla'])} ."
    return f"the {noun[index]} of some {dice.choice(other)} {verb[index]} {end}"


def train_bert(texts, epochs=8):
    """Train a BERT of whole words to fill in a fifth of the words."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = special + sorted({word for text in texts for word in text.split()})
    raw = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    raw.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    names = dict(
        zip(
            ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), special, strict=True
        )
    )
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, **names)
    shape = {
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 128,
    }
    torch.manual_seed(0)
    module = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=len(words), **shape))
    ids, optimizer = (
        torch.tensor(tokenizer(texts).input_ids),
        torch.optim.AdamW(module.parameters(), 2e-3),
    )
    for batch in [b for _ in range(epochs) for b in torch.randperm(len(ids)).split(100)]:
        hidden = (torch.rand(len(batch), ids.shape[1]) < 0.2) & (ids[batch] > 4)
        labels = ids[batch].masked_fill(~hidden, -100)
        module(input_ids=ids[batch].masked_fill(hidden, 4), labels=labels).loss.backward()
        optimizer.step(), optimizer.zero_grad()
    return module.eval(), tokenizer


if MODEL is None:
    dice = random.Random(0)
    module, tokenizer = train_bert([write_sentence(dice) for _ in range(4000)])
    model = speechmix.load(module, processor=tokenizer)
    twin = speechmix.load(module, processor=tokenizer, init="random", seed=0)
else:
    model, twin = speechmix.load(MODEL), speechmix.load(MODEL, init="random", seed=0)

# %% [markdown]
# ## 1. What does the model write?

# %%
sentence = speechmix.Sentence("the pictures of some hat [MASK] scaring Marcus .", cue="pictures")
ids = model.tokenizer(sentence.text, return_tensors="pt").input_ids
logits = model.module(input_ids=ids).logits[0]
mask = ids[0].tolist().index(model.tokenizer.mask_token_id)
likely = logits[mask].softmax(-1).topk(2).indices
print("the two likeliest words:", *sorted(model.tokenizer.convert_ids_to_tokens(likely)))

# %% [markdown]
# ## 2. Attention
#
# The attention weight says how much the model *looks* at a word: the mean over heads, in the last
# layer. A large weight may meet a short value vector, and then hardly anything is taken over.

# %%
MEASURES = ["attention", "attention_norm", "value_zeroing", "alti", "gradient_input", "random"]
maps = speechmix.mix(model, sentence, measures=MEASURES)
maps["attention", "encoder"].tokens().plot()

# %% [markdown]
# ## 3. Attention norm
#
# The weight times the value vector, then the length of the product: what attention takes over
# from each word. What the layer does afterwards (residual stream, norms, feed-forward) is left
# out.

# %%
maps["attention_norm", "encoder"].tokens().plot()

# %% [markdown]
# ## 4. Value Zeroing
#
# Set the value vectors of one word to zero, run the **whole layer** again, and measure how far
# the new state of [MASK] moves.

# %%
maps["value_zeroing", "encoder"].tokens().plot()

# %% [markdown]
# ## 5. ALTI
#
# How much closer each transformed vector brings the output of the attention block. It includes
# the residual stream, so [MASK] itself has a large share.

# %%
maps["alti", "encoder"].tokens().plot()

# %% [markdown]
# ## 6. Gradient times input
#
# Another question: how much does each state contribute to the **logit** of the word that the
# model writes?

# %%
maps["gradient_input", "encoder"].tokens().plot()

# %% [markdown]
# ## 7. All below each other
#
# In the notebook, choose another word or another layer with the mouse or the arrow keys. `random`
# knows nothing about the model: whatever looks like it shows nothing.

# %%
maps.tokens()

# %%
maps.tokens().plot()

# %% [markdown]
# ## 8. Rolled out
#
# The last layer mixes states that are mixtures themselves. A rollout multiplies the maps of all
# layers: which words of the **input** arrive at [MASK]? Attention leaves out the residual stream,
# so the identity is added first.

# %%
maps.tokens(rolled_out=True).plot()

# %% [markdown]
# In the last layer, *pictures* has a small share: earlier layers have moved its number into other
# states, which the last layer reads. Rolled out, *pictures* has the largest share. One layer alone
# does not show where information comes from.

# %% [markdown]
# ## 9. The untrained twin
#
# The same architecture with random weights. What it shows, too, was not learned.

# %%
speechmix.mix(twin, sentence, measures=MEASURES[:4]).tokens().plot()

# %% [markdown]
# ## What not to conclude
#
# - This is one sentence and one twin. A claim needs many sentences and nine twins.
# - A large share says that the state was built from the word, not that the *number* of the word
#   was used. Removing the word tests that: `speechmix.blank_out`.
# - Measures answer different questions. That two of them agree does not show that they are right.

"""Train a tiny audio language model on a known mixture of items, and compare the listening report with the truth.

    python -m recipes.listening

Three kinds of items, with the tones of `tiny_audio_language_model`:

    sound    "Which tone?"        the answer is in the sound alone
    guess    "low tone?"          the answer is in the prompt, whatever the sound
    conflict "Which low?"         the prompt names another tone than the sound; the sound is right

The model is trained to answer all three. So it is known which items need the sound, and that the text wins in a
"guess" item whose sound says something else, and the sound in a "conflict" item. Takes about four minutes of one core.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

import speechmix
from recipes import tiny_audio_language_model as tones
from speechmix.extensions.listening.items import ListeningItem
from speechmix.extensions.listening.listening import Listening

OPTIONS = ("low", "high", tones.NEITHER)
KINDS = ("sound", "guess", "conflict")


def make_item(kind: str, number: int, seed: int) -> ListeningItem:
    """Make one item of a kind."""
    rng = np.random.default_rng([seed, KINDS.index(kind), number])
    said = str(rng.choice(OPTIONS))
    drawn = tones.tones_of(rng, telling=False)
    if said != tones.NEITHER:
        drawn[rng.integers(tones.N_WORDS)] = tones.LOW if said == "low" else tones.HIGH
    clip = tones.clip_of(drawn, seed=30_000 * seed + 10_000 * KINDS.index(kind) + number)
    clip = clip.replace(name=f"{kind}{number}", words=None, cue=None)
    other = str(rng.choice([option for option in OPTIONS if option != said]))
    if kind == "sound":
        return ListeningItem(clip, tones.PROMPT, said, OPTIONS, kind=kind)
    if kind == "guess":  # right is what the prompt names; the sound is another one
        return ListeningItem(clip, f"{other} tone?", other, OPTIONS, kind=kind)
    prompt = "Which {hint}?"
    return ListeningItem(clip, prompt, said, OPTIONS, hint=other, text_answer=other, kind=kind)


def make_items(counts: dict[str, int], seed: int) -> list[ListeningItem]:
    """Make so many items of each kind."""
    return [
        make_item(kind, number, seed) for kind, count in counts.items() for number in range(count)
    ]


def train(
    items: Sequence[ListeningItem] | None = None,
    *,
    steps: int = 700,
    batch: int = 24,
    seed: int = 0,
) -> speechmix.Model:
    """Train the model on items, whose prompts have one length; by default half as many items of the other kinds as of the
    kind "sound". With shuffled sounds, its answers come from the text alone.
    """
    module = tones.untrained(seed)
    model = speechmix.load(module, processor=tones.processor(), check=False)
    end, rows = model.tokenizer.eos_token_id, []
    for item in items or make_items({"sound": 300, "guess": 150, "conflict": 150}, seed=seed + 1):
        asked = model.with_prompt(item.full_prompt, answer=item.answer)
        rows.append(asked.family.prepare(asked, item.clip, ("encoder", "decoder")).inputs)
    inputs = {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
    optimizer = torch.optim.AdamW(module.parameters(), lr=2e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 2e-3, total_steps=steps, pct_start=0.1
    )
    draw = torch.Generator().manual_seed(seed)
    module.train()
    for _ in range(steps):
        chosen = torch.randint(len(rows), (batch,), generator=draw)
        fed = {name: tensor[chosen] for name, tensor in inputs.items()}
        logits = module(**fed, use_cache=False).logits[:, -2:]
        expected = torch.stack(
            [fed["input_ids"][:, -1], torch.full((batch,), end, dtype=torch.long)], dim=1
        )
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), expected.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    module.eval()
    return model


def deafen(model: speechmix.Model) -> speechmix.Model:
    """Return a copy whose decoder gets the same states for every sound: it answers from the text alone."""
    module = tones.untrained()
    module.load_state_dict(model.module.state_dict())
    torch.nn.init.zeros_(module.model.multi_modal_projector.linear.weight)
    return speechmix.load(module.eval(), processor=tones.processor(), check=False)


def shuffle_sounds(items: Sequence[ListeningItem], seed: int = 0) -> list[ListeningItem]:
    """Give each item the recording of a random other one."""
    order = np.random.default_rng(seed).permutation(len(items))
    return [
        ListeningItem(
            items[other].clip.replace(name=item.name),
            **{**item.question, "options": item.options},
        )
        for item, other in zip(items, order, strict=True)
    ]


def item_auroc(result: Listening) -> float:
    """Area under the curve of the sound's effect, for items of the kind "sound" against "guess"."""
    from sklearn.metrics import roc_auc_score

    table = result.table[result.table["kind"] != "conflict"]
    return float(roc_auc_score(table["kind"] == "sound", table["sound_effect"]))


def main() -> None:
    """Print what the report says of the trained model, its deaf twin, and shuffled sounds."""
    model = train()
    items = make_items({"sound": 48, "guess": 32}, seed=50)
    found = speechmix.listening(model, items)
    print(found.summary, f"truth: 60 %; AUROC of single items: {item_auroc(found):.3f}", sep="\n")
    conflicts = make_items({"conflict": 16}, seed=60)
    conflicts += [
        ListeningItem(item.clip, item.prompt, said_by(item), OPTIONS, "", item.answer, item.kind)
        for item in make_items({"guess": 16}, seed=61)
    ]
    shares = speechmix.listening(model, conflicts).shares
    print(shares[shares["share"] == "text dominance"].to_string())
    print("shuffled:", speechmix.listening(model, shuffle_sounds(items[:48])).card_line)
    print("deaf:", speechmix.listening(deafen(model), items).card_line)


def said_by(item: ListeningItem) -> str:
    """What the sound of a "guess" item says: drawn first, as in `make_item`."""
    number = int(item.name.removeprefix(item.kind))
    return str(np.random.default_rng([61, KINDS.index(item.kind), number]).choice(OPTIONS))


if __name__ == "__main__":
    main()

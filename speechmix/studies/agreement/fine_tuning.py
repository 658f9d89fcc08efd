"""Train a text model on the choice between two words: the second half of the published text study.

In: a loaded masked or causal model, and sentences with a target and a foil. Out: a folder with the
trained model in hub format, and `training.json`, which says how it was made; made once, then read.

    loss = cross-entropy of (z[target], z[foil]),   z the logits at [MASK] (masked) or where the target is predicted (causal)

Mohebbi et al. 2023 (Quantifying Context Mixing in Transformers, EACL): learning rate 3e-5, linear
with 10 % warm-up, 5 epochs of batches of 64, seed 42. The last epoch is kept; no test sentence is
looked at. Weight decay is not stated; here it is 0.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ...adapters.model import Model
from ...errors import InputError
from ...files.json_files import JsonObject, read_json_object
from ...files.whole_files import whole_folder, write_json
from ...inputs.sentences.sentence import Sentence
from ...interventions.decision import Decision
from ...mixing.measures.token_objectives import token_logits

_DESCRIPTION = "training.json"


@dataclass(frozen=True)
class FineTuningOptions:
    """How a model is trained; the published values by default.

    Parameters
    ----------
    learning_rate : float
        At its peak, behind the warm-up; it falls to zero from there.
    warm_up : float
        Share of the steps.
    batch_size, epochs, seed : int
    weight_decay : float
    """

    learning_rate: float = 3e-5
    warm_up: float = 0.1
    batch_size: int = 64
    epochs: int = 5
    seed: int = 42
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if (
            min(self.batch_size, self.epochs) < 1
            or not 0 <= self.warm_up <= 1
            or self.learning_rate <= 0
        ):
            raise InputError(
                "expected one epoch and a batch of one or more, a warm-up from 0 to 1, a learning "
                f"rate above 0; found {self}"
            )


@dataclass(frozen=True)
class _Choice:
    """One sentence as the model reads it."""

    inputs: dict[str, Tensor]  # each [T]
    position: int
    tokens: tuple[int, int]  # of target and foil


def fine_tune_choice(
    model: Model,
    sentences: Sequence[Sentence],
    folder: str | PathLike[str],
    *,
    training: FineTuningOptions | None = None,
    progress: bool = False,
) -> Path:
    """Train a copy of a model on the two-word choice, unless the folder already holds the result.

    Parameters
    ----------
    model : Model
        Masked or causal, with its head and tokenizer, weights in float32 or float64; it stays as it
        is.
    sentences : sequence of Sentence
        With target and foil, one token each. In a causal model what follows the target is not read.
    folder : path
        Appears when training has ended; a training that was stopped starts afresh.
    training : Training, optional
    progress : bool

    Returns
    -------
    Path
        `folder`, for `speechmix.load`.

    Raises
    ------
    InputError
        If a sentence has no foil or one that is not one token, or the folder holds something else.

    Examples
    --------
    >>> bert = speechmix.load("bert-base-uncased")                                                        # doctest: +SKIP
    >>> sentences = [speechmix.Sentence("the keys are here", target="are", foil="is")]                    # doctest: +SKIP
    >>> tuned = speechmix.load(fine_tune_choice(bert, sentences, "runs/tuned"))                           # doctest: +SKIP
    """
    folder, training = Path(folder), training or FineTuningOptions()
    if not sentences:
        raise InputError("expected sentences to train on, found none")
    question = {
        "model": model.fingerprint,
        "sentences": hashlib.sha256(
            json.dumps([one.fingerprint for one in sentences]).encode()
        ).hexdigest(),
        **asdict(training),
    }
    if folder.exists():
        _refuse_others(folder, question)
        return folder
    choices = [_choice_of(model, sentence) for sentence in sentences]
    module = copy.deepcopy(model.module).requires_grad_(True)
    losses = _train(
        module, choices, training, pad=model.tokenizer.pad_token_id or 0, progress=progress
    )
    with whole_folder(folder) as unfinished:
        module.eval().save_pretrained(unfinished)
        model.tokenizer.save_pretrained(unfinished)
        facts = {
            "started_from": model.name,
            "init": model.init,
            "sentences_used": len(sentences),
            "loss_by_epoch": losses,
        }
        write_json(unfinished / _DESCRIPTION, {"question": question, **facts})
    return folder


def _refuse_others(folder: Path, question: JsonObject) -> None:
    path = folder / _DESCRIPTION
    earlier = read_json_object(path).get("question") if path.is_file() else None
    if earlier != question:
        earlier = earlier if isinstance(earlier, dict) else {}
        other = [name for name in question if earlier.get(name) != question[name]]
        raise InputError(
            f"{folder} was made otherwise ({', '.join(other)}): remove it, or choose another folder"
            if earlier
            else f"{folder} is there and holds no trained model of this package ({_DESCRIPTION}): "
            "choose another folder"
        )


def _choice_of(model: Model, sentence: Sentence) -> _Choice:
    decision = Decision.prepare(model, sentence)
    read = decision.objective.details
    if not decision.has_foil:
        raise InputError(
            f"{sentence.name!r} has no foil: expected target= and foil=, the two words to choose "
            "from"
        )
    inputs = {name: tensor[0] for name, tensor in decision.prepared.inputs.items()}
    if model.capabilities.decoding == "causal":
        inputs = {name: tensor[: read["position"] + 1] for name, tensor in inputs.items()}
    return _Choice(inputs, read["position"], (read["token"], read["foil"]))


def _train(
    module: torch.nn.Module,
    choices: Sequence[_Choice],
    training: FineTuningOptions,
    *,
    pad: int,
    progress: bool,
) -> list[float]:
    """Train in place; mean loss of each epoch."""
    from tqdm.auto import tqdm

    device = next(module.parameters()).device
    steps = training.epochs * math.ceil(len(choices) / training.batch_size)
    warm_up = max(1, round(training.warm_up * steps))
    optimizer = torch.optim.AdamW(
        module.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / warm_up, (steps - step) / max(1, steps - warm_up), 1.0),
    )
    losses = []
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.enable_grad():
        torch.manual_seed(training.seed)
        module.train()
        for _ in tqdm(range(training.epochs), desc="fine-tune", unit="epoch", disable=not progress):
            total = 0.0
            for indices in torch.randperm(len(choices)).split(training.batch_size):
                batch = [choices[index] for index in indices.tolist()]
                loss = cross_entropy(
                    _two_logits(module, batch, pad, device),
                    torch.zeros(len(batch), device=device).long(),
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                total += len(batch) * loss.item()
            losses.append(round(total / len(choices), 6))
    return losses


def _two_logits(
    module: torch.nn.Module, batch: Sequence[_Choice], pad: int, device: torch.device
) -> Tensor:
    """Logits [n, 2] of target and foil, padded on the right, where neither masks nor causal stacks
    look."""
    longest = max(len(choice.inputs["input_ids"]) for choice in batch)
    inputs = {}
    for name in batch[0].inputs:
        fill = pad if name == "input_ids" else 0
        padded = [
            torch.nn.functional.pad(c.inputs[name], (0, longest - len(c.inputs[name])), value=fill)
            for c in batch
        ]
        inputs[name] = torch.stack(padded).to(device)
    lengths = torch.tensor([len(choice.inputs["input_ids"]) for choice in batch], device=device)
    inputs["attention_mask"] = (torch.arange(longest, device=device) < lengths[:, None]).long()
    logits = token_logits(module(**inputs, return_dict=True))  # [n, T, V]
    rows = torch.arange(len(batch), device=device)
    at = logits[rows, torch.tensor([choice.position for choice in batch], device=device)]  # [n, V]
    return at.gather(1, torch.tensor([choice.tokens for choice in batch], device=device))

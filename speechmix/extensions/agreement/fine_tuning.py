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

_METADATA_NAME = "training.json"


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
class _TrainingChoice:
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
    training : FineTuningOptions, optional
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
    training_key = {
        "model": model.fingerprint,
        "sentences": hashlib.sha256(
            json.dumps([sentence.fingerprint for sentence in sentences]).encode()
        ).hexdigest(),
        **asdict(training),
    }
    if folder.exists():
        _refuse_other_training(folder, training_key)
        return folder
    choices = [_make_choice(model, sentence) for sentence in sentences]
    module = copy.deepcopy(model.module).requires_grad_(True)
    losses = _train(
        module, choices, training, pad_id=model.tokenizer.pad_token_id or 0, progress=progress
    )
    with whole_folder(folder) as partial_dir:
        module.eval().save_pretrained(partial_dir)
        model.tokenizer.save_pretrained(partial_dir)
        metadata = {
            "started_from": model.name,
            "init": model.init,
            "sentences_used": len(sentences),
            "loss_by_epoch": losses,
        }
        write_json(partial_dir / _METADATA_NAME, {"question": training_key, **metadata})
    return folder


def _refuse_other_training(folder: Path, training_key: JsonObject) -> None:
    path = folder / _METADATA_NAME
    stored_key = read_json_object(path).get("question") if path.is_file() else None
    if stored_key != training_key:
        stored_key = stored_key if isinstance(stored_key, dict) else {}
        changed_names = [
            name for name in training_key if stored_key.get(name) != training_key[name]
        ]
        raise InputError(
            f"{folder} was made otherwise ({', '.join(changed_names)}): remove it, or choose another folder"
            if stored_key
            else f"{folder} is there and holds no trained model of this package ({_METADATA_NAME}): "
            "choose another folder"
        )


def _make_choice(model: Model, sentence: Sentence) -> _TrainingChoice:
    decision = Decision.prepare(model, sentence)
    objective_details = decision.objective.details
    if not decision.has_foil:
        raise InputError(
            f"{sentence.name!r} has no foil: expected target= and foil=, the two words to choose "
            "from"
        )
    inputs = {name: tensor[0] for name, tensor in decision.prepared.inputs.items()}
    if model.capabilities.decoding == "causal":
        inputs = {
            name: tensor[: objective_details["position"] + 1] for name, tensor in inputs.items()
        }
    return _TrainingChoice(
        inputs,
        objective_details["position"],
        (objective_details["token"], objective_details["foil"]),
    )


def _train(
    module: torch.nn.Module,
    choices: Sequence[_TrainingChoice],
    training: FineTuningOptions,
    *,
    pad_id: int,
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
            loss_sum = 0.0
            for indices in torch.randperm(len(choices)).split(training.batch_size):
                batch = [choices[index] for index in indices.tolist()]
                loss = cross_entropy(
                    _compute_choice_logits(module, batch, pad_id, device),
                    torch.zeros(len(batch), device=device).long(),
                )
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                loss_sum += len(batch) * loss.item()
            losses.append(round(loss_sum / len(choices), 6))
    return losses


def _compute_choice_logits(
    module: torch.nn.Module, batch: Sequence[_TrainingChoice], pad_id: int, device: torch.device
) -> Tensor:
    """Logits [n, 2] of target and foil, padded on the right, where neither masks nor causal stacks
    look."""
    longest = max(len(choice.inputs["input_ids"]) for choice in batch)
    inputs = {}
    for name in batch[0].inputs:
        fill = pad_id if name == "input_ids" else 0
        padded = [
            torch.nn.functional.pad(
                choice.inputs[name], (0, longest - len(choice.inputs[name])), value=fill
            )
            for choice in batch
        ]
        inputs[name] = torch.stack(padded).to(device)
    lengths = torch.tensor([len(choice.inputs["input_ids"]) for choice in batch], device=device)
    inputs["attention_mask"] = (torch.arange(longest, device=device) < lengths[:, None]).long()
    logits = token_logits(module(**inputs, return_dict=True))  # [n, T, V]
    rows = torch.arange(len(batch), device=device)
    position_logits = logits[
        rows, torch.tensor([choice.position for choice in batch], device=device)
    ]  # [n, V]
    return position_logits.gather(
        1, torch.tensor([choice.tokens for choice in batch], device=device)
    )

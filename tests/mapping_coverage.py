"""Which speech models of transformers load, for each type that its mappings name: with tiny random models.

    python -m tests.mapping_coverage --out coverage.json
    python -m tests.mapping_coverage --since coverage.json   # with another version of transformers

In: the mappings of the transformers that is installed. Out: for each type whether speechmix loads it (with a written or a
traced table) or refuses it, and why (one reason is that Value Zeroing is not defined in its layers); with `--since`, what is
new and what works no longer (exit status 1).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import warnings
from collections import Counter
from pathlib import Path

import torch
import transformers
from transformers.models.auto import modeling_auto

import speechmix
from speechmix.adapters.families.registry import families
from speechmix.extensions.tracing.layer_lists import NOT_DEFINED
from tests.models.automatic_configs import model_class, tiny_config
from tests.models.more_families import built
from tests.models.traced_models import TRACED_MODELS, build_traced_model

SPEECH_MAPPINGS = {
    "CTC": "MODEL_FOR_CTC_MAPPING_NAMES",
    "speech to text": "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "transducer": "MODEL_FOR_RNNT_MAPPING_NAMES",
    "transducer with durations": "MODEL_FOR_TDT_MAPPING_NAMES",
    "audio language model": "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "audio classifier": "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES",
}
TEXT_MAPPINGS = {
    "text decoder": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "text encoder": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "text to text": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
}
_AUDIO_FIELDS = (
    "audio_config",
    "speech_config",
    "audio_processor",
    "encoder_config",
    "audio_token_id",
    "audio_vocab_size",
)
# Types whose automatic config does not fit together: the name of their tiny model in `more_families`.
WRITTEN_BY_HAND = {"voxtral": "voxtral", "qwen2_5_omni_thinker": "qwen2.5-omni"}
_MAX_PARAMETERS = 30_000_000
LOADS, REFUSED, UNDEFINED, FAILS = "loads", "refused", "not defined", "fails"
NOT_BUILT = "not built"


def list_types(mappings: dict[str, str]) -> dict[tuple[str, str], dict[str, str]]:
    """Return kind and type of each model that the mappings name, with the mapping."""
    found = {}
    for kind, name in mappings.items():
        mapping = dict(getattr(modeling_auto, name, {}))
        for model_type in sorted(mapping):
            if kind != "audio language model" or _hears(model_type):
                found[kind, model_type] = mapping
    return found


def _hears(model_type: str) -> bool:
    """True for a multimodal model with a field of audio in its config."""
    try:
        fields = transformers.CONFIG_MAPPING[model_type]().to_dict()
    except Exception:  # a config without defaults
        return False
    return any(fields.get(name) is not None for name in _AUDIO_FIELDS)


def build(model_type: str, mapping: dict[str, str]) -> torch.nn.Module:
    """Build a tiny random model of a type, in 64 bits.

    Raises
    ------
    Exception
        Whatever transformers raises where the tiny config does not fit.
    """
    of_mapping = model_class(model_type, mapping)
    by_hand = TRACED_MODELS.get(model_type)
    if by_hand is not None and by_hand[0] == of_mapping.__name__:
        return build_traced_model(model_type)
    if model_type in WRITTEN_BY_HAND:
        return built(WRITTEN_BY_HAND[model_type])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = tiny_config(model_type)
        with torch.device("meta"):
            size = sum(x.numel() for x in of_mapping(config).parameters())
        if size > _MAX_PARAMETERS:
            raise ValueError(
                f"the automatic config gives a model of {size / 1e6:,.0f} million parameters"
            )
        return of_mapping(config).eval().requires_grad_(False).double()


def try_type(model_type: str, mapping: dict[str, str]) -> dict[str, str]:
    """Return the status of a type, the reason where it does not load, and the kind of its table."""
    try:
        module = build(model_type, mapping)
    except Exception as error:  # transformers' own, of any kind
        return {"status": NOT_BUILT, "reason": f"{type(error).__name__}: {_shorten(error)}"}
    written = {name for family in families() for name in family.model_types}
    try:
        try:
            model = speechmix.load(module)
        except speechmix.SpeechmixError:  # some cannot run in 64 bits
            model = speechmix.load(module.float())
    except speechmix.SpeechmixError as error:
        status = UNDEFINED if NOT_DEFINED in str(error) else REFUSED
        return {"status": status, "reason": _shorten(error)}
    except Exception as error:  # a fault of speechmix: it is what this script looks for
        return {"status": FAILS, "reason": f"{type(error).__name__}: {_shorten(error)}"}
    table = "written" if model_type in written else "traced"
    return {"status": LOADS, "stacks": " ".join(model.stacks), "table": table}


def _shorten(error: Exception) -> str:
    return " ".join(str(error).split())[:400]


def compare(found: dict[str, dict[str, str]], before: dict[str, dict[str, str]]) -> list[str]:
    """Say what works no longer, and which types are new."""
    lost = [
        f"no longer loads: {name} ({result.get('reason', '')})"
        for name, result in found.items()
        if result["status"] != LOADS and before.get(name, {}).get("status") == LOADS
    ]
    gone = [f"no longer there: {name}" for name in before if name not in found]
    new = [
        f"new: {name}, {result['status']}" for name, result in found.items() if name not in before
    ]
    return lost + gone + new


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    parser.add_argument("--since", type=Path, help="compare with the results of an earlier run")
    parser.add_argument("--text", action="store_true", help="text models, too")
    parser.add_argument("--draw", type=int, help="only so many types, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--skip", nargs="*", default=[], help="types that are not drawn")
    options = parser.parse_args(arguments)
    types = list_types(SPEECH_MAPPINGS | (TEXT_MAPPINGS if options.text else {}))
    if options.draw is not None:
        rest = sorted(key for key in types if key[1] not in options.skip)
        types = {key: types[key] for key in random.Random(options.seed).sample(rest, options.draw)}
    found = {}
    for (kind, model_type), mapping in types.items():
        result = try_type(model_type, mapping)
        found[f"{kind}: {model_type}"] = result
        print(
            f"{kind}: {model_type}: {result['status']} {result.get('reason', result.get('stacks', ''))}",
            flush=True,
        )
    counts = Counter(result["status"] for result in found.values())
    print(
        f"transformers {transformers.__version__}: {len(found)} models,",
        ", ".join(f"{n} {status}" for status, n in counts.items()),
    )
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if options.since is None:
        return 0
    changes = compare(found, json.loads(options.since.read_text(encoding="utf-8")))
    print("\n".join(changes) or "nothing changed")
    return int(any(change.startswith("no longer loads") for change in changes))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    sys.exit(main())

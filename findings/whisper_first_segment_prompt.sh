#!/bin/sh
# transformers 5.23.0, WhisperForConditionalGeneration.generate: prompt_ids with prompt_condition_type="first-segment" (the default).
#
# One would guess, by the documentation: "'first-segment' means only the first segment is conditioned on `prompt_ids`."
# True: without condition_on_prev_tokens (the default, too) the prompt stands before every window of a long recording. With
# condition_on_prev_tokens=True it is the beginning of the text before, which scrolls out of the decoder.
# Cost: who gives a prompt for the first sentence ("The following is an interview with ...") gives it every 30 s. A hallucination that
# comes from the prompt may come again in each window.
#
# Run: sh findings/whisper_first_segment_prompt.sh   (installs into a temporary folder; fails if the behaviour changes)
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet transformers==5.23.0 torch==2.11.0 numpy
"$folder/env/bin/python" - <<'PYTHON'
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

torch.manual_seed(0)
config = WhisperConfig(
    vocab_size=51864, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
    encoder_ffn_dim=16, decoder_ffn_dim=16, pad_token_id=50256, bos_token_id=50256, eos_token_id=50256,
    decoder_start_token_id=50257,
)
model = WhisperForConditionalGeneration(config).eval()  # random weights: only what the decoder is fed counts
options = model.generation_config
options.no_timestamps_token_id, options.prev_sot_token_id, options.is_multilingual = 50362, 50360, False
options.max_length = 12
PROMPT = [50360, 383, 9246, 13]  # <|startofprev|> and three tokens


def beginnings(**choices):
    """What the decoder is fed first, for each window of 30 s of a recording of 90 s."""
    windows = []

    def new_window(module, args, kwargs, output):
        windows.append(None)

    def record(module, args, kwargs):
        if windows and windows[-1] is None:
            windows[-1] = kwargs["input_ids"][0].tolist()

    handles = [
        model.model.encoder.register_forward_hook(new_window, with_kwargs=True),
        model.model.decoder.register_forward_pre_hook(record, with_kwargs=True),
    ]
    torch.manual_seed(0)
    model.generate(
        torch.randn(1, 80, 9000), attention_mask=torch.ones(1, 9000), return_timestamps=True, prompt_ids=torch.tensor(PROMPT),
        **choices,
    )
    for handle in handles:
        handle.remove()
    return windows


plain = beginnings()  # prompt_condition_type="first-segment", condition_on_prev_tokens not set
conditioned = beginnings(condition_on_prev_tokens=True)
print("windows:", len(plain), "; with the prompt:", sum(ids[: len(PROMPT)] == PROMPT for ids in plain))
print("with condition_on_prev_tokens:", [ids[:5] for ids in conditioned[:3]])
assert len(plain) >= 3
assert all(ids[: len(PROMPT)] == PROMPT for ids in plain), "the prompt is no longer in every window"
PYTHON
echo "as described"

#!/bin/sh
# ctranslate2 4.8.5, ct2-transformers-converter (TransformersConverter) of a Wav2Vec2ForCTC, transformers 5.23.0: vocabulary.json.
#
# One would guess: token i of vocabulary.json is the one of id i, as in the folders that the same converter writes of Whisper,
# Marian, GPT-2 and others, whose tokens it sorts by id.
# True: of wav2vec2 the tokens are in the order of the keys of vocab.json, and their ids are lost. transformers sorts these keys by
# letters when it saves a tokenizer (save_pretrained), so the order is alphabetical.
# Cost: who reads logits of the converted model by vocabulary.json gets other letters, and no error.
# Keep vocab.json (or the processor) beside the converted folder.
#
# Run: sh findings/ctranslate2_wav2vec2_vocabulary_order.sh   (installs into a temporary folder; fails if the behaviour changes)
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet ctranslate2==4.8.5 transformers==5.23.0 torch==2.11.0 numpy
"$folder/env/bin/python" - "$folder" <<'PYTHON'
import json
import sys
from pathlib import Path

import ctranslate2
import torch
from transformers import Wav2Vec2Config, Wav2Vec2CTCTokenizer, Wav2Vec2FeatureExtractor, Wav2Vec2ForCTC, Wav2Vec2Processor

folder = Path(sys.argv[1])
vocab = {token: index for index, token in enumerate(["|", "a", "b", "[UNK]", "[PAD]"])}
(folder / "vocab.json").write_text(json.dumps(vocab))
tokenizer = Wav2Vec2CTCTokenizer(
    str(folder / "vocab.json"), unk_token="[UNK]", pad_token="[PAD]", word_delimiter_token="|", bos_token=None, eos_token=None
)
torch.manual_seed(0)
config = Wav2Vec2Config(
    vocab_size=5, hidden_size=64, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, pad_token_id=4,
    do_stable_layer_norm=True, feat_extract_norm="layer", conv_dim=(32,) * 7, conv_bias=True, num_conv_pos_embeddings=16,
    num_conv_pos_embedding_groups=2,
)
model, processor = Wav2Vec2ForCTC(config), Wav2Vec2Processor(Wav2Vec2FeatureExtractor(), tokenizer)
model.save_pretrained(folder / "model")
processor.save_pretrained(folder / "model")
ctranslate2.converters.TransformersConverter(str(folder / "model")).convert(str(folder / "converted"))

by_id = [token for token, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])]
written = json.loads((folder / "converted" / "vocabulary.json").read_text())
print("by id:          ", by_id)
print("vocabulary.json:", written)
assert by_id == ["|", "a", "b", "[UNK]", "[PAD]"], by_id
assert written == ["[PAD]", "[UNK]", "a", "b", "|"], "the order of vocabulary.json has changed"
PYTHON
echo "as described"

"""Make decoder_model_merged.onnx of decoder_model.onnx with the names of optimum: one If node, whose branches
share the weights ("..._merged_0"), but not scalars. Its first branch stands for the decoder with cached
keys, which nobody runs here."""

from __future__ import annotations

from pathlib import Path

PAST, PRESENT = "past_key_values.0.decoder.key", "present.0.decoder.key"


def merge_decoder(decoder: Path, *, heads: int, head_width: int) -> Path:
    """Write the merged decoder beside a decoder, and return its path."""
    import onnx

    make, float_type = onnx.helper, onnx.TensorProto.FLOAT
    model = onnx.load(decoder)
    graph = model.graph
    shape = [1, heads, "past", head_width]
    shared = [value for value in graph.initializer if value.dims]
    own = [value for value in graph.initializer if not value.dims]
    new_names = {value.name: f"{value.name}_merged_0" for value in shared}
    for value in shared:
        value.name = new_names[value.name]
    branches = {}
    for branch, suffix in (("then_branch", "_past"), ("else_branch", "")):
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
        made = {name for node in nodes for name in node.output}
        for node in nodes:
            node.name = f"{node.name}{suffix}"
            for names in (node.input, node.output):
                names[:] = [
                    f"{name}{suffix}" if name in made else new_names.get(name, name)
                    for name in names
                ]
        present = f"{PRESENT}{suffix}"
        nodes.append(make.make_node("Identity", [PAST], [present]))
        outputs = [
            make.make_tensor_value_info(f"logits{suffix}", float_type, [1, "length", "vocabulary"]),
            make.make_tensor_value_info(present, float_type, shape),
        ]
        branches[branch] = make.make_graph(nodes, branch, [], outputs, own)
    merged = make.make_graph(
        [make.make_node("If", ["use_cache_branch"], ["logits", PRESENT], **branches)],
        "merged",
        [
            *graph.input,
            make.make_tensor_value_info(PAST, float_type, shape),
            make.make_tensor_value_info("use_cache_branch", onnx.TensorProto.BOOL, [1]),
        ],
        [*graph.output, make.make_tensor_value_info(PRESENT, float_type, shape)],
        shared,
    )
    path = decoder.with_name(decoder.name.replace("decoder_model", "decoder_model_merged"))
    onnx.save(
        make.make_model(merged, opset_imports=model.opset_import, ir_version=model.ir_version), path
    )
    return path

"""Models that other engines run: CTranslate2, whisper.cpp, openai-whisper, MLX, ONNX."""

from ...extension import Extension

EXTENSION = Extension(
    package=__name__,
    summary="Models that other engines run: CTranslate2, whisper.cpp, openai-whisper, MLX, ONNX.",
    exports={"engine_distance": "engine_distance:engine_distance"},
    commands={"engine": ("engine_command", "your own clips", 55)},
    kinds={"kind:ENGINE_DISTANCE_KIND": 145},
    sections={"section:ENGINE_DISTANCE_SECTION": 145},
    hooks={
        "open_engine": "engine_distance:RunningEngine",
        "engine_kinds": "kind:distance_kinds",
    },
    checkpoint_readers={
        "ggml": "ggml_files:GGML_READER",
        "openai-whisper": "openai_files:OPENAI_READER",
        "CTranslate2": "ctranslate2_files:CTRANSLATE2_READER",
        "MLX": "mlx_files:MLX_READER",
        "ONNX": "onnx_files:ONNX_READER",
    },
)

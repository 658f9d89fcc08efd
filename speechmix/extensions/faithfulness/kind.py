"""Result kind "faithfulness": effects of perturbations on a clip, and measures' scores.

In: a model and a clip with words, beside the other clip of its pair. Out: what `evaluate_item`
found; and of all clips, when the last shard is done, ``faithfulness.csv`` and
``faithfulness_values.csv`` in the run's folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...errors import SpeechmixError
from ...files.json_files import Json, JsonObject
from ...inputs.clips.clip import Clip
from ...mixing.measures.measure_functions import custom_identities
from ...runs.kinds.result_kind import (
    FinishedResults,
    Result,
    ResultItem,
    ResultKind,
    stored_contents,
    version_entry,
)
from ...runs.results.clip_result_files import Part
from .evaluate import combine_items, evaluate_item, model_provenance
from .options import DEFAULT_MEASURES, EvaluationOptions, evaluation_options, resolve_measures
from .perturbations import custom_perturbation_identities, split_fills_from_name
from .results import FaithfulnessResults, ItemResult

VERSION = 3  # 2: layers are composed by their mixing strength; 3: names of columns


def _cache_key(item: ResultItem) -> dict[str, object] | None:
    if item.is_partial_twin or not item.clip.words:
        return None
    options = _evaluation_options(item.options)
    try:
        measures = _resolve_measures(item)
    except SpeechmixError:  # the clip fails when it is computed, and the run says why
        measures = ()
    return {
        **item.ingredients,
        "pair": item.pair and item.pair.fingerprint_fields,
        "measures": measures,
        "min_words": options.min_words,
        "protocol": item.options.get("protocol"),
        **options.cache_entry(),
        **version_entry(1, measures),
        **_custom_identities(measures, options.perturbations or ()),
    }


def _compute(item: ResultItem) -> Result:
    measures, options = _resolve_measures(item), _evaluation_options(item.options)
    evaluation = evaluate_item(item.model, item.clip, item.pair, measures, options)
    facts = {"measures": list(measures), "min_words": options.min_words}
    facts["protocol"] = item.options.get("protocol")
    return Result({"facts": {**model_provenance(item.model), **facts}, **vars(evaluation)})


def _finish(finished: FinishedResults) -> None:
    models = finished.parts_by_owner.values()
    for results in stored_faithfulness(models, finished.clips, finished.group):
        results.write(finished.folder.path)


FAITHFULNESS_KIND = ResultKind(
    "faithfulness", _compute, VERSION, cache_key=_cache_key, finish=_finish, uses_pairs=True
)


def stored_faithfulness(
    models: Iterable[Sequence[Part]], clips: Sequence[Clip], group: str | None = None
) -> list[FaithfulnessResults]:
    """Return what was found of each model, over all clips that have results.

    Parameters
    ----------
    models : iterable of sequence of Part
        Part files of each model.
    clips : sequence of Clip
        With words; their metadata says now what ties them together.
    group : str, optional
        The column that does.

    Raises
    ------
    InputError
        If a part is damaged.
    """
    evaluations = []
    for parts in models:
        contents = {clip: content for _, clip, content in stored_contents(parts, "faithfulness")}
        evaluated = [clip for clip in clips if clip.name in contents]
        if evaluated:
            facts = contents[evaluated[0].name]["facts"]
            items = [_decode_item_result(contents[clip.name]) for clip in evaluated]
            evaluations.append(combine_items(items, evaluated, facts, group))
    return evaluations


def _evaluation_options(options: Mapping[str, Json]) -> EvaluationOptions:
    return evaluation_options(
        **{name: value for name, value in options.items() if name != "measures"}
    )


def _resolve_measures(item: ResultItem) -> tuple[str, ...]:
    """Names of the measures that are defined for the model, found once for all of its clips."""
    if "measures" not in item.shared:
        requested = item.options.get("measures", DEFAULT_MEASURES)
        item.shared["measures"] = resolve_measures(item.model, requested)
    names: tuple[str, ...] = item.shared["measures"]
    return names


def _decode_item_result(content: JsonObject) -> ItemResult:
    return ItemResult(**{name: value for name, value in content.items() if name != "facts"})


def _custom_identities(measures: Sequence[str], references: Sequence[str]) -> JsonObject:
    """Identities of custom measures and perturbations, so that results of edited functions are
    computed again."""
    names = [split_fills_from_name(name)[0] for name in measures]
    custom = {**custom_identities(names), **custom_perturbation_identities(references)}
    return {"custom": custom} if custom else {}

"""Maps: all maps of one item, by measure and stack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from .composition import compose, maps_to_compose
from .mixing_map import MixingMap

if TYPE_CHECKING:
    import pandas as pd
    from inseq import FeatureAttributionOutput
    from matplotlib.axes import Axes

    from ...inputs.clips.clip import Clip


class Maps(Mapping[tuple[str, str], MixingMap]):
    """The maps of one clip, by (measure, stack)."""

    def __init__(self, maps: Mapping[tuple[str, str], MixingMap]):
        self._maps = dict(maps)

    def __getitem__(self, key: tuple[str, str]) -> MixingMap:
        if key not in self._maps:
            raise InputError(f"no map {key!r}; there are {', '.join(map(repr, self._maps))}")
        return self._maps[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._maps)

    def __len__(self) -> int:
        return len(self._maps)

    def __contains__(self, key: object) -> bool:
        return key in self._maps

    def composed(
        self,
        measure: str,
        *,
        share: float | None = None,
        weighted: bool | None = None,
        prefix: bool = True,
    ) -> MixingMap:
        """Encoder, cross and decoder maps of one measure in one; see
        `speechmix.mixing.maps.composition.compose`.

        Raises
        ------
        InputError
            If one of the three is not there, or they do not fit together: the error says what to
            ask `mix` for.
        """
        return compose(
            **maps_to_compose(self, measure), share=share, weighted=weighted, prefix=prefix
        )

    def to_dataframe(self) -> pd.DataFrame:
        """Return the tables of all maps below each other; see `MixingMap.to_dataframe`."""
        import pandas as pd

        return pd.concat(
            [mixing_map.to_dataframe() for mixing_map in self.values()], ignore_index=True
        )

    def plot(self, *, layer: int | None = None) -> list[Axes]:
        """Draw the heat map of each map in a figure of its own; see `MixingMap.plot`."""
        return [mixing_map.plot(layer=layer) for mixing_map in self.values()]

    def to_textgrid(self, path: str | Path, clip: Clip, **options: Any) -> Path:
        """Words and shares as tiers, .TextGrid for Praat, .eaf for ELAN or .csv; see
        `speechmix.mixing.maps.score_tiers.write_score_tiers`."""
        from .score_tiers import write_score_tiers

        return write_score_tiers(path, self, clip, **options)

    def to_inseq(self, measure: str | None = None) -> FeatureAttributionOutput:
        """One measure's maps (the only one by default) as an output object of Inseq; see
        `speechmix.extensions.inseq.inseq_conversion.to_inseq`."""
        from ...extension import find_export

        measure = (
            next(iter(self))[0]
            if measure is None and len({name for name, _ in self}) == 1
            else measure
        )
        output: FeatureAttributionOutput = find_export("to_inseq")(
            [mixing_map for (name, _), mixing_map in self.items() if name == measure]
        )
        return output

    def __repr__(self) -> str:
        return "Maps(" + ", ".join(f"{measure}/{stack}" for measure, stack in self._maps) + ")"

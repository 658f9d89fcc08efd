"""A loaded model with what speechmix knows about it: its family, its stacks, its front end, where
it came from.

`Model` wraps an unmodified Hugging Face model; `speechmix.load` makes one. Its description is in
`ModelDescription`, what begins its decoder's input in `prefix` or `prompt`, and what it generated
in `generated_texts`.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from ..errors import InputError, ModelError
from ..files.cache_keys import digest
from .binding.bound_layers import Stack, bind_stacks
from .capture.model_use import ActivationCache, MeasurableModel, RandomNumberCheck
from .capture.module_access import exclusive_access, list_modules
from .delta_engine.matrix_products import WeightProducts
from .families.capabilities import Capabilities
from .generation.decoder_context import DecoderPrefix, GeneratedText, Prompt
from .loading.foreign_checkpoint import CheckpointOrigin
from .loading.model_properties import WeightsSnapshot, fingerprint
from .transformers_types import FeatureExtractor, Processor, Tokenizer

if TYPE_CHECKING:
    from ..inputs.audio.frame_grid import FrameGrid
    from ..inputs.sentences.sentence import Sentence
    from .families.family import Family


@dataclass(repr=False)
class Model(MeasurableModel):
    """An unmodified Hugging Face model, seen through its family's table.

    Parameters
    ----------
    module : transformers.PreTrainedModel
        As its owner has it; whatever runs it does so within `in_use`.
    family : Family
    name : str
        Hub id, folder or class name, as it is written in reports.
    init : {"trained", "random"}
    seed : int, optional
        Seed of the random initialisation.
    feature_extractor, tokenizer : optional
        From the processor; neither is needed for prepared inputs.

    Attributes
    ----------
    stacks : dict of str to Stack
    capabilities : Capabilities
        What kind of model it is.
    prefix : DecoderPrefix
        What a Whisper's decoder is told; see `with_prefix`.
    processor : optional
        Of an audio language model, which writes the prompt around the sound.
    prompt : Prompt
        What an audio language model is asked; see `with_prompt`.
    generated_texts : dict of str to GeneratedText
        What the model wrote about clips and sentences that came without a text for its decoder.
    weight_products : WeightProducts, optional
        What was made of the weights, within `unchanged`.
    activation_cache : ActivationCache, optional
        What was made of the sounds heard last, within `unchanged`.
    origin : CheckpointOrigin, optional
        The file of another engine that the model was converted from.
    engine : optional
        That engine, where it was opened too (`speechmix.load`, ``engine=``): it writes transcripts.
    needs_eager_attention : bool
        Whether attention is read off the softmax because the model, as it was given, computes
        something else than torch's attention function (self_check.py).
    """

    module: Any
    family: Family
    name: str
    init: str = "trained"
    seed: int | None = None
    feature_extractor: FeatureExtractor = None
    tokenizer: Tokenizer = None
    prefix: DecoderPrefix = field(default_factory=DecoderPrefix)
    processor: Processor = None
    prompt: Prompt = field(default_factory=Prompt)
    generated_texts: dict[str, GeneratedText] = field(
        default_factory=dict, repr=False, compare=False
    )
    stacks: dict[str, Stack] = field(init=False, repr=False)
    capabilities: Capabilities = field(init=False, repr=False, compare=False)
    weight_products: WeightProducts | None = field(default=None, init=False, repr=False)
    activation_cache: ActivationCache | None = field(
        default=None, init=False, repr=False, compare=False
    )
    needs_eager_attention: bool = field(default=False, init=False, repr=False)
    origin: CheckpointOrigin | None = field(default=None, init=False, repr=False, compare=False)
    engine: Any = field(default=None, init=False, repr=False, compare=False)
    # modules that the stacks are bound to
    _modules: list[torch.nn.Module] = field(init=False, repr=False, compare=False)
    random_number_check: RandomNumberCheck = field(
        default_factory=RandomNumberCheck, init=False, repr=False, compare=False
    )
    _fingerprint: tuple[WeightsSnapshot, str] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self.stacks = bind_stacks(self.family, self.module, self.base)
        self._modules = list_modules(self.module)
        self.capabilities = self.family.capabilities(self.config, tuple(self.stacks))
        if "cross" in self.stacks and "encoder" not in self.stacks:
            raise ModelError(
                f"{type(self.module).__name__} is the decoder alone of a {self.family.name} model, "
                "whose layers have "
                "cross-attention to an encoder that is not there: load the whole model "
                "(ForConditionalGeneration)"
            )
        if not self.stacks:
            raise ModelError(
                f"{type(self.module).__name__} has none of the stacks of the {self.family.name} "
                "family: "
                "pass the whole model, not a part of it"
            )

    def __copy__(self) -> Model:
        model_copy = object.__new__(type(self))
        model_copy.__dict__.update(self.__dict__)
        return model_copy

    @property
    def fingerprint(self) -> str:
        """Short hash of all that decides a result: class, config, weights, buffers, feature
        extractor, tokenizer, prefix.

        The same wherever the checkpoint lies; another for another precision. Made once (about a
        second for each gigabyte) and made again where weights were exchanged or written to in
        between. What is written through ``weight.data`` or a numpy view is not noticed, for torch
        does not count it, until `forget_fingerprint`, with which every run begins.
        """
        hashed_objects = (self.module, self.feature_extractor, self.tokenizer)
        generation = getattr(self.module, "generation_config", None)
        with exclusive_access(self.module):  # another thread may run it in another precision
            if self._fingerprint is None or not self._fingerprint[0].is_unchanged(
                *hashed_objects, generation
            ):
                weights_snapshot = WeightsSnapshot(
                    *hashed_objects, generation
                )  # before hashing: what is written meanwhile is noticed next time
                self._fingerprint = weights_snapshot, fingerprint(*hashed_objects)
        hash_values = self._prompt_hash_values if self.converses else self.prefix.hash_values
        if (
            self.needs_eager_attention
        ):  # the same weights give other states under another implementation
            hash_values = (*(hash_values or ()), "eager")
        if self.engine is not None:  # it writes other texts
            hash_values = (*(hash_values or ()), *self.engine.hash_values)
        return (
            self._fingerprint[1]
            if hash_values is None
            else digest([self._fingerprint[1], *hash_values])[:16]
        )

    @property
    def _prompt_hash_values(self) -> tuple[Any, ...]:
        """Return what the prompt adds to the fingerprint: its text and the chat template."""
        return (*self.prompt.hash_values, str(getattr(self.processor, "chat_template", None)))

    def forget_fingerprint(self) -> None:
        """Let the next `fingerprint` be made from every number again."""
        self._fingerprint = None

    def with_prefix(
        self, *, task: str = "transcribe", language: str | None = None, timestamps: bool = False
    ) -> Model:
        """Return the model with another prefix of its decoder: the same weights, another name and
        fingerprint.

        Parameters
        ----------
        task : {"transcribe", "translate"}
            With "translate" the decoder is fed a clip's `translation`, or else the one the model
            writes itself.
        language : str, optional
            Language that the decoder is told is spoken; by default the clip's own.
        timestamps : bool
            Timestamp tokens around the text.

        Raises
        ------
        InputError
            If the model cannot be told this: one that is no Whisper, or English-only, or without
            such tokens.

        Examples
        --------
        >>> whisper = speechmix.load("openai/whisper-small").with_prefix(task="translate")    # doctest: +SKIP
        >>> whisper.name                                                                      # doctest: +SKIP
        'openai/whisper-small (translate)'
        """
        if self.family.check_prefix is None or self.tokenizer is None:
            raise InputError(
                f"{self.name}: task=, language= and timestamps= are told to the decoder of a "
                f"Whisper with its tokenizer; this is a {self.family.name} model"
                + self.missing_processor
            )
        return self._copy_with_prefix(
            replace(self.prefix, task=task, language=language, timestamps=timestamps)
        )

    def _copy_with_prefix(self, prefix: DecoderPrefix) -> Model:
        if self.family.check_prefix is not None:
            self.family.check_prefix(self, prefix)
        base_name = self.name
        if self.prefix.description:
            base_name = base_name.removesuffix(f" ({self.prefix.description})")
        return self._copy_with(base_name, prefix.description, prefix=prefix)

    def with_prompt(
        self,
        text: str | None = None,
        *,
        answer: str | None = None,
        transcribes: bool = False,
        hotwords: str | None = None,
    ) -> Model:
        """Return an audio language model or a Whisper with another prompt: the same weights, another
        name and fingerprint.

        A Whisper's prompt is text that its decoder reads as if it had been said before, behind
        <|startofprev|> (``initial_prompt`` of faster-whisper, ``prompt_ids`` of transformers). It is
        there in every window.

        An audio language model as it is loaded is prompted to transcribe, and its decoder is fed the
        clip's text as the answer, as a Whisper's is. With another prompt it generates its answer,
        unless an answer is given.

        Parameters
        ----------
        text : str, optional
            What it is asked, behind the sound; by default what it is asked now. Of a Whisper, the
            text before the sound, such as the text of the window before; "" for none.
        answer : str, optional
            What its decoder is fed as the answer; by default what the model writes itself (greedy).
        transcribes : bool
            The answer is the clip's text: for another way to ask for a transcript.
        hotwords : str, optional
            Of a Whisper, words that stand before the prompt, as in faster-whisper.

        Raises
        ------
        InputError
            If the model takes no prompt, the prompt is too long for its decoder, or an answer is given
            to a prompt that transcribes.

        Examples
        --------
        >>> model = speechmix.load("Qwen/Qwen2-Audio-7B-Instruct")                            # doctest: +SKIP
        >>> asked = model.with_prompt("Is the speaker a child?", answer="Yes.")               # doctest: +SKIP
        """
        if self.family.check_prefix is not None and self.tokenizer is not None:
            if answer is not None or transcribes:
                raise InputError(
                    f"{self.name}: answer= and transcribes= are for audio language models"
                )
            prefix = replace(
                self.prefix,
                prompt=self.prefix.prompt if text is None else text,
                hotwords=self.prefix.hotwords if hotwords is None else hotwords,
            )
            return self._copy_with_prefix(prefix)
        if not (self.converses or self.takes_chat) or hotwords is not None:
            raise InputError(
                f"{self.name}: prompt= and answer= are for audio language models, prompt= and "
                f"hotwords= for a Whisper with its tokenizer; this is a {self.family.name} model"
            )
        if transcribes and answer is not None:
            raise InputError(
                "answer= is what a clip is answered, transcribes=True says that it is the clip's "
                "text: give one"
            )
        prompt, base_name = (
            Prompt(self.prompt.text if text is None else text, answer, transcribes),
            self.name,
        )
        if self.prompt.description:
            base_name = base_name.removesuffix(f" ({self.prompt.description})")
        return self._copy_with(base_name, prompt.description, prompt=prompt)

    def _copy_with(
        self, base_name: str, description: str, **attributes: DecoderPrefix | Prompt
    ) -> Model:
        """Return a copy of the model with other attributes and the name that says so."""
        model_copy = copy(self)
        for name, value in attributes.items():
            setattr(model_copy, name, value)
        model_copy.stacks, model_copy.generated_texts = dict(self.stacks), {}
        model_copy.weight_products = model_copy.activation_cache = None
        model_copy.name = f"{base_name} ({description})" if description else base_name
        return model_copy

    def without_engine(self) -> Model:
        """Return the copy of an engine's weights alone, which writes its transcripts itself."""
        if self.engine is None:
            return self
        model_copy = self._copy_with(self.name, "")
        model_copy.engine = None
        return model_copy

    def translate(self, sentence: Sentence | str) -> Sentence:
        """Return a sentence with the translation that the model generates (greedy), as `mix` feeds it.

        Raises
        ------
        InputError
            If the model cannot generate one: a random twin, a model without a head, a speech model.
        """
        if self.family.translate is None:
            reason = (
                "hears: with_prefix(task='translate') makes it translate clips"
                if self.hears
                else "is no sequence-to-sequence model of text and translates none"
            )
            raise InputError(f"{self.name} {reason}")
        return self.family.translate(self, sentence)

    def grid(self, n_samples: int) -> FrameGrid:
        """Frames of a clip of `n_samples` samples at the model's rate.

        Raises
        ------
        ModelError
            For a model that reads text.
        """
        if self.family.grid is None:
            raise ModelError(f"{self.name} reads text: there are no frames")
        return self.family.grid(self.config, n_samples)

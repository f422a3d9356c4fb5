"""The models of a run: those that the settings name, or those of the previous version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from indexmill.store.manifest import Manifest
from schemas.config import Configuration
from tasks.core.encoder import EncoderChoice, choose_encoder
from tasks.core.writer import BoundWriter, Writer
from tasks.llm import llm_recogniser
from tasks.llm.llm_recogniser import LlmRecogniser
from tasks.llm.prompts import Prompt, prompt
from tasks.stages.extract import extractive, llm_extract
from tasks.stages.recognise import rules


class RunModels:
    """The models that the settings name, and the values that determine their output; reads each prompt once."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._writers: dict[str, BoundWriter] = {}
        self._prompts: dict[str, Prompt] = {}
        self._choice: EncoderChoice | None = None

    def choice(self) -> EncoderChoice:
        """Choose the encoder, once; raises ModelUnavailable."""
        if self._choice is None:
            self._choice = self._chosen()
        return self._choice

    def _chosen(self) -> EncoderChoice:
        return choose_encoder(self._configuration.embed)

    def recogniser(self) -> str:
        """Open the recogniser; returns the fingerprint that determines its output."""
        chosen, llm = self._configuration.recognise, self._configuration.llm
        if chosen.asks_llm:
            return LlmRecogniser(*self.prompt(llm_recogniser.TASK), llm.shaping()).fingerprint
        return rules.recogniser_of(chosen.recogniser).fingerprint

    def extractor(self) -> dict[str, Any]:
        """Read the prompts of the extraction; returns the values that determine it."""
        llm = self._configuration.llm
        if llm.backend == "extractive":
            return dict(extractive.FINGERPRINT)
        return llm_extract.extractor_of(self.prompt).fingerprint(llm)

    def writer(self, writer: Writer) -> BoundWriter:
        """Bind a writer to the settings; raises ConfigurationError if its prompt cannot be read."""
        if writer.task not in self._writers:
            self._writers[writer.task] = self._bound(writer)
        return self._writers[writer.task]

    def _bound(self, writer: Writer) -> BoundWriter:
        writer_prompt = writer.prompt(self._configuration.llm)
        return BoundWriter(writer_prompt, writer.fingerprint(self._configuration, writer_prompt))

    def prompt(self, task: str) -> Prompt:
        """Read the prompt of a task, once; raises ConfigurationError if it cannot be read."""
        if task not in self._prompts:
            self._prompts[task] = prompt(task, self._configuration.llm.prompts)
        return self._prompts[task]

    def preflight(self, writers: Iterable[Writer]) -> None:
        self.choice()
        self.recogniser()
        if self._configuration.extracts:
            self.extractor()
        for writer in writers:
            self.writer(writer)

    def fingerprints(self, encoder: Mapping[str, Any], writers: Iterable[Writer]) -> dict[str, Any]:
        """Return the fingerprints of all models, as in a manifest. encoder: the fingerprint of the opened encoder."""
        configuration = self._configuration
        named = {"name": configuration.recognise.published_name, "fingerprint": self.recogniser()}
        fingerprints: dict[str, Any] = {"encoder": dict(encoder), "recogniser": named}
        needed = (writer for writer in writers if writer.needed(configuration))
        fingerprints |= {writer.model: dict(self.writer(writer).fingerprint) for writer in needed}
        if configuration.extracts:
            fingerprints["extractor"] = self.extractor()
        if configuration.llm.asks and configuration.llm.context_tokens is not None:
            fingerprints["context_tokens"] = configuration.llm.context_tokens
        return fingerprints


class PublishedModels(RunModels):
    """The models of a published version, with the fingerprints of its manifest."""

    def __init__(self, configuration: Configuration, manifest: Manifest) -> None:
        super().__init__(configuration)
        self._published: Mapping[str, Any] = manifest.models

    def _chosen(self) -> EncoderChoice:
        return _PublishedChoice(self._published["encoder"])

    def recogniser(self) -> str:
        return str(self._published["recogniser"]["fingerprint"])

    def extractor(self) -> dict[str, Any]:
        return dict(self._published["extractor"])

    def _bound(self, writer: Writer) -> BoundWriter:
        return BoundWriter(writer.prompt(self._configuration.llm), self._published[writer.model])


class _PublishedChoice(EncoderChoice):
    """The encoder of a snapshot, with the properties that stages use before it is opened."""

    def __init__(self, fingerprint: Mapping[str, Any]) -> None:
        super().__init__(fingerprint["backend"], fingerprint["precision"], None)
        self.__dict__["tokenizer"] = {
            **({} if fingerprint["tokenizer"] else {"backend": "hash"}),
            "max_tokens": fingerprint["max_tokens"],
            "tokenizer": fingerprint["tokenizer"],
        }

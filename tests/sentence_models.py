"""Tiny models of every make, with random weights, saved as sentence-transformers saves the published ones."""

from __future__ import annotations

import importlib.util
import string
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.encoders import WORDS

needs_sentence_transformers = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("sentence_transformers", "openvino")),
    reason="needs sentence-transformers and openvino",
)

TOKENS = 160
"""The most tokens that each model reads."""

_SIZES: Mapping[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}

MAKES = ("cls", "mean", "last")
"""As BGE is made, as multilingual E5, and as Qwen3-Embedding with a dense layer behind it."""


def saved(make: str, folder: Path) -> Path:
    """The folder of a model of one of `MAKES`, or of ``instructor``, whose prompt takes no part in the pooling."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

    base = folder / "transformer"
    transformer, words = _transformer(make)
    torch.manual_seed(7)
    for parameter in transformer.parameters():  # as they come, biases are zero and norms are one
        torch.nn.init.normal_(parameter, std=0.2)
    transformer.save_pretrained(base)
    words.save_pretrained(base)
    pooling = {"cls": "cls", "last": "lasttoken"}.get(make, "mean")
    modules = [Transformer(str(base)), Pooling(32, pooling, include_prompt=make != "instructor")]
    if make == "last":
        modules.append(Dense(32, 24))
    prompts = {
        "cls": {"query": "Represent this for a search: "},
        "last": {"query": "Instruct: find it\nQuery:"},
    }.get(make, {"query": "query: ", "document": "passage: "})
    model = SentenceTransformer(modules=[*modules, Normalize()], prompts=prompts, device="cpu")
    model.save(str(folder / make))
    return folder / make


def _transformer(make: str) -> tuple[Any, Any]:
    from transformers import BertConfig, BertModel, Qwen3Config, Qwen3Model, XLMRobertaConfig, XLMRobertaModel

    words = _tokenizer("$A <e>" if make == "last" else "<s> $A <e>")
    sizes = {**_SIZES, "vocab_size": len(words), "pad_token_id": 0}
    of: Mapping[str, Callable[[], Any]] = {
        "mean": lambda: XLMRobertaModel(XLMRobertaConfig(**sizes, max_position_embeddings=TOKENS + 1)),
        "last": lambda: Qwen3Model(
            Qwen3Config(**sizes, max_position_embeddings=TOKENS, num_key_value_heads=2, head_dim=8)
        ),
    }
    return of.get(make, lambda: BertModel(BertConfig(**sizes, max_position_embeddings=TOKENS)))(), words


def _tokenizer(template: str) -> Any:
    """A tokenizer of words and letters, in lower case."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = sorted({*string.ascii_lowercase, *string.digits, *string.punctuation})
    pieces = dict.fromkeys(["<p>", "<u>", "<s>", "<e>", *letters, *("##" + one for one in letters)])
    pieces |= dict.fromkeys(sorted({word.lower() for word in WORDS if word.isalpha()}))
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="<u>"))  # noqa: S106 - not that kind of token
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [(name, vocabulary[name]) for name in ("<s>", "<e>")]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)
    wrapped = partial(PreTrainedTokenizerFast, tokenizer_object=tokenizer, model_max_length=TOKENS)
    return wrapped(pad_token="<p>", unk_token="<u>", cls_token="<s>", sep_token="<e>")  # noqa: S106

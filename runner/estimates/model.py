"""The shape of a base model, from its config.json and the headers of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from runner.values import plain_number

HIDDEN = ("hidden_size", "n_embd", "d_model")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "num_heads")
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
QUANTIZED_TYPES = {"U8", "I8", "I32", "F8_E4M3", "F8_E5M2"}


class UnknownModel(Exception):
    """The shape can't be worked out; the message says why, for people."""


class HubAway(UnknownModel):
    """The hub does not answer now; later it may."""


@dataclass(frozen=True)
class Model:
    """A decoder's shape. `parameters` counts all weights, the experts that are not used included;
    `embeddings` those of the table of tokens and of the output layer (one table where `tied`).

    `experts_used` of `experts` take part in each token, each `expert_ffn` wide; a dense model has
    one expert. `download` is the size of the weights in bytes, None when it is not known.
    `counted` says where the number of parameters comes from.
    """

    name: str
    parameters: int
    hidden: int
    layers: int
    ffn: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int
    tied: bool
    experts: int = 1
    experts_used: int = 1
    download: int | None = None
    counted: str = "config.json"

    @property
    def query(self) -> int:
        """Width of the queries of one token."""
        return self.heads * self.head

    @property
    def key_value(self) -> int:
        """Width of the keys, and of the values, of one token."""
        return self.kv_heads * self.head

    @property
    def embeddings(self) -> int:
        """Weights of the token table, and of the output layer where it is one of its own."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def linear(self) -> int:
        """Weights of the layers: what LoRA leaves frozen and quantization shrinks."""
        return max(0, self.parameters - self.embeddings)

    @property
    def layer(self) -> int:
        """Weights of one layer."""
        return self.linear // self.layers

    @property
    def active(self) -> int:
        """Weights that take part in computing one token (the table of tokens is looked up)."""
        unused = self.experts - self.experts_used
        expert = 3 * self.hidden * self.ffn
        return max(0, self.linear - self.layers * unused * expert) + self.vocabulary * self.hidden


def model_of(
    name: str,
    config: Mapping[str, object],
    *,
    header: Mapping[str, int] | None = None,
    untied: bool | None = None,
    download: int | None = None,
) -> Model:
    """The model of a config.json; UnknownModel for one whose shape it does not say.

    `header` is the number of values by data type in the headers of the weights, `untied` whether
    these hold an output layer of its own. Weights that are stored packed (GPTQ, AWQ, bitsandbytes)
    say less than they hold: their number is worked out from the configuration. Where `untied` is
    not known, what comes nearer to the number of weights is taken: config.json may leave it out.
    """
    inner = config.get("text_config") or config.get("llm_config")
    text = {**config, **inner} if isinstance(inner, Mapping) else config
    hidden, layers, heads = (_first(text, keys) for keys in (HIDDEN, LAYERS, HEADS))
    vocabulary = _number(text, "vocab_size")
    if not (hidden and layers and heads and vocabulary):
        kind = str(config.get("model_type") or "no model_type")
        raise UnknownModel(f"its config.json ({kind}) does not say the sizes of its layers")
    experts = _first(text, EXPERTS) or 1
    used = _number(text, "num_experts_per_tok") or _number(text, "num_experts_per_token") or 1
    ffn, shared = _ffn(text, hidden, experts)
    shape = Model(
        name=name,
        parameters=0,
        hidden=hidden,
        layers=layers,
        ffn=ffn,
        heads=heads,
        kv_heads=_kv_heads(text, heads),
        head=_number(text, "head_dim") or hidden // heads,
        vocabulary=vocabulary,
        tied=bool(text.get("tie_word_embeddings", False)) if untied is None else not untied,
        experts=experts + shared,
        experts_used=(used if experts > 1 else 1) + shared,
        download=download,
    )
    if not header or QUANTIZED_TYPES & set(header):
        return replace(shape, parameters=_by_shape(shape))
    counted = sum(header.values())
    if untied is None:
        either = (shape, replace(shape, tied=not shape.tied))
        shape = min(either, key=lambda one: abs(_by_shape(one) - counted))
    return replace(shape, parameters=counted, counted="the headers of its weights")


def _by_shape(model: Model) -> int:
    """Parameters of a Llama-like model of this shape: attention, gated MLP, norms, embeddings."""
    attention = model.hidden * (2 * model.query + 2 * model.key_value)
    experts = model.experts * 3 * model.hidden * model.ffn
    norms = 2 * model.hidden
    return model.embeddings + model.layers * (attention + experts + norms) + model.hidden


def _ffn(text: Mapping[str, object], hidden: int, experts: int) -> tuple[int, int]:
    """Width of one (expert's) MLP, and the number of experts that every token passes."""
    wide = _number(text, "intermediate_size") or _number(text, "ffn_hidden_size") or 4 * hidden
    if text.get("model_type") == "qwen":  # the first Qwen counts both halves of its gated MLP
        wide //= 2
    if experts == 1:
        return wide, 0
    expert = _number(text, "moe_intermediate_size") or wide
    shared = _number(text, "shared_expert_intermediate_size") or 0
    return expert, _number(text, "n_shared_experts") or -(-shared // expert)


def _kv_heads(text: Mapping[str, object], heads: int) -> int:
    if text.get("multi_query") and not text.get("new_decoder_architecture"):
        return 1
    return _number(text, "num_key_value_heads") or _number(text, "num_kv_heads") or heads


def _first(text: Mapping[str, object], keys: tuple[str, ...]) -> int | None:
    return next((found for key in keys if (found := _number(text, key))), None)


def _number(text: Mapping[str, object], key: str) -> int | None:
    found = plain_number(text.get(key))
    return int(found) if found is not None and found >= 1 else None

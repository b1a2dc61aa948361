from __future__ import annotations

import pytest

from runner.estimates.model import UnknownModel, model_of

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
MISTRAL = {**LLAMA, "num_key_value_heads": 8, "intermediate_size": 14336}
MIXTRAL = {**MISTRAL, "num_local_experts": 8, "num_experts_per_tok": 2}


@pytest.mark.parametrize(
    ("config", "parameters"),
    [(LLAMA, 6_738_415_616), (MISTRAL, 7_241_732_096)],
)
def test_the_weights_are_counted_to_the_last_one_from_the_configuration(
    config: dict[str, object], parameters: int
) -> None:
    """Against what the published headers of Llama-2-7b and Mistral-7B-v0.1 add up to."""
    model = model_of("x", config)
    assert (model.parameters, model.counted) == (parameters, "config.json")


def test_a_mixture_of_experts_is_counted_whole_and_used_in_part() -> None:
    """Mixtral-8x7B has 46.7 billion weights, of which 12.9 billion take part in a token."""
    model = model_of("x", MIXTRAL)
    # Its routers, 8 x 4096 a layer, are left out: a millionth part.
    assert model.parameters == pytest.approx(46_702_792_704, rel=1e-4)
    assert model.active == pytest.approx(12.75e9, rel=0.01)


def test_a_shared_expert_is_one_that_every_token_passes() -> None:
    """Qwen1.5-MoE-A2.7B: 60 experts of 1408, 4 used, and a shared one as wide as 4 of them."""
    config = {
        **LLAMA, "model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24,
        "num_attention_heads": 16, "num_experts": 60, "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
        "vocab_size": 151936,
    }  # fmt: skip
    model = model_of("x", config)
    assert (model.experts, model.experts_used, model.ffn) == (64, 8, 1408)
    assert model.parameters == pytest.approx(14.3e9, rel=0.01)
    assert model.active == pytest.approx(2.4e9, rel=0.05)


def test_the_headers_count_where_they_hold_whole_values() -> None:
    """Packed 4-bit weights say eight to a number: then the configuration is counted."""
    whole = model_of("x", LLAMA, header={"BF16": 6_738_415_616})
    assert (whole.parameters, whole.counted) == (6_738_415_616, "the headers of its weights")
    packed = model_of("x", LLAMA, header={"I32": 800_000_000, "F16": 270_000_000})
    assert (packed.parameters, packed.counted) == (6_738_415_616, "config.json")


@pytest.mark.parametrize(("stored", "tied"), [(6_738_415_616, False), (6_607_343_616, True)])
def test_the_number_of_weights_tells_whether_the_tables_are_one(stored: int, tied: bool) -> None:
    """config.json leaves tie_word_embeddings out where it is the default of its architecture."""
    silent = {key: value for key, value in LLAMA.items() if key != "tie_word_embeddings"}
    assert model_of("x", silent, header={"BF16": stored}).tied is tied


def test_the_text_part_of_a_model_that_sees_is_read() -> None:
    """Gemma 3 and others keep the decoder's sizes in text_config."""
    model = model_of("x", {"model_type": "gemma3", "text_config": {**LLAMA, "head_dim": 256}})
    assert (model.layers, model.query) == (32, 8192)


def test_the_first_qwen_counts_both_halves_of_its_mlp() -> None:
    """Its intermediate_size of 22016 makes two matrices of 11008."""
    config = {**LLAMA, "model_type": "qwen", "intermediate_size": 22016, "vocab_size": 151936}
    assert model_of("x", config).parameters == pytest.approx(7_721_324_544, rel=1e-3)


def test_a_configuration_without_sizes_is_unknown_and_says_its_kind() -> None:
    """Such as one of a diffusion model."""
    with pytest.raises(UnknownModel, match=r"config.json \(flux\) does not say the sizes"):
        model_of("x", {"model_type": "flux"})

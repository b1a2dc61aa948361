"""Each formula against a value worked out by hand, on a model of round numbers."""

from __future__ import annotations

import pytest

from runner.batch import Batch
from runner.estimates.model import Model
from runner.estimates.training import Training
from runner.estimates.vram import CONTEXT, FRAGMENTATION, GIB, NF4, vram

# 1 layer group of 10, 100 values wide, 300 in the MLP, 4 heads of 25, 2 for keys; 1000 words.
MODEL = Model("m", 2_000_000, 100, 10, 300, 4, 2, 25, 1000, tied=False)
TOKENS = 8 * 64


def _plan(**settings: object) -> Training:
    usual: dict[str, object] = {"batch": Batch(8), "sequence": 64, "checkpointing": "yes"}
    return Training(**{**usual, **settings})  # type: ignore[arg-type]


# Little is trained, so the moment of the loss is the fullest.
LORA = {"method": "lora", "rank": 4, "targets": ("q_proj",)}


def _bytes(training: Training, *names: str) -> dict[str, float]:
    parts = vram(MODEL, training).parts
    return {name: parts.get(name, 0.0) * GIB for name in names}


def test_full_training_in_16_bit_holds_weight_gradient_and_two_moments_of_it() -> None:
    """2 bytes each for weight and gradient, 4 for Adam's moments; a foreach step 2 more."""
    found = vram(MODEL, _plan(optimizer="adamw_torch", batch=Batch(1), sequence=1))
    assert found.moment == "step"
    sizes = {name: round(size * GIB) for name, size in found.parts.items()}
    assert {name: size for name, size in sizes.items() if name != "overhead"} == {
        "weights": 4_000_000, "gradients": 4_000_000, "optimizer": 8_000_000, "buffers": 4_000_000,
    }  # fmt: skip


def test_full_training_in_32_bit_holds_16_bytes_a_weight() -> None:
    """arXiv 1910.02054: 4 + 4 + 8."""
    found = vram(MODEL, _plan(bytes_each=4, batch=Batch(1), sequence=1))
    assert found.allocated * GIB == pytest.approx(16 * 2_000_000, rel=0.01)


@pytest.mark.parametrize(
    ("optimizer", "size"),
    [("adamw_bnb_8bit", 2 * (1 + 4 / 256)), ("paged_adamw_32bit", 8), ("lion_8bit", 1 + 4 / 256),
     ("sgd", 0), ("adafactor", 0.01), ("muon", 2), ("somebody's", 4)],
)  # fmt: skip
def test_an_optimizer_keeps_its_own_states(optimizer: str, size: float) -> None:
    """Bytes for each 16-bit weight; Adam's for one that is not known."""
    found = _bytes(_plan(optimizer=optimizer), "optimizer")
    assert found["optimizer"] == pytest.approx(size * 2_000_000)


def test_qlora_holds_the_layers_in_nf4_and_the_tables_in_16_bit() -> None:
    """4.127 bits for 1 800 000 weights, 2 bytes for 200 000; adapters in 32 bit with their
    gradient and moments.
    """
    plan = _plan(**{**LORA, "method": "qlora"}, batch=Batch(8, 2))
    found = _bytes(plan, "weights", "gradients", "optimizer")
    adapters = 10 * 4 * (100 + 100)
    assert found["weights"] == pytest.approx(1_800_000 * NF4 + 400_000 + adapters * 4)
    assert found["gradients"] == adapters * 4
    assert found["optimizer"] == adapters * 8


def test_lora_in_8_bit_holds_a_byte_for_each_weight_of_the_layers() -> None:
    """LLM.int8: the tables stay in 16 bit."""
    plan = _plan(**{**LORA, "method": "lora 8-bit"})
    assert _bytes(plan, "weights")["weights"] == 1_800_000 + 400_000 + 8000 * 4


def test_logits_are_three_32_bit_tensors_of_the_vocabulary() -> None:
    """Here 512 tokens of 1000 words, 12 bytes each, beside the layers' inputs."""
    found = vram(MODEL, _plan(**LORA))
    assert found.moment == "loss"
    assert found.parts["logits"] * GIB == TOKENS * 1000 * 12
    assert found.parts["activations"] * GIB == TOKENS * (10 * 100 * 2 + 100 * 4)


@pytest.mark.parametrize(("loss", "size"), [("fused", 8), ("cut", 4)])
def test_a_fused_loss_never_holds_the_logits(loss: str, size: int) -> None:
    """Only tensors as wide as the model: so the peak is elsewhere."""
    whole = vram(MODEL, _plan(**LORA, checkpointing="no"))
    found = vram(MODEL, _plan(**LORA, checkpointing="no", loss=loss))
    assert found.allocated < whole.allocated
    assert found.parts.get("logits", 0.0) * GIB in (0.0, TOKENS * 100 * size)


def test_without_checkpointing_all_that_the_layers_keep_stays() -> None:
    """Full, 16 bit, for one token of one layer: norms 2 x (4 + 4) x 100 + 8, attention 2 x (200 +
    100) + 16, MLP 2 x 4 x 300: 4624 bytes; and 800 of the last norm.
    """
    found = vram(MODEL, _plan(checkpointing="no"))
    assert found.parts["activations"] * GIB == TOKENS * (10 * 4624 + 800)


def test_lora_keeps_the_inputs_of_its_adapters_and_not_those_of_frozen_weights() -> None:
    """Norms 2 x 4 x 100 + 8, attention 616, MLP 2 x 3 x 300, adapter on q: 2 x 100 + 2 x 4; a
    mask of 100 bytes with dropout.
    """
    plan = _plan(**LORA, checkpointing="no")
    stored = vram(MODEL, plan).parts["activations"] * GIB
    assert stored == TOKENS * (10 * (808 + 616 + 1800 + 208) + 400)
    dropped = vram(MODEL, _plan(**{**plan.__dict__, "dropout": True}))
    assert dropped.parts["activations"] * GIB == stored + 10 * TOKENS * 100


def test_eager_attention_keeps_the_scores_of_each_head() -> None:
    """In 32 and in 16 bit: 6 x 4 heads x 64 places, keys and values spread to all heads, a mask."""
    flash = vram(MODEL, _plan(checkpointing="no")).parts["activations"] * GIB
    eager = vram(MODEL, _plan(checkpointing="no", attention="eager")).parts["activations"] * GIB
    assert eager - flash == 10 * TOKENS * (6 * 4 * 64 + 2 * 2 * (100 - 50) + 2 * 64)
    sdpa = vram(MODEL, _plan(checkpointing="no", attention="sdpa")).parts["activations"] * GIB
    assert sdpa - flash == 10 * TOKENS * 2 * 64


def test_offloaded_checkpoints_wait_in_the_machines_memory() -> None:
    """Two of them are on the GPU at a time."""
    found = vram(MODEL, _plan(**LORA, checkpointing="offload"))
    assert found.parts["activations"] * GIB == TOKENS * (2 * 100 * 2 + 400)


def test_accumulated_gradients_are_there_when_the_loss_is_worked_out() -> None:
    """With one pass a step they are not."""
    once, twice = _plan(**LORA), _plan(**LORA, batch=Batch(8, 2))
    assert _bytes(once, "gradients")["gradients"] == 0
    assert _bytes(twice, "gradients")["gradients"] == 10 * 4 * (100 + 100) * 4


@pytest.mark.parametrize(
    ("sharding", "each"),
    [("none", 2 + 4 + 4), ("zero1", 2 + 2 + 16 / 4), ("zero2", 2 + 18 / 4), ("zero3", 18 / 4)],
)
def test_zero_shards_what_its_stage_says(sharding: str, each: float) -> None:
    """Bytes a weight on each of 4 GPUs in 16 bit, as DeepSpeed's estimators have them: without
    ZeRO the gradients are doubled by DistributedDataParallel's buckets; stage 3 gathers a layer.
    """
    plan = _plan(sharding=sharding, gpus=4, batch=Batch(1, 2), sequence=1)
    found = _bytes(plan, "weights", "gradients", "optimizer")
    assert sum(found.values()) == pytest.approx(each * 2_000_000)


def test_fsdp_keeps_what_it_trains_in_32_bit_and_gathers_two_layers() -> None:
    """16 bytes over 4 GPUs; two layers, the tables and a layer's gradient in 16 bit."""
    plan = _plan(sharding="fsdp", gpus=4, batch=Batch(1, 2), sequence=1)
    found = _bytes(plan, "weights", "gradients", "optimizer", "buffers")
    assert found["buffers"] == pytest.approx(2 * (2 * 180_000 + 200_000 + 180_000))
    assert sum(found.values()) - found["buffers"] == pytest.approx(16 * 2_000_000 / 4)


def test_an_offloaded_optimizer_takes_gradients_and_states_with_it() -> None:
    """DeepSpeed, stage 2 with offload: 2 bytes a weight."""
    plan = _plan(sharding="zero2", gpus=4, offload_optimizer=True, batch=Batch(1, 2), sequence=1)
    found = _bytes(plan, "weights", "gradients", "optimizer")
    assert sum(found.values()) == pytest.approx(2 * 2_000_000)


def test_cuda_and_fragments_come_on_top() -> None:
    """So the total is more than what tensors hold, and the parts add up to it."""
    found = vram(MODEL, _plan())
    assert found.total == pytest.approx(sum(found.parts.values()))
    assert found.total == pytest.approx(found.allocated * (1 + FRAGMENTATION) + CONTEXT / GIB)


def test_a_row_split_over_gpus_counts_in_part() -> None:
    """context_parallel_size 2: half the tokens on each."""
    assert _plan(split=2).tokens == TOKENS / 2

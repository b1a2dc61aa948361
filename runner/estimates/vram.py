"""How much memory a GPU needs for a training, in GiB, and what for.

The peak is the highest of three moments: `loss`, when the logits of the whole batch exist beside
what the backward pass will need; `backward`, when one layer is worked on; and `step`, when the
optimizer works. Weights and optimizer states are there all the time.

Sources
- Weights, gradients and states under ZeRO: arXiv 1910.02054 and the estimators of
  https://deepspeed.readthedocs.io/en/latest/memory.html (2 bytes + 18/N for stage 2, 18/N + 4 for
  the largest layer for stage 3). FSDP: what is trained is kept in 32 bit by accelerate
  (utils/fsdp_utils.py: "upcast"), a layer is gathered in 16 bit while the next one is fetched.
- nf4 with double quantization: 4 + 0.127 bits a weight, arXiv 2305.14314, section 3; embeddings and
  output layer are not quantized. PEFT keeps adapters in 32 bit (autocast_adapter_dtype).
- Activations: counted by what autograd keeps for a Llama layer of transformers 5.16, as arXiv
  2205.05198 (section 4) does for GPT; tests/e2e/test_vram_runs.py measures the very bytes. With
  checkpointing only the input of each layer is kept.
- Logits: 12 bytes each, three 32-bit tensors of a cross-entropy (its output, the gradient of it
  and of its input). Liger's fused loss: arXiv 2410.10989; cut cross-entropy: arXiv 2411.09009.
- CUDA context, cuBLAS and NCCL: 0.75 GiB, between 0.5 and 1.3 on the GPUs that
  https://huggingface.co/docs/transformers/model_memory_anatomy and others measured. Fragmentation:
  5 %, with the expandable segments that axolotl switches on.
"""

from __future__ import annotations

from dataclasses import dataclass

from runner.estimates.model import Model
from runner.estimates.optimizers import keeps
from runner.estimates.training import Training

GIB = 1024**3
CONTEXT = 0.75 * GIB
FRAGMENTATION = 0.05
NF4 = (4 + 0.127) / 8  # bytes a weight
LOGIT = 12
ADAPTER = 4
WORDS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "activations": "activations",
    "logits": "logits",
    "buffers": "buffers",
    "overhead": "CUDA and fragments",
}


@dataclass(frozen=True)
class Vram:
    """GiB for each GPU. `parts` add up to `total`; `allocated` is what tensors hold at the peak,
    without CUDA's own memory and fragments. `least` is what the run can't do without: its weights.
    """

    parts: dict[str, float]
    total: float
    allocated: float
    least: float
    moment: str

    def __str__(self) -> str:
        shown = [f"{WORDS[name]} {size:.1f}" for name, size in self.parts.items() if size >= 0.05]
        return f"about {self.total:.0f} GiB of VRAM ({', '.join(shown)})"


def vram(model: Model, training: Training) -> Vram:
    """What each GPU needs to train this model so."""
    weights = _weights(model, training)
    gradients, optimizer, scratch = _trained(model, training)
    stored, working = _activations(model, training)
    logits = _logits(model, training)
    buffers = _buffers(model, training)
    accumulating = training.batch.accumulation > 1
    # A gradient takes the place of what its layer kept, unless it is there from the pass before.
    both = gradients + stored if accumulating else max(gradients, stored)
    moments = {
        "loss": {
            "gradients": gradients if accumulating else 0.0,
            "activations": stored,
            "logits": logits,
            "buffers": buffers,
        },
        "backward": {
            "gradients": gradients,
            "activations": both - gradients + working,
            "buffers": buffers,
        },
        "step": {"gradients": gradients, "buffers": scratch},
    }
    moment = max(moments, key=lambda name: sum(moments[name].values()))
    parts = {"weights": weights, "optimizer": optimizer, **moments[moment]}
    allocated = sum(parts.values())
    parts["overhead"] = CONTEXT + FRAGMENTATION * allocated
    gib = {name: parts[name] / GIB for name in WORDS if parts.get(name)}
    return Vram(gib, sum(gib.values()), allocated / GIB, weights / GIB, moment)


def _weights(model: Model, training: Training) -> float:
    """Bytes of the weights on one GPU, adapters included."""
    each = training.bytes_each
    if training.method == "full":
        whole = float(model.parameters * each)
        if training.sharding == "fsdp":
            whole = model.parameters * _trained_bytes(training)
        adapters = 0.0
    else:
        frozen = {"lora": float(each), "lora 8-bit": 1.0, "qlora": NF4}[training.method]
        rest = model.parameters - model.linear
        whole = model.linear * frozen + rest * each
        adapters = training.trained(model) * ADAPTER
    if training.sharding not in ("zero3", "fsdp"):
        return whole + adapters
    shown = 0.0 if training.offload_weights else whole / training.gpus
    return shown + adapters / training.gpus


def _trained_bytes(training: Training) -> int:
    """Bytes of a trained weight where the optimizer works on it."""
    if training.method != "full":
        return ADAPTER
    sharded = training.sharding != "none"
    return 4 if sharded and training.mixed else training.bytes_each


def _trained(model: Model, training: Training) -> tuple[float, float, float]:
    """Bytes of gradients, of optimizer states (with ZeRO's 32-bit copy of the weights), and of what
    the optimizer needs while it steps, on one GPU.
    """
    trained, gpus = training.trained(model), training.gpus
    each = _trained_bytes(training)
    optimizer = keeps(training.optimizer)
    gradients = float(trained * each)
    states = trained * optimizer.bytes_each(each)
    scratch = float(trained * each * optimizer.scratch)
    zero = training.sharding in ("zero1", "zero2", "zero3")
    if zero and training.bytes_each == 2:
        states += trained * 4  # DeepSpeed's own copy
        in_16_bit = trained * 2.0
        gradients = {
            "zero1": in_16_bit + trained * 4 / gpus,
            "zero2": trained * 6 / gpus,
            "zero3": trained * 4 / gpus,
        }[training.sharding]
    elif training.sharding in ("zero2", "zero3", "fsdp"):
        gradients /= gpus
    elif gpus > 1 and training.sharding == "none":
        gradients *= 2  # the buckets of DistributedDataParallel
    if training.sharding != "none":
        states, scratch = states / gpus, scratch / gpus
    if training.offload_optimizer:
        return 0.0, 0.0, 0.0
    return gradients, states, 0.0 if zero else scratch


def _activations(model: Model, training: Training) -> tuple[float, float]:
    """Bytes that wait for the backward pass, and bytes of working on one layer."""
    tokens = training.tokens
    layer = tokens * _layer_token(model, training)
    working = tokens * _working_token(model, training)
    if training.method in ("qlora", "lora 8-bit"):
        working += training.bytes_each * model.hidden * model.ffn  # the largest matrix, unpacked
    last_norm = tokens * model.hidden * _norm(training)
    input_of_layer = tokens * model.hidden * training.bytes_each
    if training.checkpointing == "no":
        return model.layers * layer + last_norm, working
    kept = 2 if training.checkpointing == "offload" else model.layers
    return kept * input_of_layer + last_norm, layer + working


def _norm(training: Training) -> int:
    """Bytes that a norm keeps for each value: it in 32 bit, with a trained weight also what is
    scaled and the output.
    """
    return 4 + (2 * training.bytes_each if training.method == "full" else 0)


def _layer_token(model: Model, training: Training) -> float:
    """Bytes that autograd keeps of one token in one layer.

    Two norms. Attention: queries, keys, values, the result, one number a head, and a mask; eager
    attention has the scores in 32 and in 16 bit. MLP: gate, its activation, up, and with trained
    weights their product. Adapters: each one's input in 16 bit (PEFT casts it), `rank` values, and
    with dropout a byte for each input.
    """
    each, full = training.bytes_each, training.method == "full"
    # in 32 bit the norm's cast makes no copy, but the residual itself is kept
    norms = 2 * _norm(training) * model.hidden + 8
    attention = each * (2 * model.query + 2 * model.key_value) + 4 * model.heads
    used = model.experts_used
    mlp = each * used * model.ffn * (4 if full else 3)
    if model.experts > 1:  # each expert has a copy of its tokens, before and after
        mlp += each * used * model.hidden * 2
    total = norms + attention + mlp
    if training.attention != "flash":
        total += each * training.sequence  # the mask, as what is added to the scores
    if training.attention == "eager":
        total += (4 + each) * model.heads * training.sequence
        total += each * 2 * (model.query - model.key_value)
    if not full:
        inputs = training.adapted_inputs(model)
        total += 2 * inputs + 2 * training.rank * len(training.targets)
        total += inputs if training.dropout else 0
    return float(total)


def _working_token(model: Model, training: Training) -> float:
    """Bytes of one token while a layer's gradient is worked out, beside what is kept and freed on
    the way: two of the MLP's tensors, four with adapters (the gradients of their inputs are in
    32 bit), those of input and output, and with eager attention of the scores.
    """
    each = training.bytes_each
    scores = 4 * model.heads * training.sequence if training.attention == "eager" else 0
    wide = 2 if training.method == "full" else 4
    return each * (wide * model.ffn * model.experts_used + 2 * model.hidden) + scores


def _logits(model: Model, training: Training) -> float:
    """Bytes of turning the last hidden states into a loss."""
    if training.loss == "plain":
        return float(training.tokens * model.vocabulary * LOGIT)
    each = 8 if training.loss == "fused" else 4
    return float(training.tokens * model.hidden * each)


def _buffers(model: Model, training: Training) -> float:
    """Bytes of weights that are gathered from the other GPUs: two layers and the embeddings, and
    the layer's gradient.
    """
    if training.sharding == "zero3":
        return 4.0 * max(model.layer, model.vocabulary * model.hidden)
    if training.sharding != "fsdp":
        return 0.0
    each = NF4 if training.method == "qlora" else training.bytes_each
    gradient = model.layer * training.bytes_each if training.method == "full" else 0
    return 2 * model.layer * each + model.embeddings * training.bytes_each + gradient

"""What the machine lacks: memory, disk, a GPU that fits."""

from __future__ import annotations

from runner.causes.cause import Cause

MACHINE: tuple[Cause, ...] = (
    Cause(
        "out of GPU memory",
        "Lower `micro_batch_size` or `sequence_len`, set `gradient_checkpointing: true`, use "
        "`adapter: qlora`, or a larger `runner.gpu`.",
        (
            r"OutOfMemoryError",
            r"(CUDA|HIP) out of memory",
            r"CUDA error: out of memory",
            r"CUBLAS_STATUS_ALLOC_FAILED",
        ),
    ),
    Cause(
        "shared memory",
        "Set `dataloader_num_workers: 0` or a smaller number: the pod's /dev/shm is too small.",
        (
            r"insufficient shared memory",
            r"unable to (open|allocate|mmap|resize) shared memory",
            r"/dev/shm.*No space left|No space left.*/dev/shm",
        ),
    ),
    Cause(
        "disk full",
        "Make room: raise `volume_in_gb` or `container_disk_in_gb`, lower `save_total_limit` or"
        " save more seldom; then `axolotl-runner resume`.",
        (
            r"No space left on device",
            r"\[Errno 28\]",
            r"Disk quota exceeded",
            r"\[Errno 122\]",
            r"PytorchStreamWriter failed writing file",
            r"disk full ",
        ),
        final=True,
    ),
    Cause(
        "out of host memory",
        "Take more RAM (`min_memory_in_gb`, or a larger machine), fewer "
        "`dataloader_num_workers` and `dataset_num_proc`.",
        (
            r"DefaultCPUAllocator: can't allocate memory",
            r"Cannot allocate memory",
            r"^MemoryError",
            r"oom-kill|Out of memory: Killed process",
            r"[Ss]ignal 9 \(SIGKILL\)|killed by signal: Killed|exitcode\s*: -9",
            r"likely (out of|killed for) host memory",
        ),
    ),
    Cause(
        "driver too old",
        "Set `min_cuda: '{cuda}'` (the version that the image needs), so that machines with "
        "older drivers are left out, or an older `runner.image`.",
        (
            r"NVIDIA driver on your system is too old",
            r"CUDA driver version is insufficient",
            r"unsatisfied condition: cuda",
            r"forward compatibility was attempted on non supported HW",
            r"unsupported display driver / cuda driver combination",
        ),
        words={
            "cuda": (r"unsatisfied condition: cuda ?>= ?([\d.]+\d)", "12.8"),
        },
    ),
    Cause(
        "CUDA mismatch",
        "Choose a `runner.gpu` that the image's torch was built for, or a `runner.image` whose "
        "torch and CUDA fit the GPU.",
        (
            r"no kernel image is available for execution",
            r"is not compatible with the current PyTorch installation",
            r"not compiled with CUDA enabled",
            r"The detected CUDA version .* mismatches",
            r"undefined symbol: ",
            r"lib(cudart|cublas\w*|cudnn\w*|nvrtc\w*|cuda)\.so[\w.]*: cannot open shared object",
            r"CUDA Setup failed|library functionality but it's not available",
            r"requires compute capability|only supports? (Ampere|Hopper)",
        ),
        final=True,
    ),
    Cause(
        "no GPU on the machine",
        "The machine does not show its GPU: try `axolotl-runner resume`, which takes another one.",
        (
            r"No CUDA GPUs are available",
            r"Found no NVIDIA driver on your system",
            r"CUDA unknown error",
            r"no CUDA-capable device is detected",
        ),
    ),
    Cause(
        "token outside of the vocabulary",
        "See that the tokenizer fits the model (`tokens:`, `special_tokens:`, "
        "`resize_token_embeddings_to_32x`): a token id lies beyond the embedding.",
        (
            r"device-side assert triggered",
            r"IndexError: index out of range in self",
            r"srcIndex < srcSelectDimSize",
        ),
    ),
    Cause(
        "GPU broken",
        "The machine's GPU failed: `axolotl-runner resume` goes on elsewhere from the last "
        "checkpoint.",
        (
            r"uncorrectable ECC error",
            r"GPU is lost|fallen off the bus",
            r"unspecified launch failure",
            r"CUDA error: (an illegal (memory access|instruction)|misaligned address)",
        ),
    ),
    Cause(
        "native crash",
        "A library crashed: try another `attn_implementation` or `runner.image`.",
        (r"[Ss]ignal 11 \(SIGSEGV\)|Segmentation fault|exitcode\s*: -11",),
    ),
)

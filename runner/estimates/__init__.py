"""What a run will need and cost, worked out before anything is rented.

Read in this order: `model` (what is known of the base model), `training` (what of the task file
decides), `vram`, `disk`, `duration`, `gpus` and `fitting`, and `estimate`, which puts them
together. All of it is arithmetic but for `hub`, which reads a model's configuration and the headers
of its weights, and `rows`, which counts the rows of local data. What can't be known is None, with a
reason among the notes; nothing is guessed in silence.
"""

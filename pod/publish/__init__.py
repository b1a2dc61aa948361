"""From a training that has completed to a model on the hub that is proved to be what lies here.

merge    optional: the adapter merged into its base, by axolotl, in the trainer's environment
gather   `model/` on the volume: what one loads or shares, without checkpoints
card     README.md and the picture of the curve in it
clean    no secret of the run in any file of it
upload   commits of what the hub does not have yet; listed back and compared by hashes
"""

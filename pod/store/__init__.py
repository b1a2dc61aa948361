"""The checkpoint store: healthy checkpoints of a run outside of its pod, so that it can go on
elsewhere.

    places.py    a tree of files somewhere, and `open_place(url, environment)`
    folder.py s3.py hub.py   the kinds of places
    manifest.py  what makes a set of files there a checkpoint
    choice.py    which checkpoints are worth their storage
    state.py     what else of a run another pod needs
    contents.py  what the store holds for one run, and how that changes
    model.py     a trained model beside them (pod.rescue brings it there)
    turn.py      one process at a time: who changes the store ends the mirror first
    mirror.py    the process that uploads (`python -m pod.store.mirror`)
    restore.py   the way back (`python -m pod.store.restore`)

It runs in the worker's Python, never in the trainer's process. Layout of a place:

    <run>/checkpoint-N/…       the files
    <run>/checkpoint-N.json    the manifest, written last: without it there is no checkpoint-N
    <run>/state/events.jsonl   what was known when the newest checkpoint was stored
    <run>/state/attempt.json
"""

"""What a training reads from the hub is brought to the pod before it begins, fast and checked.

    inputs.py    which repositories a configuration names
    listing.py   their files at one commit
    choice.py    which of the files are needed
    cache.py     the cache that the libraries of the trainer read
    fetching.py  the ways to fetch, one after another: processes that are watched and ended
    floor.py     when a way is too slow
    ranges.py    the plain way: pieces over many connections (source.py, parts.py)
    aria2.py     the same with another program, where it is there
    __main__.py  the process that fetches (`python -m pod.fetch WAY`), tally.py its words
    prepared.py  where the tokenised data lie

It runs in the worker's Python, never in the trainer's process.
"""

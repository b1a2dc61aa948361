"""What a push changed, and what of it are task files: plain git, nothing but the standard library.

The GitHub workflow and the hook run this with any Python; `dispatch` runs it again on its own copy
of the repository, so that an event is a hint and never an order.

rules     which branches and paths count
git       git as a function, without secrets in what it shows
changes   the files that a push changed
trailers  `Runner: skip` and `Runner: rerun` of commit messages
pushed    the task files of a push, from the three above
event     the event axolotl.config.pushed
beside    the files that a task file names
tree      the files of one commit, for pods
"""

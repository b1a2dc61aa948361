"""Orchestration only: each flow body reads like the list of its steps."""

import sys

# Prefect 3.9 runs a cancelled run's hooks from a script that lies in prefect/runner/. The folder of
# a script leads sys.path, and the runner.py in it would stand before our package of that name.
sys.path[:] = [folder for folder in sys.path if not folder.endswith("prefect/runner")]

from blocks.scrubbing import scrub_all_output  # noqa: E402  (the path comes first)

scrub_all_output()

"""Plain domain code of axolotl-runner: no Prefect, no axolotl, no network."""

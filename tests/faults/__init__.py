"""axolotl plugins that break training on purpose, each once and at a known step."""

"""Vast.ai: `client` speaks to it through its SDK, `offers` and `body` map to it, `cloud` is the
Cloud.
"""

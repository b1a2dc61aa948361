"""RunPod: `client` speaks REST v2, `candidates` and `body` map to it, `cloud` is the Cloud."""

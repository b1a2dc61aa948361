"""`python -m deployments.gateway --port N [--host H] --upstream URL`: serve until SIGTERM.

The first line on stdout is the gateway's address. PREFECT_API_AUTH_STRING of the environment is
what the Prefect API asks for; TLS is the business of whatever makes the address public.
"""

from __future__ import annotations

import argparse
import logging
import os

import uvicorn

from deployments.gateway.app import LARGEST_BODY, make_app
from deployments.gateway.webhook_door import SECRET
from runner.home import REPOSITORY, home
from runner.tokens import gateway_key


def main() -> None:
    """Serve the gateway."""
    parser = argparse.ArgumentParser(prog="python -m deployments.gateway", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="0 for any free one")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--upstream", required=True, help="the Prefect API's address, with /api")
    asked = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request
    app = make_app(
        asked.upstream,
        gateway_key(home().gateway_key),
        repository=REPOSITORY,
        auth_string=os.environ.get("PREFECT_API_AUTH_STRING") or None,
        webhook_secret=os.environ.get(SECRET) or None,
    )
    config = uvicorn.Config(
        app,
        host=asked.host,
        port=asked.port,
        access_log=False,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        ws_max_size=LARGEST_BODY,
        timeout_graceful_shutdown=3,
    )
    socket = config.bind_socket()
    print(f"http://{asked.host}:{socket.getsockname()[1]}", flush=True)
    uvicorn.Server(config).run([socket])


if __name__ == "__main__":
    main()

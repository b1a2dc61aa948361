"""What the account has left: only GraphQL answers that, and it is announced to end early 2027.

The one place that uses the `runpod` package. Its pods calls build GraphQL out of unescaped text and
put that text, secrets included, into their exceptions; so no error of it is passed on.
"""

from __future__ import annotations

import os
import threading
from urllib.parse import urlsplit

from blocks.account import Balance
from runner.errors import TryAgain

QUERY = "query { myself { clientBalance currentSpendPerHr } }"
_one_at_a_time = threading.Lock()  # the package knows one key for the whole process


def balance(api_key: str, base_url: str) -> Balance:
    """Ask RunPod; TryAgain with a sentence when it does not say."""
    import runpod  # half a second, and no run needs it
    from runpod.api.graphql import run_graphql_query

    address = urlsplit(base_url)
    with _one_at_a_time:
        before = os.environ.get("RUNPOD_API_BASE_URL")
        os.environ["RUNPOD_API_BASE_URL"] = f"{address.scheme}://{address.netloc}"
        runpod.api_key = api_key
        try:
            myself = run_graphql_query(QUERY)["data"]["myself"]
            return Balance(float(myself["clientBalance"]), float(myself["currentSpendPerHr"]))
        except Exception as error:  # 410 gives no JSON or no data, a bad key their own errors
            raise TryAgain(
                "RunPod does not tell the account's balance "
                f"({type(error).__name__}: its GraphQL interface may have ended)"
            ) from None
        finally:
            if before is None:
                del os.environ["RUNPOD_API_BASE_URL"]
            else:
                os.environ["RUNPOD_API_BASE_URL"] = before

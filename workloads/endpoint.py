"""Is there a server that can be measured? Asked with the official client, before any load starts."""

from __future__ import annotations

import httpx2
import openai

from workloads.client import Endpoint

TIMEOUT_S = 20.0


class EndpointError(ValueError):
    """One line: URL, what is wrong with it, and what to do."""


def check(endpoint: Endpoint) -> int | None:
    """Return the served model's window in tokens, None where the server does not say.

    Raises EndpointError: nobody answers, no OpenAI-compatible server, or another model.
    """
    where = f"{endpoint.base_url}/v1/models"
    url = endpoint.url
    if url.scheme not in ("http", "https") or not url.hostname:
        raise EndpointError(f"{endpoint.base_url}: not a URL of a server: give it as http://HOST:PORT")
    http = httpx2.Client(trust_env=False, timeout=TIMEOUT_S)
    try:
        with openai.OpenAI(
            base_url=f"{endpoint.base_url}/v1", api_key=endpoint.api_key or "none", max_retries=0, http_client=http
        ) as client:
            served = {model.id: model for model in client.models.list().data}
    except openai.APIStatusError as error:
        raise EndpointError(
            f"{where}: HTTP {error.status_code}: no OpenAI-compatible server, or it wants a key: see --url, --api-key"
        ) from None
    except openai.APIConnectionError as error:
        cause = " ".join(str(error.__cause__ or error).split())
        raise EndpointError(f"{where}: nobody answers ({cause}): start the engine, or mend --url") from None
    except (openai.OpenAIError, httpx2.HTTPError, ValueError, TypeError, AttributeError):
        raise EndpointError(f"{where}: no list of models, so no OpenAI-compatible server: mend --url") from None
    if endpoint.model_name not in served:
        names = ", ".join(sorted(str(name) for name in served)) or "no model"
        raise EndpointError(f"{where}: serves {names}, not '{endpoint.model_name}': mend --model")
    window = getattr(served[endpoint.model_name], "max_model_len", None)
    return window if type(window) is int and window > 0 else None

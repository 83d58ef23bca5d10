"""Is there a server that can be measured? Asked with the official client, before any load starts."""

from __future__ import annotations

import os

import httpx2
import openai

from workloads.client import Endpoint

TIMEOUT_S = 20.0


class EndpointError(ValueError):
    """One line: URL, what is wrong with it, and what to do."""


def api_key() -> str | None:
    """Return the key from KVGATE_API_KEY, None where there is none. Raises EndpointError: no key can look like that."""
    key = os.environ.get("KVGATE_API_KEY")
    if key and not (key.isascii() and key.isprintable()):
        raise EndpointError("KVGATE_API_KEY: holds characters that no key has: set it to the key alone")
    return key


def _check_url(endpoint: Endpoint) -> None:
    """Raise EndpointError unless the base URL is a scheme, a host and a port, and nothing more."""
    remedy = "give it as http://HOST:PORT"
    shown = endpoint.base_url
    try:
        url, port = endpoint.url, endpoint.url.port
    except ValueError as error:
        raise EndpointError(f"{shown}: not a URL of a server ({error}): {remedy}") from None
    if url.username is not None or url.password is not None:
        raise EndpointError("--url: holds a user or a password, which would be recorded: set KVGATE_API_KEY instead")
    if url.scheme not in ("http", "https") or not url.hostname or port == 0:
        raise EndpointError(f"{shown}: not a URL of a server: {remedy}")
    if url.path or url.query or url.fragment:
        raise EndpointError(f"{shown}: more than a server's address: {remedy}")


def check(endpoint: Endpoint) -> int | None:
    """Return the served model's window in tokens, None where the server does not say.

    Raises EndpointError: nobody answers, no OpenAI-compatible server, or another model.
    """
    where = f"{endpoint.base_url}/v1/models"
    _check_url(endpoint)
    http = httpx2.Client(trust_env=False, timeout=TIMEOUT_S)
    try:
        with openai.OpenAI(
            base_url=f"{endpoint.base_url}/v1", api_key=endpoint.api_key or "none", max_retries=0, http_client=http
        ) as client:
            served = {model.id: model for model in client.models.list().data}
    except openai.APIStatusError as error:
        wants_key = error.status_code in (401, 403)
        remedy = "it wants a key: set KVGATE_API_KEY" if wants_key else "no OpenAI-compatible server: mend --url"
        raise EndpointError(f"{where}: HTTP {error.status_code}: {remedy}") from None
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

"""One harmless call to an endpoint, and what to do when it fails."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import httpx

    from airflow_provider_llmbatch.engine.connection import ConnectionSettings, Credential
    from airflow_provider_llmbatch.engine.state.protocols import Told

Level = Literal["ok", "warn", "fail", "unknown"]

#: Seconds for the whole call.
PROBE_TIMEOUT_S = 10.0

_MODELS_NOT_LISTED = frozenset({404, 405, 501})
_REMEDIES = {
    401: "refuses the API key; paste a valid key into the connection",
    402: "asks for payment; look at the account's credit",
    403: "knows the API key but does not allow this; look at the key's rights and the project",
    407: "is behind a proxy that asks for a login; write it into the extra field proxy",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What an endpoint has answered; no secret is in it."""

    level: Level
    #: what it says, and what to do about it
    words: str
    #: what it says about its limits, by the account of the credential that asked
    told: Mapping[str, tuple[Told, ...]]


def probe(settings: ConnectionSettings, timeout_s: float = PROBE_TIMEOUT_S) -> tuple[bool, str]:
    """
    List the endpoint's models with every credential in turn, up to the first that fails.

    :return: whether all is well, and a sentence without any secret.
    """
    seen = look(settings, timeout_s)
    return seen.level != "fail", seen.words


def look(settings: ConnectionSettings, timeout_s: float = PROBE_TIMEOUT_S, *, call: str = "") -> Seen:
    """
    List the endpoint's models with every credential in turn, up to the first that fails.

    :param call: a model that each of them sends one chat call of a token to, as most services tell limits
        with such calls only; ``""`` sends none.
    """
    import httpx

    from airflow_provider_llmbatch.engine.dispatch.limit import headers

    told: dict[str, tuple[Told, ...]] = {}
    try:
        with _client(settings, timeout_s) as client:
            for credential in settings.credentials:
                response = client.get(settings.url("models"), headers=settings.headers(credential))
                level, words = _verdict(response, settings)
                if level != "fail" and call:
                    response = _call(client, settings, credential, call)
                    level, words = _verdict_of_call(response, settings, call, level, words)
                told[credential.account] = headers.read(response.headers)
                if level == "fail":
                    break
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        words = f"{settings.base_url} {_trouble(error, settings, timeout_s)}."
        return Seen(level="fail", words=_scrubbed(words, settings), told=told)
    words = f"{settings.base_url} {words}{_named(credential, settings)}."
    return Seen(level=level, words=_scrubbed(words, settings), told=told)


def _call(
    client: httpx.Client, settings: ConnectionSettings, credential: Credential, model: str
) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    return client.post(settings.url(), headers=settings.headers(credential), json=body)


def _verdict_of_call(
    response: httpx.Response, settings: ConnectionSettings, model: str, level: Level, words: str
) -> tuple[Level, str]:
    """Return what is said of a chat call; who rejects its parameters knows the model all the same."""
    status = response.status_code
    if status == 404:
        return "fail", f"does not know the model {model!r} (HTTP 404); correct it, or the base URL"
    if status in _REMEDIES or status >= 500:
        return _verdict(response, settings)
    return level, words


def _client(settings: ConnectionSettings, timeout_s: float) -> httpx.Client:
    import httpx

    return httpx.Client(
        timeout=timeout_s,
        verify=ssl.create_default_context(cafile=settings.ca_file) if settings.ca_file else True,
        proxy=settings.proxy.reveal() if settings.proxy else None,
        follow_redirects=False,
    )


def _verdict(response: httpx.Response, settings: ConnectionSettings) -> tuple[Level, str]:
    status = response.status_code
    if status == 200:
        return _models(response, settings)
    if status in _MODELS_NOT_LISTED:
        return "unknown", f"is reachable, but lists no models (HTTP {status}), so the API key is untested"
    if status == 429:
        return "warn", "is reachable, but over a limit or out of credit at the moment (HTTP 429)"
    if response.is_redirect:
        return "fail", f"redirects elsewhere (HTTP {status}); write the final address into the base URL"
    if remedy := _REMEDIES.get(status):
        return "fail", f"{remedy} (HTTP {status})"
    hint = "try again later" if status >= 500 else "look at the base URL; it often ends in /v1"
    return "fail", f"answers HTTP {status}; {hint}"


def _models(response: httpx.Response, settings: ConnectionSettings) -> tuple[Level, str]:
    try:
        body: Any = response.json()
        names = {model["id"] for model in body["data"]}
    except (ValueError, TypeError, KeyError):
        kind = response.headers.get("content-type", "an unnamed type").partition(";")[0]
        return (
            "fail",
            f"answers, but with {kind} and no list of models; look at the base URL, which often ends in /v1",
        )
    if settings.model and not settings.azure_deployment and settings.model not in names:
        return "warn", f"is reachable; the model {settings.model!r} is not among the {len(names)} it lists"
    return "ok", f"is reachable and lists {len(names)} models"


def _trouble(error: Exception, settings: ConnectionSettings, timeout_s: float) -> str:
    import httpx

    if isinstance(error, httpx.TimeoutException):
        return f"did not answer within {timeout_s:g} s; look at host, port and firewall"
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "has a certificate that is not trusted here; name the CA's PEM file in the extra field ca_file"
    if isinstance(error, httpx.ProxyError):
        return f"cannot be reached through the proxy ({error}); look at the extra field proxy"
    if isinstance(error, httpx.TransportError):
        return f"cannot be reached ({error}); look at host, port and scheme"
    if settings.ca_file and isinstance(error, OSError):
        return f"was not called: ca_file {settings.ca_file!r} cannot be read ({error.strerror or error})"
    return f"was not called: {type(error).__name__}"


def _named(credential: Credential, settings: ConnectionSettings) -> str:
    return f" (credential {credential.id})" if len(settings.credentials) > 1 else ""


def _scrubbed(text: str, settings: ConnectionSettings) -> str:
    for secret in settings.secrets():
        text = text.replace(secret, "***")
    return text

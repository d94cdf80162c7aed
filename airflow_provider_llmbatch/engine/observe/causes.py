"""Why calls usually fail, and what helps, in one sentence each."""

from __future__ import annotations

_BY_CODE = {
    "insufficient_quota": "The account has no credit left: top it up, or use another credential.",
    "budget_exceeded": "The key's budget at the proxy is spent: raise it there, or use another credential.",
    "expired_key": "The key has expired: put a new one into the connection's password.",
    "no_db_connection": "The proxy does not know the key: check the connection's password.",
    "EMFILE": "The process has no files left: raise its limit (ulimit -n), or lower max_in_flight.",
    "model_not_found": "The model or deployment is unknown here: check its name and the base URL.",
    "DeploymentNotFound": "The deployment is unknown here: check its name and the API version.",
    "context_length_exceeded": "The prompt does not fit the model: shorten it or take a larger model.",
    "exceed_context_size_error": "The prompt does not fit the server's context: shorten it or enlarge that.",
    "content_filter": "The service's content filter stopped it: the item goes to review.",
    "unsupported_parameter": "The model does not take a parameter; it is rewritten and not sent again.",
}

_BY_STATUS = {
    301: "The address has moved: set the connection's base URL to the new one.",
    302: "The address leads elsewhere, often to a login page: check the base URL.",
    307: "The address leads elsewhere: set the connection's base URL to where it leads.",
    308: "The address has moved: set the connection's base URL to the new one.",
    400: "The service rejects the request as it stands: look at the parameters and the schema.",
    401: "The key is wrong or was revoked: check the connection's password.",
    402: "The account has no credit left: top it up, or use another credential.",
    403: "The key may not use this model or project: check its permissions.",
    404: "Nothing is there: check the base URL (does it end in /v1?) and the model's name.",
    405: "Nothing takes calls there: check the base URL (does it end in /v1?).",
    408: "The service took too long; it is tried again. If it lasts, ask for less output.",
    413: "The request is too large for the service: shorten the prompt.",
    422: "The service rejects the request as it stands: look at the parameters and the schema.",
    429: "The account's limit is lower than the connection's, or shared with others: lower the latter.",
    529: "The service is overloaded; it is tried again later.",
}

_BY_KIND = {
    "timeout": "No answer in time: raise the timeout, or ask for less output.",
    "connect": "The service cannot be reached: check host, proxy and certificates.",
    "reset": "The connection broke during a call; tried again. If it lasts: look at proxies in between.",
    "malformed": "The answer is not in the expected form: is the base URL that of an OpenAI-compatible API?",
    "too_large": "The answer is larger than the ceiling: cap the output tokens.",
    "truncated": "The reply did not fit the output cap: raise max_tokens, or ask for less.",
    "truncated_by_reasoning": "The model thought the whole cap away: raise max_tokens or lower its effort.",
    "refusal": "The model declined to answer: the item goes to review; look at the prompt if many do.",
    "content_filter": "The service's content filter stopped it: the item goes to review.",
    "empty": "The model sent no text: raise the output cap, or lower its reasoning effort.",
    "json": "The model did not answer in JSON: ask for it in the prompt, or take a model that can.",
    "schema": "The model does not keep to the schema: name the fields in the prompt, or loosen the schema.",
}


def likely_cause(kind: str, status: int | None, code: str | None) -> str:
    """Return the likely cause and the remedy, ``""`` when nothing useful can be said."""
    if code in _BY_CODE:
        return _BY_CODE[code]
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status is not None and status >= 500:
        return "The service has trouble; it is tried again. If it lasts, set a fallback route."
    return _BY_KIND.get(kind, "")

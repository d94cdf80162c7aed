from __future__ import annotations

from decimal import Decimal

import pytest

from airflow_provider_llmbatch.engine.connection import ConnectionSettings, LimitRule, parse
from airflow_provider_llmbatch.errors import ConfigurationError

KEY = "sk-canary-5f1e+/Z=="
URL = "https://llm.example/v1"


def settings(host: str | None = URL, password: str | None = KEY, conn_type: str | None = "llmbatch", **extra):
    return parse("llm", host=host, password=password, extra=extra, conn_type=conn_type)


def refusal(*args, **kwargs) -> str:
    with pytest.raises(ConfigurationError) as caught:
        settings(*args, **kwargs)
    assert caught.value.__cause__ is None, "a cause would repeat the values"
    return str(caught.value)


def test_the_smallest_connection_is_a_url():
    found = settings(password=None)
    (credential,) = found.credentials
    assert (found.base_url, credential.key, credential.account) == (URL, None, "no-key@llm.example")
    assert found.limits == (LimitRule(),)
    assert found.headers(credential) == {}


def test_a_key_is_sent_as_a_bearer_token():
    found = settings()
    assert found.headers(found.credentials[0]) == {"Authorization": f"Bearer {KEY}"}
    assert found.url() == "https://llm.example/v1/chat/completions"


def test_all_fields_are_read():
    found = settings(
        model="m",
        context_window=8192,
        encoding="cl100k_base",
        timeout_s=30,
        connect_timeout_s=2.5,
        concurrency=16,
        headers={"X-Team": "research"},
        proxy="http://proxy:3128",
        ca_file="/etc/ca.pem",
        response_format="json_object",
        prices={"m": {"input": 0.15, "output": "0.60"}},
    )
    assert (found.model, found.context_window, found.encoding) == ("m", 8192, "cl100k_base")
    assert (found.timeout_s, found.connect_timeout_s, found.concurrency) == (30.0, 2.5, 16)
    assert found.response_format == "json_object"
    assert found.prices == {"m": {"input": Decimal("0.15"), "output": Decimal("0.60")}}
    assert found.headers(found.credentials[0])["X-Team"] == "research"
    assert found.proxy is not None
    assert (found.proxy.reveal(), found.ca_file) == ("http://proxy:3128", "/etc/ca.pem")


def test_values_of_a_uri_connection_come_as_text():
    found = settings(
        requests_per_minute="600",
        burst_seconds="2.5",
        limits='[{"models": ["a"], "tokens_per_minute": "90"}]',
    )
    assert found.limits[-1].requests_per_minute == 600
    assert found.limits[-1].burst_seconds == 2.5
    assert found.limits[0].tokens_per_minute == 90


def test_fields_left_empty_in_the_form_are_as_good_as_missing():
    assert settings(model="", requests_per_minute=None, limits="") == settings()


# --- the base URL -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "base_url"),
    [
        ("https://llm.example/v1/", URL),
        ("https://llm.example/v1///", URL),
        ("http://127.0.0.1:8089/v1", "http://127.0.0.1:8089/v1"),
        ("http://[::1]:8089", "http://[::1]:8089"),
        ("https://llm.example/a/v1?x=1", "https://llm.example/a/v1"),
        ("https://user:pw@llm.example:8443/v1", "https://llm.example:8443/v1"),
    ],
)
def test_nothing_but_slashes_at_the_end_is_dropped_from_a_base_url(host, base_url):
    assert settings(host, password=None).base_url == base_url


@pytest.mark.parametrize(
    ("host", "words"),
    [
        (None, "host is empty"),
        ("", "host is empty"),
        ("api.openai.com/v1", "without a scheme"),
        ("localhost:8089", "without a scheme"),
        ("ftp://llm.example", "scheme 'ftp'"),
        ("https:///v1", "without a usable host"),
        ("https://llm.example:0/v1", "without a usable host and port"),
        ("https://llm.example:99999/v1", "no URL"),
        ("https://[::1/v1", "no URL"),
        ("https://llm.example/v1#top", "fragment"),
        ("https://llm.example/v 1", "white space"),
        ("https://llm.example\\v1", "backslash"),
        (" https://llm.example/v1", "white space"),
        ("https://llm.example/v1/chat/completions", "leave out /chat/completions"),
    ],
)
def test_an_unusable_base_url_is_refused_with_the_remedy(host, words):
    message = refusal(host)
    assert message.startswith("Connection 'llm': host is ")
    assert words in message


def test_a_query_goes_along_with_every_call_and_is_not_shown():
    found = settings(f"{URL}?key={KEY}&v=a%20b", password=None)
    assert found.url("models") == f"{URL}/models?key={KEY}&v=a%20b"
    assert "canary" not in repr(found)


def test_a_login_in_the_url_becomes_basic_authorization():
    found = settings("https://us%40er:p%3Aw@llm.example/v1", password=None)
    assert found.headers(found.credentials[0]) == {"Authorization": "Basic dXNAZXI6cDp3"}
    assert "p:w" in found.secrets()


@pytest.mark.parametrize(
    ("host", "password", "headers"),
    [
        ("https://u:p@llm.example", KEY, {}),
        (URL, KEY, {"authorization": "Token x"}),
        ("https://u:p@llm.example", None, {"Authorization": "Token x"}),
    ],
)
def test_authorizing_twice_is_refused(host, password, headers):
    assert "more than once how to authorize" in refusal(host, password, headers=headers)


# --- Azure --------------------------------------------------------------------------------------------------


def test_azure_calls_name_deployment_and_version():
    found = settings("https://x.openai.azure.com/", azure_deployment="my dep", api_version="2024-10-21")
    base = "https://x.openai.azure.com/openai"
    assert found.url() == f"{base}/deployments/my%20dep/chat/completions?api-version=2024-10-21"
    assert found.url("models") == f"{base}/models?api-version=2024-10-21"
    assert found.headers(found.credentials[0]) == {"api-key": KEY}


@pytest.mark.parametrize(
    ("host", "extra", "words"),
    [
        (URL, {"azure_deployment": "d"}, "api_version is missing"),
        (URL, {"api_version": "2024-10-21"}, "azure_deployment is missing"),
        (f"{URL}/openai/v1", {"azure_deployment": "d", "api_version": "v"}, "ends before /openai"),
    ],
)
def test_half_an_azure_connection_is_refused(host, extra, words):
    assert words in refusal(host, **extra)


# --- credentials and accounts -------------------------------------------------------------------------------


def test_the_same_key_has_the_same_id_and_account_in_two_connections():
    one = settings().credentials[0]
    two = settings("https://other.example").credentials[0]
    assert one.id == two.id == one.account
    assert len(one.id) == 12
    assert one.id != settings(password="sk-another").credentials[0].id


def test_several_credentials_keep_their_order_after_the_password():
    found = settings(
        credential_id="main",
        credentials=[
            {"api_key": "k2", "account": "team"},
            {"api_key": "k3", "id": "third", "account": "team"},
        ],
    )
    first, second, third = found.credentials
    assert (first.id, first.account) == ("main", "main")
    assert (second.account, third.id, third.account) == ("team", "third", "team")
    assert second.key is not None
    assert second.key.reveal() == "k2"


@pytest.mark.parametrize(
    ("credentials", "words"),
    [
        ([{"api_key": KEY}], "the same key twice"),
        ([{"api_key": "a", "id": "x"}, {"api_key": "b", "id": "x"}], "the same id twice"),
        ([{"key": "a"}], "credentials.0.key is not known; did you mean api_key?"),
        ([{"account": "a"}], "credentials.0.api_key is missing"),
        ([{"api_key": "a b"}], "credentials.0.api_key is not usable (a str, not shown)"),
        ("[{", "credentials is not usable (a str, not shown): it should be JSON"),
        ([KEY], "credentials.0 is not usable (a str, not shown)"),
    ],
)
def test_credentials_that_cannot_be_used_are_refused_without_showing_them(credentials, words):
    message = refusal(credentials=credentials)
    assert words in message
    assert KEY not in message


@pytest.mark.parametrize("password", ["sk-1\n", " sk-1", "Bearer sk-1", "sk-ü"])
def test_a_key_that_was_pasted_badly_is_refused_unseen(password):
    message = refusal(password=password)
    assert "password is empty, or has white space or other characters" in message
    assert "sk-" not in message


# --- limits -------------------------------------------------------------------------------------------------


def test_flat_fields_limit_every_model():
    rule = settings(requests_per_minute=600, max_in_flight=8, counts="used").limit("any", "model")
    assert (rule.requests_per_minute, rule.max_in_flight, rule.counts) == (600, 8, "used")
    assert (rule.group, rule.burst_seconds, rule.arrival_slack, rule.window_s) == ("*", 5.0, 2.0, 60.0)


def test_the_first_limit_that_covers_account_and_model_wins():
    found = settings(
        account="main",
        credentials=[{"api_key": "k2", "account": "team-b"}],
        requests_per_minute=10,
        burst_seconds=1,
        limits=[
            {"models": ["gpt-4o-mini"], "requests_per_minute": 500},
            {"models": ["gpt-4o*", "o3*"], "tokens_per_minute": 90, "burst_seconds": 3},
            {"account": "team-*", "requests_per_minute": 7},
        ],
    )
    assert found.limit("main", "gpt-4o-mini").requests_per_minute == 500
    assert found.limit("main", "o3-pro").tokens_per_minute == 90
    assert found.limit("main", "o3-pro").requests_per_minute is None
    assert found.limit("team-b", "llama").requests_per_minute == 7
    assert found.limit("main", "llama").requests_per_minute == 10
    assert [r.burst_seconds for r in found.limits] == [1.0, 3.0, 1.0, 1.0]
    assert found.limits[1].group == "gpt-4o*,o3*"


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"requests_per_minute": 0}, "requests_per_minute is 0"),
        ({"requests_per_minute": -5}, "requests_per_minute is -5"),
        ({"requests_per_minute": True}, "requests_per_minute is True"),
        ({"tokens_per_minute": "many"}, "tokens_per_minute is 'many'"),
        ({"tokens_per_minute": 1.5}, "tokens_per_minute is 1.5"),
        ({"max_in_flight": 0}, "max_in_flight is 0"),
        ({"burst_seconds": 0}, "burst_seconds is 0"),
        ({"arrival_slack": -1}, "arrival_slack is -1"),
        ({"timeout_s": "1e999"}, "timeout_s is '1e999'"),
        ({"timeout_s": float("nan")}, "timeout_s is nan"),
        ({"counts": "spent"}, "counts is 'spent'"),
        ({"response_format": "json"}, "response_format is 'json'"),
        ({"api": "responses"}, "api is 'responses'"),
        ({"limits": {"models": ["a"]}}, "limits is not usable (a dict, not shown)"),
        ({"limits": [{"models": "gpt-4o"}]}, "limits.0.models is 'gpt-4o'"),
        ({"limits": [{"models": []}]}, "limits.0.models"),
        ({"limits": [{"request_per_minute": 5}]}, "did you mean requests_per_minute?"),
        ({"limits": [{"foo": 5}]}, "the fields here are account, "),
        ({"limits": [{"account": "nobody"}]}, "names the account 'nobody', which no credential has"),
        ({"prices": {"m": {"input": "-1", "output": "1"}}}, "prices.m.input is '-1'"),
        ({"prices": {"m": {"input": "1"}}}, "prices.m.output is missing"),
        ({"headers": {"Host": "x"}}, "'Host', which is not a header that can be set"),
        ({"headers": {"X-A": "a\r\nB: c"}}, "printable ASCII in the header 'X-A'"),
        ({"proxy": "proxy:3128"}, "should be a URL that begins with http"),
        ({"budgets": [{"name": "a", "usd": 5}]}, "budgets.0.per is missing; give 'run', 'day' or 'month'"),
        ({"budgets": [{"name": "a", "per": "day"}]}, "should have either usd or tokens"),
        ({"budgets": [{"name": "a", "per": "day", "usd": 1, "tokens": 1}]}, "either usd or tokens"),
        ({"budgets": [{"name": "a", "per": "week", "usd": 1}]}, "'run', 'day' or 'month'"),
        ({"budgets": [{"name": "a", "per": "day", "usd": 0}]}, "budgets.0.usd is 0"),
    ],
)
def test_a_bad_value_is_refused_by_field_value_and_remedy(extra, words):
    message = refusal(**extra)
    assert message.startswith("Connection 'llm': extra field ")
    assert words in message


def test_every_bad_field_is_named_at_once():
    message = refusal(requests_per_minute=0, counts="x")
    assert "requests_per_minute is 0" in message
    assert "counts is 'x'" in message


def test_a_misspelled_limit_is_refused_and_a_foreign_field_only_listed():
    assert "did you mean tokens_per_minute?" in refusal(token_per_minute=5)
    assert settings(owner="data team").unknown == ("owner",)


# --- connections of other providers -------------------------------------------------------------------------


def test_an_openai_connection_works_as_it_stands():
    found = settings(None, conn_type="openai")
    assert found.base_url == "https://api.openai.com/v1"
    assert found.headers(found.credentials[0]) == {"Authorization": f"Bearer {KEY}"}


def test_the_client_arguments_of_an_openai_connection_go_first():
    arguments = {
        "base_url": "https://gateway.example/v1/",
        "api_key": "sk-other",
        "organization": "org-1",
        "default_headers": {"X-A": "b"},
        "timeout": 20,
        "max_retries": 9,
    }
    found = settings(conn_type="openai", openai_client_kwargs=arguments)
    assert found.base_url == "https://gateway.example/v1"
    assert found.headers(found.credentials[0]) == {
        "X-A": "b",
        "OpenAI-Organization": "org-1",
        "Authorization": "Bearer sk-other",
    }
    assert found.timeout_s == 20.0
    assert found.unknown == ("openai_client_kwargs.max_retries",)
    assert arguments["max_retries"] == 9, "the connection itself is left as it was"


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"auth_type": "workload_identity"}, "auth_type is 'workload_identity'"),
        ({"openai_client_kwargs": "x"}, "openai_client_kwargs is no object"),
    ],
)
def test_an_openai_connection_that_cannot_be_used_says_so(extra, words):
    assert words in refusal(conn_type="openai", **extra)


@pytest.mark.parametrize(
    ("host", "model", "base_url", "ours"),
    [
        (None, "openai:gpt-5", "https://api.openai.com/v1", "gpt-5"),
        (None, "openai-chat:gpt-5", "https://api.openai.com/v1", "gpt-5"),
        ("http://ollama:11434/v1", "ollama:llama3:8b", "http://ollama:11434/v1", "llama3:8b"),
        (None, None, "https://api.openai.com/v1", None),
    ],
)
def test_a_pydanticai_connection_works_as_it_stands(host, model, base_url, ours):
    found = settings(host, conn_type="pydanticai", model=model)
    assert (found.base_url, found.model) == (base_url, ours)


def test_a_pydanticai_model_of_a_service_without_known_address_is_refused():
    assert "provider 'anthropic'" in refusal(None, conn_type="pydanticai", model="anthropic:claude")


@pytest.mark.parametrize("conn_type", [None, "", "http", "generic"])
def test_other_types_are_refused_by_name(conn_type):
    assert f"conn_type is {conn_type!r}; set it to one of llmbatch, openai" in refusal(conn_type=conn_type)


def test_extra_that_is_no_object_is_refused():
    with pytest.raises(ConfigurationError, match="extra is a list; make it a JSON object"):
        parse("llm", host=URL, password=None, extra=[1])  # type: ignore[arg-type]


def test_settings_compare_by_value():
    assert isinstance(settings(), ConnectionSettings)
    assert settings() == settings()
    assert settings() != settings(password="sk-another")

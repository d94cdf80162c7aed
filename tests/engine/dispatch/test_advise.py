"""Every row of the table of what to do about a failure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_llmbatch.engine.dispatch.advise import BACKOFF_LONGEST_S, History, advise, backoff
from airflow_provider_llmbatch.engine.exchange import (
    Failure,
    Fallback,
    Final,
    OtherCredential,
    Retry,
    Rewrite,
    Stop,
)
from airflow_provider_llmbatch.engine.items import Outcome
from tests.engine.dispatch.advising import FRESH, NOW, WORN, advised, final, http


@pytest.mark.parametrize(
    "seen",
    [
        http(401),
        http(401, code="invalid_api_key"),
        Failure(kind="malformed", status=401, message="<html>"),
        http(402),
        http(403, code="unsupported_country_region_territory"),
        http(400, code="invalid_api_key"),
        http(429, code="insufficient_quota", type="insufficient_quota"),
        http(429, type="insufficient_quota"),
        http(403, code="billing_hard_limit_reached"),
    ],
)
def test_what_the_key_is_to_blame_for_asks_for_another_credential(seen: Failure):
    """P20."""
    assert isinstance(advised(seen), OtherCredential)


@pytest.mark.parametrize("code", ["rate_limit_exceeded", "insufficient_quota_soon", "429", None])
def test_only_the_exact_code_of_an_empty_account_blames_the_key(code: str | None):
    """P19, P20."""
    assert isinstance(advised(http(429, code=code, type="tokens")), Retry)


@pytest.mark.parametrize(
    "seen",
    [
        http(413),
        Failure(kind="malformed", status=413, message="<html>413</html>"),
        http(400, code="context_length_exceeded"),
        http(400, "This model's maximum context length is 8192 tokens. However, you requested 9000"),
        http(400, "prompt is too long: 210000 tokens > 200000 maximum"),
        http(422, "Input is too long for requested model."),
        http(400, "There are too many tokens in it"),
        http(400, "too many input tokens"),
        http(400, "The messages exceed the model's maximum"),
        http(400, "It exceeds the available context"),
        http(400, "Request too large."),
        http(429, "Request too large for m on tokens per min (TPM): Limit 30000, Requested 40000."),
        http(429, "Request too large: Limit 2,000,000, Requested 2,100,000."),
    ],
)
def test_what_is_too_large_ends_too_long(seen: Failure):
    assert final(advised(seen)) == (Outcome.TOO_LONG, "too_long")


@pytest.mark.parametrize(
    "seen",
    [
        http(429, code="rate_limit_exceeded", type="tokens"),
        http(429, "Rate limit reached: Limit 30000, Used 29990, Requested 500. Try again in 20ms."),
        http(429, "Rate limit reached: Limit 2,000,000, Used 1,999,000, Requested 90,000."),
        http(429, "Limit ,, Used ,, Requested ,,"),
        http(429, "Rate limit reached: Limit 30000, Used 1, Requested 30000."),
        http(529),
        Failure(kind="malformed", status=429, message="<html>"),
        Failure(kind="malformed", status=529, message="<html>"),
    ],
)
def test_throttling_holds_everybody_back_and_uses_no_try(seen: Failure):
    """P19."""
    for history in (FRESH, WORN):
        advice = advised(seen, history, {"retry-after": "7"})
        assert isinstance(advice, Retry)
        assert (advice.delay_s, advice.uses_try, advice.shared) == (7.0, False, True)


def test_throttling_waits_as_told_else_by_the_reset_of_the_spent_limit_else_longer_each_time():
    told = {"retry-after-ms": "250", "retry-after": "9"}
    reset = {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}
    delays = [getattr(advised(http(429), FRESH, headers), "delay_s", None) for headers in (told, reset)]
    assert delays == [0.25, 360.0]
    untold = [advised(http(429), History(tries=1, max_tries=5, throttled=n, luck=1.0)) for n in (1, 2, 3, 20)]
    assert [getattr(advice, "delay_s", None) for advice in untold] == [0.5, 1.0, 2.0, BACKOFF_LONGEST_S]


@pytest.mark.parametrize(
    ("throttled", "told", "delay"),
    [(5, "0", 0.0), (6, "0", 0.5), (7, "0", 1.0), (30, "0", 60.0), (30, "90", 90.0)],
)
def test_a_service_that_says_now_each_time_is_asked_ever_more_slowly(throttled: int, told: str, delay: float):
    """P19."""
    history = History(tries=1, max_tries=5, throttled=throttled, luck=1.0)
    advice = advised(http(429), history, {"retry-after": told})
    assert isinstance(advice, Retry)
    assert advice.delay_s == delay


@pytest.mark.parametrize(
    "seen",
    [
        *(http(status) for status in (408, 409, 425, 500, 501, 502, 503, 504, 520)),
        Failure(kind="timeout", message="slow"),
        Failure(kind="connect", message="refused"),
        Failure(kind="reset", message="reset"),
        Failure(kind="malformed", status=200, message="<html>"),
        Failure(kind="malformed", status=403, message="<html>a gateway's page</html>"),
        Failure(kind="malformed", status=400, message="<html>a gateway's page</html>"),
        Failure(kind="malformed", status=502, message="<html>"),
    ],
)
def test_what_may_pass_is_tried_again_and_in_the_end_falls_back_or_is_exhausted(seen: Failure):
    """P28."""
    again = advised(seen)
    assert isinstance(again, Retry)
    assert (again.uses_try, again.shared) == (True, False)
    assert 0 < again.delay_s <= BACKOFF_LONGEST_S
    given_up = advised(seen, WORN)
    assert isinstance(given_up, Fallback)
    assert given_up.otherwise.outcome is Outcome.EXHAUSTED


@pytest.mark.parametrize(("told", "delay"), [("30", 30.0), ("0.1", 0.25), ("0", 0.25), (None, 0.25)])
def test_a_retry_waits_at_least_as_long_as_the_service_asks(told: str | None, delay: float):
    unlucky = History(tries=1, max_tries=5, luck=0.0)
    advice = advised(http(503), unlucky, {} if told is None else {"retry-after": told})
    assert isinstance(advice, Retry)
    assert advice.delay_s == delay


@pytest.mark.parametrize("seen", [http(429), http(503)])
def test_a_wait_beyond_the_longest_ends_the_item(seen: Failure):
    patient = History(tries=1, max_tries=5, waited_s=50.0, max_wait_s=60.0)
    assert isinstance(advised(seen, patient, {"retry-after": "9"}), Retry)
    ended = advised(seen, patient, {"retry-after": "11"})
    assert final(ended) == (Outcome.EXHAUSTED, "max_wait")


@pytest.mark.parametrize(
    "words",
    ["ContentPolicyViolationError", "Invalid model name passed", "maximum context length is 8192"],
)
def test_words_alone_decide_nothing_about_a_trouble_of_the_service(words: str):
    assert isinstance(advised(http(503, words)), Retry)


def test_an_account_is_empty_only_where_the_status_refuses():
    """P20."""
    assert isinstance(advised(http(503, code="insufficient_quota")), Retry)


@pytest.mark.parametrize("kind", ["reset", "timeout", "connect"])
@pytest.mark.parametrize("status", [401, 404, 413, 429])
def test_a_call_that_broke_off_is_tried_again_whatever_its_status(kind: Any, status: int):
    advice = advised(Failure(kind=kind, status=status, message="cut"))
    assert isinstance(advice, Retry)
    assert (advice.uses_try, advice.shared) == (True, False)


def test_a_refused_form_is_told_only_by_statuses_that_refuse():
    asked = History(tries=1, max_tries=5, params=frozenset({"response_format"}))
    assert isinstance(advised(http(503, "response_format"), asked), Retry)
    assert isinstance(advised(http(500, "response_format"), asked), Final)


@pytest.mark.parametrize("status", [429, 503])
def test_a_wait_may_last_exactly_as_long_as_the_longest(status: int):
    patient = History(tries=1, max_tries=5, waited_s=50.0, max_wait_s=60.0)
    assert isinstance(advised(http(status), patient, {"retry-after": "10"}), Retry)


def test_running_out_of_files_pauses_and_uses_no_try():
    """P32."""
    seen = Failure(kind="connect", message="Too many open files", code="EMFILE")
    for history in (FRESH, WORN):
        advice = advised(seen, history)
        assert isinstance(advice, Retry)
        assert (advice.delay_s, advice.uses_try, advice.shared) == (1.0, False, False)


@pytest.mark.parametrize(
    ("said", "code"), [({"code": "odd", "type": "t"}, "odd"), ({"type": "t"}, "t"), ({}, None)]
)
def test_the_row_names_the_code_or_else_the_type(said: dict[str, str], code: str | None):
    ended = advised(http(418, **said))
    assert isinstance(ended, Final)
    assert (ended.error.status, ended.error.code) == (418, code)


@pytest.mark.parametrize(
    ("seen", "drop", "rename_to"),
    [
        (http(400, code="unsupported_parameter", param="max_tokens"), "max_tokens", "max_completion_tokens"),
        (http(400, code="unsupported_value", param="temperature"), "temperature", None),
        (http(422, "Unknown parameter: 'temperature'."), "temperature", None),
        (http(400, "Unrecognized request argument supplied: temperature"), "temperature", None),
        (http(400, "'temperature' does not support 0.2 with this model."), "temperature", None),
    ],
)
def test_a_parameter_that_the_service_does_not_take_is_rewritten(
    seen: Failure, drop: str, rename_to: str | None
):
    """P38."""
    advice = advised(seen)
    assert isinstance(advice, Rewrite)
    assert (advice.drop, advice.rename_to) == (drop, rename_to)


def test_a_parameter_that_was_not_sent_is_not_rewritten():
    seen = http(400, code="unsupported_parameter", param="logit_bias")
    assert final(advised(seen)) == (Outcome.BAD_REQUEST, "http")


def test_a_refusal_that_names_no_parameter_is_a_bad_request():
    assert final(advised(http(400, "No.", code="unsupported_parameter"))) == (Outcome.BAD_REQUEST, "http")


def test_the_output_cap_goes_by_its_other_name_once_and_is_never_given_up():
    """P38."""
    seen = http(400, code="unsupported_parameter", param="max_completion_tokens")
    sent = frozenset({"max_completion_tokens"})
    advice = advised(seen, History(tries=1, max_tries=5, params=sent))
    assert isinstance(advice, Rewrite)
    assert advice.rename_to == "max_tokens"
    tried = History(tries=1, max_tries=5, params=sent, dropped=frozenset({"max_tokens"}))
    assert final(advised(seen, tried))[0] is Outcome.BAD_REQUEST


@pytest.mark.parametrize(
    "seen",
    [
        http(404),
        http(405),
        http(404, code="model_not_found"),
        http(400, code="model_not_found"),
        http(404, code="DeploymentNotFound"),
        Failure(kind="malformed", status=404, message="<html>404</html>"),
        http(300),
        http(301),
        http(308),
        http(400, "Invalid model: mistral-huge"),
    ],
)
def test_a_wrong_address_or_model_stops_the_run(seen: Failure):
    advice = advised(seen)
    assert isinstance(advice, Stop)
    assert not advice.retryable


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        (OtherCredential, "invalid_api_key account_deactivated billing_hard_limit_reached budget_exceeded"),
        (OtherCredential, "expired_key no_db_connection"),
        (Stop, "model_not_found DeploymentNotFound deployment_not_found invalid_model"),
        (Outcome.TOO_LONG, "context_length_exceeded string_above_max_length request_too_large"),
        (Outcome.TOO_LONG, "exceed_context_size_error"),
        (Outcome.CONTENT_FILTERED, "content_filter content_policy_violation ResponsibleAIPolicyViolation"),
        (Rewrite, "unsupported_parameter unsupported_value unknown_parameter"),
        (Outcome.BAD_REQUEST, "invalid_parameter odd 1234"),
    ],
)
def test_each_code_has_its_meaning_as_code_and_as_type_whatever_the_rest_says(kind: Any, codes: str):
    for name in codes.split():
        for said in ({"code": name}, {"type": name}, {"code": "1500", "type": name}):
            advice = advised(http(400, param="temperature", **said))
            if isinstance(kind, Outcome):
                assert final(advice)[0] is kind, name
            else:
                assert isinstance(advice, kind), name


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, OtherCredential),
        (402, OtherCredential),
        (404, Stop),
        (405, Stop),
        (413, Final),
        (429, Retry),
        (529, Retry),
    ],
)
def test_some_statuses_mean_the_same_without_a_body_that_says_so(status: int, kind: type):
    advice = advised(Failure(kind="malformed", status=status, message="<html>"), WORN)
    assert isinstance(advice, kind)


@pytest.mark.parametrize("status", [400, 422, 500, 501])
@pytest.mark.parametrize("code", ["unknown_parameter", "invalid_parameter"])
def test_a_failed_check_of_the_request_is_no_trouble_of_the_service(status: int, code: str):
    """P38."""
    rewritten = advised(http(status, code=code, param="temperature"))
    assert isinstance(rewritten, Rewrite if code == "unknown_parameter" else Final)
    assert final(advised(http(status, code=code, param="messages")))[0] is Outcome.BAD_REQUEST


@pytest.mark.parametrize("status", [400, 422, 418])
def test_other_refusals_are_a_bad_request(status: int):
    assert final(advised(http(status, code="odd"))) == (Outcome.BAD_REQUEST, "http")


def test_a_body_over_the_ceiling_is_final():
    seen = Failure(kind="too_large", message="huge", status=200, maybe_paid=True)
    assert final(advised(seen, WORN))[0] is Outcome.INVALID_OUTPUT


def test_an_item_of_which_nothing_is_known_has_waited_for_nothing_and_may_wait_six_hours():
    fresh = History(tries=1, max_tries=2)
    assert (fresh.throttled, fresh.waited_s, fresh.max_wait_s, fresh.luck) == (0, 0.0, 21_600.0, 0.5)
    assert (fresh.params, fresh.dropped, fresh.enlarged) == (frozenset(), frozenset(), False)


KINDS = ("http", "timeout", "connect", "reset", "malformed", "too_large")
_words = st.one_of(st.none(), st.text(max_size=30))


@given(
    seen=st.builds(
        Failure,
        kind=st.sampled_from(KINDS),
        message=st.text(max_size=80),
        status=st.one_of(st.none(), st.integers(100, 999)),
        code=_words,
        type=_words,
        param=_words,
        maybe_paid=st.booleans(),
    ),
    headers=st.dictionaries(
        st.sampled_from(["retry-after", "retry-after-ms", "x-ratelimit-reset-tokens"]), st.text(max_size=20)
    ),
    tries=st.integers(1, 5),
    luck=st.floats(0, 1),
)
def test_every_failure_has_an_answer_and_tries_run_out(seen, headers, tries, luck):
    history = History(tries=tries, max_tries=5, luck=luck, params=frozenset({"temperature"}))
    advice = advise(seen, headers, history, NOW)
    assert advice is not None
    if isinstance(advice, Retry):
        assert advice.delay_s >= 0
        assert tries < 5 or not advice.uses_try


@given(st.integers(1, 100), st.floats(0, 1))
def test_the_pause_grows_is_spread_and_has_an_end(tries: int, luck: float):
    assert 0.25 <= backoff(tries, luck) <= BACKOFF_LONGEST_S
    assert backoff(tries, luck) <= backoff(tries + 1, luck)
    assert backoff(tries, 0.0) == pytest.approx(backoff(tries, 1.0) / 2)

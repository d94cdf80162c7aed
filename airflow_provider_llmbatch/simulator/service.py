"""
What the service decides about a call, without a socket.

A call goes: key → body → scenario → completion → admission → answer. All of it happens in one step at the
moment the whole body has arrived; only the waiting and the sending come after.

With ``counts: used`` a call takes what its reply will have used, and it takes it on arrival: replies depend
on the request alone, so the service knows. Judged by arrival times, no window exceeds the limit either way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_llmbatch.simulator import reply, shapes
from airflow_provider_llmbatch.simulator.admission import Admission
from airflow_provider_llmbatch.simulator.answers import JSON_TYPE, Answer, scripted
from airflow_provider_llmbatch.simulator.arrivals import Arrival, ArrivalLog
from airflow_provider_llmbatch.simulator.chat import ChatRequest, decode, read_chat
from airflow_provider_llmbatch.simulator.scenario import Call, Fault, Scenario, Script
from airflow_provider_llmbatch.simulator.settings import (
    UNCAPPED_OUTPUT_TOKENS,
    SimulatedKey,
    SimulatorSettings,
)
from airflow_provider_llmbatch.simulator.shapes import ApiError
from airflow_provider_llmbatch.simulator.stats import totals


@dataclass(slots=True)
class _Visit:
    """A call on its way through the service: filled in as far as it gets."""

    n: int
    now: float
    sha: str
    authorization: str
    key: SimulatedKey | None = None
    account: str = ""
    model: str = ""
    prompt_tokens: int = 0
    tokens: int = 0
    admitted: bool = False
    rule: int | None = None


class Service:
    """
    The simulated service.

    :param settings: what it is told.
    :param count: counts the tokens of a text.
    :param clock: Unix seconds; must never go back.
    """

    def __init__(
        self, settings: SimulatorSettings, *, count: Callable[[str], int], clock: Callable[[], float]
    ) -> None:
        self.settings = settings
        self.log = ArrivalLog()
        self.admission = Admission(
            rpm=settings.rpm,
            tpm=settings.tpm,
            window_s=settings.window_s,
            quantum_s=settings.quantum_s,
            burst=settings.burst,
            failed_counts=settings.failed_counts,
        )
        self._count = count
        self._clock = clock
        self._keys = {key.key: key for key in settings.keys}
        self.play(settings.scenario)

    def play(self, scenario: Scenario | None) -> None:
        """Play another scenario, from its beginning."""
        self._scenario = scenario
        self._script = Script(scenario)
        self._script_since = self._clock()

    def reset(self) -> None:
        """Forget all arrivals and everything taken, and play the scenario from its beginning."""
        self.log.clear()
        self.admission.reset()
        self.play(self._scenario)

    def stats(self) -> dict[str, Any]:
        """Return totals and the fullest windows since the last reset."""
        figures = totals(
            list(self.log),
            rpm=self.admission.limits["requests"],
            tpm=self.admission.limits["tokens"],
            window_s=self.settings.window_s,
        )
        return {"now": self._clock(), "in_flight": self.log.in_flight, **figures}

    def receive(
        self, raw: bytes, *, authorization: str = "", api_key: str = "", deployment: str | None = None
    ) -> tuple[int, Answer]:
        """
        Decide about a call whose body has just arrived, and log it.

        :param raw: the body.
        :param authorization: the Authorization header.
        :param api_key: Azure's header for a key.
        :param deployment: the model, when the path names it.
        :return: the number of the arrival, and what to send.
        """
        body, sha = decode(raw)
        visit = _Visit(n=self.log.next_number, now=self._clock(), sha=sha, authorization=authorization)
        try:
            visit.key = self.find_key(authorization, api_key)
            visit.account = visit.key.account
            answer = self._decide(visit, read_chat(body, sha, self._count, deployment=deployment))
        except ApiError as error:
            headers = {"content-type": JSON_TYPE, **error.headers}
            answer = Answer(status=error.status, body=error.body, headers=headers)
        self._note(visit)
        return visit.n, replace(answer, headers=self._headers(visit, answer))

    def finish(self, number: int, status: int) -> None:
        """Note that a call has ended, and what was answered."""
        self.log.close(number, status, self._clock())

    def find_key(self, authorization: str, api_key: str = "") -> SimulatedKey:
        """
        Return the key that a call came with.

        :raises ApiError: the 401, when keys are set and this is none of them.
        """
        key = api_key or authorization.removeprefix("Bearer ").strip()
        if self._keys:
            if key not in self._keys:
                raise shapes.unknown_key(key)
            return self._keys[key]
        name = f"key-{hashlib.sha256(key.encode(errors='replace')).hexdigest()[:8]}" if key else "anonymous"
        return SimulatedKey(id=name, key=key, account=name)

    def _decide(self, visit: _Visit, request: ChatRequest) -> Answer:
        visit.model, visit.prompt_tokens = request.model, request.prompt_tokens
        if self.settings.per_model:
            visit.account = f"{visit.account}/{request.model}"
        self._check(request)
        pick = self._script.pick(self._call(visit, request))
        fault = self._script.fault(pick)
        completion = reply.compose(request, fault, self._count, output_words=self.settings.output_words)
        visit.tokens = self._cost(request, completion, fault)
        wait_s = 0.0
        if not fault.is_before_admission:
            self._admit(visit)
            wait_s = reply.latency(request, self.settings.latency_s, self.settings.jitter)
        self._script.count(pick)
        visit.rule = pick.rule
        body = reply.completion_body(request, completion, fault, visit.now)
        return scripted(fault, body, wait_s=wait_s, authorization=visit.authorization)

    def _call(self, visit: _Visit, request: ChatRequest) -> Call:
        return Call(
            text=request.text,
            model=request.model,
            credential=visit.key.id if visit.key else "",
            params=request.params,
            sha=request.sha,
            age_s=visit.now - self._script_since,
        )

    def _check(self, request: ChatRequest) -> None:
        models, window = self.settings.models, self.settings.model_window
        if models and request.model not in models:
            raise shapes.unknown_model(request.model)
        output = request.output_cap or 0
        if window is not None and request.prompt_tokens + output > window:
            raise shapes.over_window(window, request.prompt_tokens, output)

    def _cost(self, request: ChatRequest, completion: reply.Completion, fault: Fault) -> int:
        """Return the tokens that the call takes from the limit."""
        if self.settings.counts == "reserved":
            return request.prompt_tokens + (request.output_cap or UNCAPPED_OUTPUT_TOKENS)
        if fault.status >= 300:
            return 0
        told = fault.usage if isinstance(fault.usage, dict) else {}
        return int(told.get("total_tokens", request.prompt_tokens + completion.completion_tokens))

    def _admit(self, visit: _Visit) -> None:
        refusal = self.admission.take(visit.account, visit.tokens, visit.now)
        if refusal is not None:
            raise shapes.over_limit(refusal, visit.model, visit.account)
        visit.admitted = True

    def _note(self, visit: _Visit) -> None:
        self.log.add(
            Arrival(
                n=visit.n,
                time=visit.now,
                credential=visit.key.id if visit.key else "",
                account=visit.account,
                model=visit.model,
                tokens=visit.tokens,
                prompt_tokens=visit.prompt_tokens,
                sha=visit.sha,
                admitted=visit.admitted,
                in_flight=self.log.in_flight + 1,
                rule=visit.rule,
            )
        )

    def _headers(self, visit: _Visit, answer: Answer) -> dict[str, str]:
        """Return the headers of every reply, under those of this answer."""
        common = {
            "x-request-id": f"req_{visit.n:08d}{visit.sha[:24]}",
            "openai-processing-ms": str(round(answer.wait_s * 1000)),
        }
        if visit.account and self.settings.tell_limits:
            common |= shapes.limit_headers(self.admission.standing(visit.account, visit.now))
        return {**common, **answer.headers}

from __future__ import annotations

import datetime
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from airflow_provider_llmbatch.engine.connection import parse
from airflow_provider_llmbatch.hooks.probe import probe

KEY = "sk-canary-5f1e"
MODELS = {"data": [{"id": "small"}, {"id": "large"}]}


@contextmanager
def serving(
    status: int, body: object, headers: dict[str, str] | None = None, *, tls: str = ""
) -> Iterator[str]:
    """Answer every call alike; a callable body gets the handler."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = body(self) if callable(body) else body
            text = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(text)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://localhost:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def asked(url: str, timeout_s: float = 5.0, **extra: object) -> tuple[bool, str]:
    good, words = probe(parse("llm", host=url, password=KEY, extra=extra), timeout_s)
    assert "canary" not in words
    return good, words


def test_a_service_that_lists_its_models_is_well():
    with serving(200, MODELS) as url:
        assert asked(url) == (True, f"{url} is reachable and lists 2 models.")
        assert asked(url, model="large") == (True, f"{url} is reachable and lists 2 models.")


def test_a_model_that_is_not_listed_is_named():
    with serving(200, MODELS) as url:
        good, words = asked(url, model="huge")
    assert good
    assert "the model 'huge' is not among the 2 it lists" in words


@pytest.mark.parametrize(
    ("status", "good", "words"),
    [
        (401, False, "refuses the API key"),
        (402, False, "asks for payment"),
        (403, False, "does not allow this"),
        (404, True, "is reachable, but lists no models (HTTP 404)"),
        (405, True, "lists no models"),
        (501, True, "lists no models"),
        (429, True, "over a limit or out of credit"),
        (400, False, "answers HTTP 400; look at the base URL"),
        (500, False, "answers HTTP 500; try again later"),
    ],
)
def test_each_status_is_put_into_words(status, good, words):
    with serving(status, {"error": {"message": f"Incorrect API key provided: {KEY}"}}) as url:
        found = asked(url)
    assert found[0] is good
    assert words in found[1]


def test_a_redirect_is_not_followed():
    with serving(308, "", {"Location": "https://elsewhere.example/"}) as url:
        assert asked(url) == (
            False,
            f"{url} redirects elsewhere (HTTP 308); write the final address into the base URL.",
        )


@pytest.mark.parametrize("body", ["<html>", '{"models": []}', "[1]", "null", '{"data": [{"name": "x"}]}'])
def test_an_answer_without_models_points_to_the_base_url(body):
    with serving(200, body, {"Content-Type": "text/html; charset=utf-8"}) as url:
        good, words = asked(url)
    assert not good
    assert "answers, but with text/html and no list of models" in words


def test_every_credential_is_tried_and_the_bad_one_named():
    def by_key(handler: BaseHTTPRequestHandler) -> object:
        seen.append(handler.headers["Authorization"])
        return MODELS

    seen: list[str] = []
    with serving(200, by_key) as url:
        good, words = asked(url, credentials=[{"api_key": "sk-canary-2", "id": "second"}])
    assert good
    assert seen == [f"Bearer {KEY}", "Bearer sk-canary-2"]
    assert "(credential second)" in words


def test_nobody_listening_is_put_into_words():
    with serving(200, MODELS) as url:
        pass
    good, words = asked(url)
    assert not good
    assert "cannot be reached" in words
    assert "look at host, port and scheme" in words


def test_a_service_that_does_not_answer_is_put_into_words():
    release = threading.Event()

    def late(handler: BaseHTTPRequestHandler) -> object:
        release.wait(10)
        return MODELS

    with serving(200, late) as url:
        good, words = asked(url, timeout_s=0.2)
        release.set()
    assert not good
    assert "did not answer within 0.2 s" in words


def test_a_missing_ca_file_is_named():
    good, words = asked("https://localhost:1/v1", ca_file="/nowhere/ca.pem")
    assert not good
    assert "ca_file '/nowhere/ca.pem' cannot be read" in words


def test_a_certificate_is_trusted_through_the_ca_file_only(certificate):
    with serving(200, MODELS, tls=certificate) as url:
        good, words = asked(url)
        assert not good
        assert "name the CA's PEM file in the extra field ca_file" in words
        assert asked(url, ca_file=certificate)[0]


def test_a_proxy_that_is_away_is_named_without_its_password():
    good, words = asked("http://llm.example/v1", proxy="http://me:pw-canary@127.0.0.1:1")
    assert not good
    assert "cannot be reached" in words


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> str:
    """Return a PEM file with the key and certificate of ``localhost``."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "localhost.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return str(path)

"""A relay to a simulator over TLS that takes its time to shake hands."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@contextmanager
def slow_tls(url: str, folder: Path, seconds: float) -> Iterator[tuple[str, str]]:
    """Relay to ``url``; yield the new URL and the file with the certificate to trust."""
    certificate = _self_signed(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    parts = urlsplit(url)
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        port = listener.getsockname()[1]
        address = (str(parts.hostname), int(parts.port or 80))
        threading.Thread(target=_accept, args=(listener, context, address, seconds), daemon=True).start()
        yield f"https://127.0.0.1:{port}{parts.path}", str(certificate)
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, context: ssl.SSLContext, to: tuple[str, int], seconds: float) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_serve, args=(client, context, to, seconds), daemon=True).start()


def _serve(client: socket.socket, context: ssl.SSLContext, to: tuple[str, int], seconds: float) -> None:
    time.sleep(seconds)
    with (
        contextlib.suppress(OSError),
        socket.create_connection(to) as server,
        context.wrap_socket(client, server_side=True) as tls,
    ):
        server.settimeout(0.05)
        # HTTP takes turns, so that one thread is enough for both ways.
        while request := tls.recv(65536):
            server.sendall(request)
            with contextlib.suppress(TimeoutError):
                while reply := server.recv(65536):
                    tls.sendall(reply)


def _self_signed(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(alternative, critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
    return path

"""A statsd server on loopback, and an exporter that obeys the rules of a mapping file as documented."""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

MAPPING = Path(__file__).parents[3] / "docker" / "statsd-mapping.yml"

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z0-9_.-]+):(?P<value>-?[0-9.]+)\|(?P<kind>c|g|ms)")
_KINDS = {"c": "counter", "g": "gauge", "ms": "observer"}
_REFERENCE = re.compile(r"\$\{?(\d+)\}?")


@dataclass(frozen=True)
class Sample:
    name: str
    value: float
    kind: str


class StatsdServer:
    """Takes datagrams until it is left, and keeps their samples; a malformed one is an error."""

    def __enter__(self) -> StatsdServer:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.datagrams: list[str] = []
        self.samples: list[Sample] = []
        #: is told of each datagram as it comes
        self.on_datagram: Callable[[str], object] = lambda text: None
        self._thread = threading.Thread(target=self._receive)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Datagrams on loopback arrive in order, so everything that was sent before is there.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join()
        self._socket.close()
        for datagram in self.datagrams:
            self.samples.extend(self._read(line) for line in datagram.split("\n"))

    def _receive(self) -> None:
        while content := self._socket.recv(65536):
            self.datagrams.append(content.decode("utf-8"))
            self.on_datagram(self.datagrams[-1])

    @staticmethod
    def _read(line: str) -> Sample:
        found = _SAMPLE.fullmatch(line)
        assert found, f"no statsd line: {line!r}"
        return Sample(found["name"], float(found["value"]), _KINDS[found["kind"]])

    def counters(self) -> Counter[str]:
        """Return what each counter adds up to."""
        added: Counter[str] = Counter()
        for sample in self.samples:
            if sample.kind == "counter":
                added[sample.name] += int(sample.value)
        return added


Labels = frozenset[tuple[str, str]]


class Exporter:
    """
    Gives samples names and labels by the first rule that matches, and adds them up, as statsd_exporter does.

    Only what the shipped mapping uses is known: rules by regular expression, types, scales and histograms.
    """

    def __init__(self, mapping: Path = MAPPING) -> None:
        content = yaml.safe_load(mapping.read_text(encoding="utf-8"))
        self.defaults: Mapping[str, Any] = content["defaults"]
        self.rules: list[Mapping[str, Any]] = content["mappings"]
        self.series: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
        self.seconds: defaultdict[str, defaultdict[Labels, list[float]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self.unmapped: list[Sample] = []

    def take(self, samples: Iterable[Sample]) -> Exporter:
        for sample in samples:
            rule, found = self._rule(sample)
            if rule is None or found is None:
                self.unmapped.append(sample)
                continue
            labels = frozenset((key, _filled(str(text), found)) for key, text in rule["labels"].items())
            value, series = sample.value * rule.get("scale", 1.0), self.series[rule["name"]]
            if sample.kind == "observer":
                # Timers are read as milliseconds and shown as seconds.
                self.seconds[rule["name"]][labels].append(value / 1000)
            elif sample.kind == "gauge":
                series[labels] = value
            else:
                series[labels] = series.get(labels, 0.0) + value
        return self

    def of(self, name: str, **labels: str) -> float:
        """Return a counter's or gauge's value."""
        return self.series[name][frozenset(labels.items())]

    def bucket(self, name: str, le: float, **labels: str) -> int:
        """Return how many observations do not exceed a bound of the histogram."""
        assert le in self.defaults["histogram_options"]["buckets"]
        return sum(seconds <= le for seconds in self.seconds[name][frozenset(labels.items())])

    def _rule(self, sample: Sample) -> tuple[Mapping[str, Any] | None, re.Match[str] | None]:
        for rule in self.rules:
            found = re.search(rule["match"], sample.name)
            if found and rule["match_metric_type"] == sample.kind:
                return rule, found
        return None, None


def _filled(text: str, found: re.Match[str]) -> str:
    return _REFERENCE.sub(lambda reference: found[int(reference[1])], text)

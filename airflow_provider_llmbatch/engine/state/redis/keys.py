"""Names of the keys: versioned, and with one hash tag for all that one step touches."""

from __future__ import annotations

#: Old and new workers share a server; what they cannot share has another version.
VERSION = "llmbatch:v1"


class Keys:
    """
    The keys of a domain.

    :param domain: everything of one take; a team's unless it is named.
    """

    def __init__(self, domain: str) -> None:
        self._prefix = f"{VERSION}:{{{domain}}}"
        self.epoch = f"{self._prefix}:epoch"
        #: names of all gates that were heard of lately, or parked
        self.gates = f"{self._prefix}:gates"
        #: endpoints that the routes of runs lead to, by when one last said so
        self.offered = f"{self._prefix}:offered"
        #: endpoints that people have fixed the route at; kept until they take the pin away
        self.pins = f"{self._prefix}:pins"

    def fence(self, owner: str) -> str:
        """Number of an owner's try, and the throttles that it has taken under."""
        return f"{self._prefix}:fence:{owner}"

    def throttle(self, name: str) -> str:
        """Not-before and factor of an account and model."""
        return f"{self._prefix}:throttle:{name}"

    def leases(self, throttle: str) -> str:
        """Calls in flight, by when their lease ends."""
        return f"{self._prefix}:leases:{throttle}"

    def lease_data(self, throttle: str, owner: str) -> str:
        """What each call of an owner has reserved that is not settled yet."""
        return f"{self._prefix}:lease-data:{throttle}:{owner}"

    def queue(self, name: str) -> str:
        """Who waits for a limit, by turn."""
        return f"{self._prefix}:queue:{name}"

    def turns(self, name: str) -> str:
        """By when each of them has to come back."""
        return f"{self._prefix}:turns:{name}"

    def meter(self, name: str) -> str:
        """One limit or budget."""
        return f"{self._prefix}:meter:{name}"

    def gate(self, name: str) -> str:
        """Health of a credential or an endpoint."""
        return f"{self._prefix}:gate:{name}"

    def open(self, name: str) -> str:
        """What calls in flight hold of a budget."""
        return f"{self._prefix}:open:{name}"


def standing(owner: str) -> str:
    """Return the key of how far a run is."""
    return f"{VERSION}:standing:{{{owner}}}"


def latencies(endpoint: str, slot: int) -> str:
    """Return the key of how long an endpoint's calls took in a stretch of time."""
    return f"{VERSION}:latencies:{{{endpoint}}}:{slot}"


def latency_spans(endpoint: str) -> str:
    """Return the key of the spans, in seconds, that an endpoint's latencies are kept for."""
    return f"{VERSION}:latency-spans:{{{endpoint}}}"

"""How a model is trained, as a whole and branch by branch. Standard library only."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_llmbatch.engine.fusion.schema import Kind, ModalitySpec, Schema
from airflow_provider_llmbatch.errors import ConfigurationError

#: Number types of a branch.
DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPolicy:
    """How one branch is trained: an encoder and the projection behind it."""

    #: number type of the encoder; that of the plan when None
    dtype: str | None = None
    #: whether what lies between the layers is computed again when it is needed, not kept; on a GPU when None
    checkpoint: bool | None = None
    #: whether the encoder stays as it is; its projection is trained all the same
    frozen: bool = False
    #: longest gradient of the branch (Euclidean norm); a longer one is shortened to this
    clip: float = 1.0
    #: of the encoder; the run's when None
    learning_rate: float | None = None
    #: share of the encoder's channels, from 0 to 0.5, that are removed before the second half of the epochs
    prune: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the policy as JSON values."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How long and how fast a model is trained."""

    #: times that each record is seen with encoders as they are, before those that are not frozen are trained
    head_epochs: int = 20
    #: times that each record is seen while encoders are trained; 0 trains none
    epochs: int = 10
    #: of encoders at the beginning; it falls to 0 along half a cosine
    learning_rate: float = 1e-4
    #: of projections and fusion, likewise; a tenth of it while encoders are trained
    head_learning_rate: float = 3e-3
    #: share of the modalities of a record that are hidden in the second of two looks at it; never all of them
    modality_dropout: float = 0.5
    #: standard deviation of the noise on what encoders give, in that of the records before training; without
    #: it few records are learned by heart
    noise: float = 2.0
    #: steps between two checkpoints, besides the one after each epoch; 0: none besides
    checkpoint_steps: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return how it is trained as JSON values."""
        return dataclasses.asdict(self)


#: Most of the channels of an encoder that can be removed at once: of a layer with two channels for each group
#: of its norm, more would leave none.
MOST_PRUNED = 0.5
#: Kinds of modalities whose encoders can be pruned: those of pictures.
PRUNABLE: tuple[Kind, ...] = ("ct", "wsi")
#: What is trained unless a policy says otherwise: a text model knows its words already.
_FROZEN: frozenset[Kind] = frozenset({"note"})
_TYPES: Mapping[str, tuple[type, ...]] = {
    "dtype": (str,),
    "checkpoint": (bool,),
    "frozen": (bool,),
    "clip": (int, float),
    "learning_rate": (int, float),
    "prune": (int, float),
}


def read_policies(value: Any, schema: Schema) -> dict[str, BranchPolicy]:
    """
    Read policies, ``{modality: {name: value}}``; every modality of the schema gets one.

    :raises ConfigurationError: naming the modality, the field, its value and what it can be.
    """
    if not isinstance(value, Mapping):
        raise ConfigurationError("policies is no mapping; give {modality: {'frozen': True}}, for instance.")
    if unknown := sorted(str(name) for name in value if name not in schema.names):
        raise ConfigurationError(
            f"policies names {', '.join(unknown)}; the schema has {', '.join(schema.names)}."
        )
    return {
        spec.name: _policy(spec, value.get(spec.name, {}), BranchPolicy(frozen=spec.kind in _FROZEN))
        for spec in schema
    }


def _policy(spec: ModalitySpec, given: Any, usual: BranchPolicy) -> BranchPolicy:
    if isinstance(given, BranchPolicy):
        return given
    where = f"policies, modality {spec.name!r}"
    if not isinstance(given, Mapping) or not set(given) <= set(_TYPES):
        raise ConfigurationError(f"{where}: give a mapping of {', '.join(_TYPES)}.")
    for field, found in given.items():
        optional = getattr(BranchPolicy(), field) is None and found is None
        if not optional and (
            not isinstance(found, _TYPES[field]) or (isinstance(found, bool) and _TYPES[field] != (bool,))
        ):
            raise ConfigurationError(f"{where}: {field} is {found!r}; give a {_TYPES[field][-1].__name__}.")
    policy = dataclasses.replace(usual, **given)
    _check(where, policy, spec.kind)
    return policy


def _check(where: str, policy: BranchPolicy, kind: Kind) -> None:
    if policy.dtype is not None and policy.dtype not in DTYPES:
        raise ConfigurationError(f"{where}: dtype is {policy.dtype!r}; set it to one of {', '.join(DTYPES)}.")
    for field in ("clip", "learning_rate"):
        found = getattr(policy, field)
        if found is not None and not 0 < found < math.inf:
            raise ConfigurationError(f"{where}: {field} is {found!r}; give a number above 0.")
    if not 0 <= policy.prune <= MOST_PRUNED:
        raise ConfigurationError(
            f"{where}: prune is {policy.prune!r}; give a share from 0 to {MOST_PRUNED:g}."
        )
    if policy.prune and (policy.frozen or kind not in PRUNABLE):
        raise ConfigurationError(
            f"{where}: prune is {policy.prune!r}; only encoders of {' and '.join(PRUNABLE)} that are not "
            "frozen can be pruned. Leave it out."
        )


def read_training(value: Any) -> Training:
    """
    Read how a model is trained, ``{name: value}``.

    :raises ConfigurationError: naming the field, its value and what it can be.
    """
    known = [each.name for each in dataclasses.fields(Training)]
    if isinstance(value, Training):
        training = value
    elif isinstance(value, Mapping) and set(value) <= set(known):
        training = Training(**value)
    else:
        raise ConfigurationError(f"training is {value!r}; give a mapping of {', '.join(known)}.")
    _check_training(training)
    return training


def _check_training(training: Training) -> None:
    for name, least in (("head_epochs", 0), ("epochs", 0), ("checkpoint_steps", 0)):
        found = getattr(training, name)
        if not isinstance(found, int) or isinstance(found, bool) or found < least:
            raise ConfigurationError(f"{name} is {found!r}; give a whole number from {least}.")
    if not training.head_epochs and not training.epochs:
        raise ConfigurationError("head_epochs and epochs are both 0; give one of them, such as epochs=10.")
    for name in ("learning_rate", "head_learning_rate"):
        rate: Any = getattr(training, name)
        if not isinstance(rate, int | float) or not 0 < rate < math.inf:
            raise ConfigurationError(f"{name} is {rate!r}; give a number above 0, such as 0.001.")
    noise: Any = training.noise
    if not isinstance(noise, int | float) or not 0 <= noise < math.inf:
        raise ConfigurationError(f"noise is {noise!r}; give a number from 0, such as 2.")
    dropout: Any = training.modality_dropout
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise ConfigurationError(f"modality_dropout is {dropout!r}; give a share from 0 to below 1.")

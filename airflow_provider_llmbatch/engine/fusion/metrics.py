"""How good scores are, by scikit-learn: order, probabilities, calibration, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airflow_provider_llmbatch.engine.fusion.errors import missing_library

try:
    from sklearn.metrics import brier_score_loss, roc_auc_score
except ImportError as error:
    raise missing_library("scikit-learn", "fusion-evaluate") from error

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

#: Bins of equal width in the table of calibration.
BINS = 10
#: Records that are drawn anew to see how much a figure depends on them, and the share of it that is told.
RESAMPLES, INSIDE = 400, 0.95
_LEAST = 1e-7


def measured(said: Floats, truth: Whole, *, seed: int = 0, resamples: int = RESAMPLES) -> dict[str, Any]:
    """
    Return AUROC and log loss with intervals (bootstrap over records, percentiles), Brier score and ECE.

    :param said: (records, classes) probabilities.
    :param truth: (records,) which class.
    :return: JSON values; AUROC is None where only one class is there. With more than two classes it is the
        mean of each class against the others.
    """
    losses = -np.log(said[np.arange(len(truth)), truth].clip(_LEAST))
    draws = np.random.default_rng(seed).integers(0, len(truth), (resamples, len(truth)))
    area = auroc(said, truth)
    areas = [] if area is None else [auroc(said[draw], truth[draw]) for draw in draws]
    rows = reliability(said, truth)
    return {
        "records": len(truth),
        "auroc": area,
        "auroc_interval": _inside([each for each in areas if each is not None]),
        "log_loss": float(losses.mean()),
        "log_loss_interval": _inside(losses[draws].mean(axis=1).tolist()),
        "brier": float(brier_score_loss(truth, said, labels=np.arange(said.shape[1]), scale_by_half=False)),
        "ece": sum(row["records"] * abs(row["said"] - row["true"]) for row in rows) / len(truth),
    }


def auroc(said: Floats, truth: Whole) -> float | None:
    """Return the chance that a record of a class scores above one of another; None where one is lacking."""
    classes = said.shape[1]
    if len(np.unique(truth)) < classes:
        return None
    if classes == 2:
        return float(roc_auc_score(truth, said[:, 1]))
    return float(roc_auc_score(truth, said, multi_class="ovr", average="macro"))


def reliability(said: Floats, truth: Whole, *, bins: int = BINS) -> list[dict[str, Any]]:
    """
    Return, for each bin of probabilities that has records, what was said on average and what was true.

    With two classes the probability is that of the second, with more that of the class that was said. The
    expected calibration error (Naeini, Cooper and Hauskrecht, 2015) is the mean of their differences,
    weighted by records.
    """
    if said.shape[1] == 2:
        values, true = said[:, 1], truth == 1
    else:
        values, true = said.max(axis=1), said.argmax(axis=1) == truth
    place = np.minimum((values * bins).astype(int), bins - 1)
    return [
        {
            "from": number / bins,
            "to": (number + 1) / bins,
            "records": int(inside.sum()),
            "said": float(values[inside].mean()),
            "true": float(true[inside].mean()),
        }
        for number in range(bins)
        if (inside := place == number).any()
    ]


def mean_of(
    draws: list[tuple[Floats, Whole]], figure: Callable[[Floats, Whole], float | None]
) -> float | None:
    """Return the mean of a figure over draws, None where it is None for one."""
    found = [figure(said, truth) for said, truth in draws]
    values = [value for value in found if value is not None]
    return float(np.mean(values)) if len(values) == len(found) else None


def log_loss(said: Floats, truth: Whole) -> float:
    """Return the mean of -ln of the probability that was given to what is true."""
    return float(-np.log(said[np.arange(len(truth)), truth].clip(_LEAST)).mean())


def _inside(values: list[float]) -> list[float] | None:
    """Return the bounds of the middle share of values."""
    if not values:
        return None
    edge = 100 * (1 - INSIDE) / 2
    low, high = np.percentile(values, [edge, 100 - edge])
    return [float(low), float(high)]

"""Mode ``train``: from a source with labels, whose windows are stored, to a model in a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from airflow_provider_llmbatch.engine.fusion.checkpoint import Checkpoints
from airflow_provider_llmbatch.engine.fusion.examples import (
    Examples,
    Labelled,
    Load,
    Vectors,
    loader,
    read_labelled,
)
from airflow_provider_llmbatch.engine.fusion.graph import FusionGraph, prepare
from airflow_provider_llmbatch.engine.fusion.hardware import Plan
from airflow_provider_llmbatch.engine.fusion.looks import How
from airflow_provider_llmbatch.engine.fusion.loops import Emit
from airflow_provider_llmbatch.engine.fusion.model import classes_of, digest, fresh, save_model, targets_of
from airflow_provider_llmbatch.engine.fusion.opening import Opened
from airflow_provider_llmbatch.engine.fusion.prune import prune
from airflow_provider_llmbatch.engine.fusion.renew import encode_all
from airflow_provider_llmbatch.engine.fusion.spec import Spec
from airflow_provider_llmbatch.engine.fusion.team import Team
from airflow_provider_llmbatch.engine.fusion.train import Course, Trainer
from airflow_provider_llmbatch.engine.locations import is_local
from airflow_provider_llmbatch.errors import ConfigurationError

#: Folder of the model below that of the run, unless the spec names another.
_MODEL = "model"
#: What the folders of checkpoints of a stage begin with.
_FOLDERS = {
    **{"head": "head-", "encoders": "ckpt-"},
    **{"pruned-head": "pruned-head-", "pruned-encoders": "pruned-ckpt-"},
}
#: Epochs whose losses are told, the last ones.
_TOLD = 20


def train(opened: Opened, windows: int, emit: Emit) -> dict[str, Any]:
    """
    Train a model, store it, and return what the manifest says of it.

    :param windows: how many are stored.
    :raises InputError: when labels are missing or all alike, or a file changed meanwhile.
    :raises ConfigurationError: when there is no place on a disk for the model.
    """
    spec, folder = opened.spec, _folder(opened)
    labelled = read_labelled(opened, windows)
    classes = classes_of(labelled.labels)
    outputs = 1 if len(classes) == 2 else len(classes)
    graph = prepare(fresh(spec.schema, seed=spec.seed, outputs=outputs), opened.plan)
    trained = [name for name in spec.schema.names if not spec.policies[name].frozen]
    vectors, done = labelled.vectors, dict[str, dict[str, Any]]()
    for name, how in stages(spec, opened.plan):
        if how.prune:
            load = loader(labelled.records, opened.pipeline.examiner, trained, opened.plan.decoders)
            vectors = {**vectors, **pruned(graph, load, len(labelled.records), how, opened.team)}
        examples = _examples(opened, labelled, vectors, classes, how)
        done[name] = _stage(opened, graph, examples, how, name, emit)
    metrics = {
        "classes": len(classes),
        "labelled": len(labelled.records),
        "unlabelled": labelled.unlabelled,
        **done.popitem()[1],
        **done,
    }
    about = {**metrics, "classes": classes}
    if opened.team.leads:
        save_model(graph.cpu(), folder, about, trained=trained)
    return {"model": str(folder), "model_digest": digest(graph), "metrics": metrics}


def stages(spec: Spec, plan: Plan) -> list[tuple[str, How]]:
    """
    Return what is trained one after the other, by name.

    First projections and fusion alone, on vectors that are there already; then the encoders that are not
    frozen with them, slower. Encoders that follow a fusion which knows nothing yet lose what they know
    (Kumar, Raghunathan, Jones, Ma and Liang, 2022). Where encoders lose channels, it is in the middle of the
    second, and both are gone through again: to what reads them they are other encoders then.
    """
    training, policies = spec.training, spec.policies
    stage = partial(How, plan=plan, training=training, batch=plan.batch, seed=spec.seed)
    frozen = {name: replace(policy, frozen=True, prune=0.0) for name, policy in policies.items()}
    rate = training.head_learning_rate
    trains = training.epochs > 0 and not all(policy.frozen for policy in policies.values())
    found = []
    if training.head_epochs or not trains:
        found.append(("head", stage(policies=frozen, epochs=training.head_epochs, head_rate=rate)))
    shares = {name: policy.prune for name, policy in policies.items() if policy.prune}
    first = training.epochs // 2 if shares else training.epochs
    if trains and first:
        found.append(("encoders", stage(policies=policies, epochs=first, head_rate=rate / 10)))
    if trains and shares:
        anew, rest = max(1, training.head_epochs), training.epochs - first
        found.append(("pruned-head", stage(policies=frozen, epochs=anew, head_rate=rate, prune=shares)))
        found.append(("pruned-encoders", stage(policies=policies, epochs=rest, head_rate=rate / 10)))
    return found


def pruned(graph: FusionGraph, load: Load, count: int, how: How, team: Team) -> dict[str, Vectors]:
    """
    Take out the channels that a stage begins without, and return the vectors of what is left.

    :param load: decodes the modalities that the run trains.
    :param count: how many examples there are.
    """
    for name, share in how.prune.items():
        prune(graph, name, share)
    prepare(graph, how.plan)
    return encode_all(graph, load, count, how.plan, team)


def _stage(
    opened: Opened, graph: FusionGraph, examples: Examples, how: How, name: str, emit: Emit
) -> dict[str, Any]:
    """Train a graph in place, and return what is to be said of it."""
    checkpoints = Checkpoints(opened.store, _FOLDERS[name])
    with opened.team.one_first():
        if opened.spec.on_existing == "restart" and opened.team.leads:
            checkpoints.clear()
    trainer = Trainer(graph, examples, how, team=opened.team)
    course = trainer.run(_teller(opened, checkpoints, emit), checkpoints)
    return {
        "steps": course.step,
        "best_step": course.best_step,
        "held_out_loss": round(course.best_loss or 0.0, 6),
        "skipped_steps": dict(trainer.skipped),
        "non_finite": dict(course.non_finite),
        "damaged_checkpoints": list(checkpoints.damaged),
        "losses": course.losses[-_TOLD:],
    }


def _folder(opened: Opened) -> Path:
    """Return where the model is written to."""
    if opened.spec.model:
        return Path(opened.spec.model)
    if not is_local(opened.store.uri):
        raise ConfigurationError(
            f"model is not set, and the results are at {opened.store.uri}; name a folder on a disk as model."
        )
    return Path(opened.store.uri.rpartition("://")[2]) / _MODEL


def _examples(
    opened: Opened, labelled: Labelled, vectors: dict[str, Vectors], classes: list[Any], how: How
) -> Examples:
    trained = [name for name in opened.spec.schema.names if not how.policies[name].frozen]
    return Examples(
        targets=targets_of(labelled.labels, classes),
        vectors=vectors,
        load=loader(labelled.records, opened.pipeline.examiner, trained, opened.plan.decoders),
    )


def _teller(opened: Opened, checkpoints: Checkpoints, emit: Emit) -> Callable[[Course, int], None]:
    """Return what tells how far a training is, at most every two seconds."""
    clocks, told = opened.clocks, {"at": opened.clocks.now(), "damaged": 0.0}
    began: dict[str, float] = {}

    def tell(course: Course, total: int) -> None:
        if not began:
            began.update(at=clocks.now(), step=course.step)
            for step in checkpoints.damaged:
                emit({"event": "checkpoint_damaged", "step": step, "from_step": course.step - 1})
        now = clocks.now()
        if now - told["at"] < 2.0 and course.step < total:
            return
        told["at"] = now
        rate = (course.step - began["step"]) / max(now - began["at"], 1e-6)
        loss = course.losses[-1][1] if course.losses else None
        emit(
            {
                "event": "training",
                "step": course.step,
                "total": total,
                "held_out_loss": loss,
                "eta_s": round((total - course.step) / rate, 1) if rate else None,
            }
        )

    return tell

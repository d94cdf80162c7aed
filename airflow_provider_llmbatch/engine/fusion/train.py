"""
The loop of a training: each batch is encoded once and looked at twice, whole and with modalities hidden.

A step is: gradients, an exchange of them with other processes where there are any, then every branch steps by
itself. What is drawn depends on the seed and the step alone, so on a CPU a training that was killed ends with
the same weights, to the byte, as one that was not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor

from airflow_provider_llmbatch.engine.fusion.calibrate import scales_of
from airflow_provider_llmbatch.engine.fusion.checkpoint import Checkpoint, Checkpoints
from airflow_provider_llmbatch.engine.fusion.encoders.recompute import set_recompute
from airflow_provider_llmbatch.engine.fusion.examples import Arrays, Examples
from airflow_provider_llmbatch.engine.fusion.graph import FusionGraph, Projection, Tokens
from airflow_provider_llmbatch.engine.fusion.looks import How, Looks, training_dtypes
from airflow_provider_llmbatch.engine.fusion.precision import FUSION, BranchOptimizers
from airflow_provider_llmbatch.engine.fusion.team import Team

#: One example of so many is held out; the weights that do best on these are kept.
HELD_OUT = 5
#: Draws of hidden modalities that they are looked at with.
_DRAWS = 8
#: Parts of a checkpoint beside the branches; no modality can be called so.
_OPTIMIZERS, _CHANCE = "optimizer-states", "chance-state"


@dataclass(slots=True, kw_only=True)
class Course:
    """How far a training is, and how it went; JSON values."""

    step: int = 0
    best_step: int | None = None
    best_loss: float | None = None
    #: of each epoch: mean loss of its steps, and loss on what is held out
    losses: list[tuple[float, float]] = field(default_factory=list)
    #: by modality: rows whose vectors were not finite
    non_finite: dict[str, int] = field(default_factory=dict)
    #: of the steps of this epoch
    sum: float = 0.0


class Trainer:
    """
    Trains a graph in place.

    :param graph: with its weights as they are at the beginning, on the plan's device.
    :param examples: what it learns from.
    :param team: who trains it together, each on its share of every step's examples; None for one process.
    """

    def __init__(self, graph: FusionGraph, examples: Examples, how: How, *, team: Team | None = None) -> None:
        self._graph, self._examples, self._how = graph, examples, how
        self._team = team or Team()
        self._device = torch.device(how.plan.device)
        self._looks = Looks(graph, examples, how, self._team)
        every = torch.arange(len(examples))
        held = every % HELD_OUT == HELD_OUT - 1
        self._seen, self._held = every[~held], every[held] if held.any() else every
        self._per_epoch = math.ceil(len(self._seen) / how.batch)
        self._total = how.epochs * self._per_epoch
        self._chance = torch.Generator().manual_seed(how.seed)
        self._best: dict[str, Tensor] = {}
        self.course = Course()
        graph.fusion.scales.fill_(1.0)
        self._standardise()
        self._ready()

    def run(self, tell: Callable[[Course, int], None], checkpoints: Checkpoints | None = None) -> Course:
        """
        Train to the end, and leave the best weights in the graph, be they those of the beginning.

        :param tell: takes the course and the number of all steps, after each step.
        :param checkpoints: where to begin from and what to store; None stores nothing.
        """
        if checkpoints is not None and (found := checkpoints.newest()) is not None:
            self._resume(found, checkpoints)
        if self.course.best_step is None and not self.course.step:
            self._judge()
            if checkpoints is not None:
                self._store(checkpoints)
        every = self._how.training.checkpoint_steps
        while self.course.step < self._total:
            for _ in self._epoch():
                tell(self.course, self._total)
                at_end = self.course.step % self._per_epoch == 0
                if every and checkpoints and self.course.step % every == 0 and not at_end:
                    self._store(checkpoints)
            self._judge()
            if checkpoints is not None:
                self._store(checkpoints)
        self._graph.load_state_dict(self._best, strict=False)
        self._calibrate()
        return self.course

    def step(self, chosen: Tensor, arrays: Sequence[Arrays]) -> float:
        """
        Take one step on some examples, and return their loss.

        :param chosen: those of all processes.
        :param arrays: of those that are this one's, what is encoded anew.
        """
        read = self._looks.tokens(chosen, arrays, self._chance if self._how.training.noise else None)
        loss = self._looks.loss(read, read.present, chosen)
        if share := self._how.training.modality_dropout:
            hidden = self._looks.hidden(read.present, share, self._chance, len(chosen))
            loss = (loss + self._looks.loss(read, hidden, chosen)) / 2
        self._optimizers.backward(loss)
        self._team.exchange(self._optimizers.parameters())
        done = self.course.step / self._total
        self._optimizers.step(0.5 * (1 + math.cos(math.pi * done)), without=self._looks.broken)
        for name, count in self._looks.broken.items():
            self.course.non_finite[name] = self.course.non_finite.get(name, 0) + count
        self.course.step += 1
        return float(self._team.total(loss))

    @property
    def skipped(self) -> Mapping[str, int]:
        """By branch, the steps that were not taken because gradients were not finite."""
        return self._optimizers.skipped

    def _epoch(self) -> Iterator[None]:
        """Take the steps that are left of an epoch."""
        epoch, within = divmod(self.course.step, self._per_epoch)
        if not within:
            self.course.sum = 0.0
        order = torch.Generator().manual_seed(self._how.seed * 1_000_003 + epoch)
        mixed = self._seen[torch.randperm(len(self._seen), generator=order)]
        batches = mixed.split(self._how.batch)[within:]
        self._graph.train()
        for chosen, arrays in zip(batches, self._load(batches), strict=True):
            self.course.sum += self.step(chosen, arrays)
            yield

    def _load(self, batches: Sequence[Tensor]) -> Iterator[list[Arrays]]:
        """Decode, of each batch, the examples that are this process's."""
        return self._examples.load([batch[self._team.share(len(batch))].tolist() for batch in batches])

    def _held_out(self) -> Iterator[tuple[Tensor, Tokens, list[Tensor]]]:
        """Yield what is held out, and which modalities are there in several looks at it: all, and half."""
        chance = torch.Generator().manual_seed(0)
        self._graph.eval()
        batches = self._held.split(self._how.batch)
        for chosen, arrays in zip(batches, self._load(batches), strict=True):
            read = self._looks.tokens(chosen, arrays)
            hidden = (self._looks.hidden(read.present, 0.5, chance, len(chosen)) for _ in range(_DRAWS))
            yield chosen, read, [read.present, *hidden]

    def _judge(self) -> None:
        """Look at what is held out, and keep the best weights."""
        total = 0.0
        with torch.no_grad():
            for chosen, read, looks in self._held_out():
                losses = [self._looks.loss(read, present, chosen) for present in looks]
                found = self._team.total(torch.stack(losses)).tolist()
                total += len(chosen) * sum(found) / len(found)
        now = total / len(self._held)
        self.course.losses.append((round(self.course.sum / self._per_epoch, 6), round(now, 6)))
        if self.course.best_loss is None or now < self.course.best_loss:
            self.course.best_loss, self.course.best_step = now, self.course.step
            self._best = {name: value.clone() for name, value in self._own().items()}

    def _standardise(self) -> None:
        for name, found in self._examples.vectors.items():
            values, _ = found.of(self._seen)
            projection = self._graph.projections[name]
            assert isinstance(projection, Projection)
            if len(values):
                projection.standardise(values.to(self._device))

    def _calibrate(self) -> None:
        """Scale the outputs to what is held out."""
        seen: list[list[tuple[Tensor, Tensor, Tensor]]] = [[] for _ in range(1 + _DRAWS)]
        with torch.no_grad():
            for chosen, read, looks in self._held_out():
                targets = self._examples.targets[chosen[self._team.share(len(chosen))]]
                for number, present in enumerate(looks):
                    outputs = self._graph.read(read.values, present)[1].cpu()
                    seen[number].append((outputs, targets, present.sum(dim=1).cpu()))
        whole = [self._joined(parts) for parts in seen]
        scales = scales_of(whole, len(self._graph.schema))
        self._graph.fusion.scales.copy_(scales)

    def _joined(self, parts: Sequence[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the parts one behind the other, those of all processes."""
        own = (torch.cat([part[place] for part in parts]) for place in range(3))
        outputs, targets, counts = (self._team.gather(each) for each in own)
        return outputs, targets, counts

    def _ready(self) -> None:
        """Make the optimizers, and say of each encoder how it computes."""
        policies, graph = self._how.policies, self._graph
        graph.dtypes = training_dtypes(graph.schema, self._how)
        for name, policy in policies.items():
            on_gpu = self._device.type == "cuda"
            set_recompute(graph.encoders[name], on_gpu if policy.checkpoint is None else policy.checkpoint)
        self._optimizers = BranchOptimizers(
            dict(graph.encoders.items()),
            dict(graph.projections.items()),
            graph.fusion,
            policies=policies,
            learning_rate=self._how.training.learning_rate,
            head_rate=self._how.head_rate,
            scaled=any(graph.dtypes[n] == "float16" for n, policy in policies.items() if not policy.frozen),
            device=self._device.type,
        )

    def _own(self) -> dict[str, Tensor]:
        """Return the weights that change, by name."""
        frozen = tuple(f"encoders.{name}." for name, policy in self._how.policies.items() if policy.frozen)
        return {n: value for n, value in self._graph.state_dict().items() if not n.startswith(frozen)}

    def _store(self, checkpoints: Checkpoints) -> None:
        if not self._team.leads:
            return
        tensors: dict[str, dict[str, Tensor]] = {}
        for name, value in self._own().items():
            kind, _, rest = name.partition(".")
            part = FUSION if kind == "fusion" else rest.partition(".")[0]
            tensors.setdefault(part, {})[name] = value
        states, numbers = self._optimizers.state()
        tensors[_OPTIMIZERS] = states
        tensors[_CHANCE] = {"state": self._chance.get_state()}
        facts = {**asdict(self.course), "optimizers": numbers}
        checkpoints.put(self.course.step, tensors, facts)

    def _resume(self, found: Checkpoint, checkpoints: Checkpoints) -> None:
        facts = dict(found.facts)
        numbers = facts.pop("optimizers")
        self._graph.load_state_dict(_weights(found), strict=False)
        self._optimizers.load(found.tensors[_OPTIMIZERS], numbers)
        self._chance.set_state(found.tensors[_CHANCE]["state"])
        self.course = Course(**facts)
        best = self.course.best_step
        if best is not None:
            held = found if best == found.step else checkpoints.get(best)
            assert held is not None
            self._best = _weights(held)


def _weights(found: Checkpoint) -> dict[str, Tensor]:
    return {
        name: value
        for part, values in found.tensors.items()
        if part not in (_OPTIMIZERS, _CHANCE)
        for name, value in values.items()
    }

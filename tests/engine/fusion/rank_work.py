"""What the processes of test_dist.py do: one program, started as each of them; results go into files."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).parents[3]))

import torch
from safetensors.torch import save_file

from airflow_provider_llmbatch.engine.fusion.dist import (
    ExchangeError,
    Group,
    LostError,
    add_gradients,
    all_to_all_v,
    gather_v,
    joined,
)
from airflow_provider_llmbatch.engine.fusion.encoders.wsi2d import Wsi2d
from airflow_provider_llmbatch.engine.fusion.graph import FusionGraph
from airflow_provider_llmbatch.engine.fusion.model import fresh
from airflow_provider_llmbatch.engine.fusion.schema import read_schema
from airflow_provider_llmbatch.engine.fusion.spread import spread_bags, spread_encode
from airflow_provider_llmbatch.engine.fusion.team import Team
from airflow_provider_llmbatch.engine.fusion.train import Trainer
from tests.engine.fusion.counting import PLAIN, batch_of, made_up
from tests.engine.fusion.tiny import RARE, examples_of, fresh_tiny, how, tiny_schema

SCHEMA = read_schema(
    {
        "ct": {"kind": "ct", "shape": [16, 16, 16], "spacing_mm": [8, 9, 9]},
        "wsi": {"kind": "wsi", "patch_px": 32, "max_patches": 8},
        "facts": {"kind": "facts"},
    }
)
#: By case, what the records of each process have, as bits of the schema.
CASES = {
    "uneven": (("111", "111", "011", "110"), ("001", "100")),
    "one_lacks_slides": (("111", "010"), ("101", "100")),
    "one_lacks_both": (("111", "110"), ("001",)),
    "one_has_nothing": (("111", "011"), ()),
}
#: Patches of each bag of each process, also none.
BAGS = ((5, 0, 9), (0, 1))


def records_of(case: str) -> list[list[dict[str, Any]]]:
    """Return the records of each process."""
    return [
        made_up(SCHEMA, [[bit == "1" for bit in row] for row in rows], seed=number)
        for number, rows in enumerate(CASES[case])
    ]


def patches_of(process: int) -> torch.Tensor:
    chance = torch.Generator().manual_seed(process)
    return torch.randint(0, 255, (sum(BAGS[process]), 3, 32, 32), generator=chance, dtype=torch.uint8)


def loss_of(outputs: torch.Tensor, records: int) -> torch.Tensor:
    return torch.nn.functional.softplus(outputs).sum() / records


def bag_loss_of(vectors: torch.Tensor) -> torch.Tensor:
    return vectors.square().sum() / (sum(map(len, BAGS)) * vectors.shape[1])


def gradients_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.grad for name, value in module.named_parameters() if value.grad is not None}


def graph() -> FusionGraph:
    return fresh(SCHEMA, seed=0, outputs=2)


def spread_case(case: str, group: Group, folder: Path) -> None:
    """Fuse own records, with encoders that all share, and store outputs and gradients."""
    shares = records_of(case)
    own = graph()
    batch = batch_of(SCHEMA, shares[group.rank])
    spread = spread_encode(own, batch, PLAIN, group)
    rows = {name: part.rows for name, part in batch.parts.items()}
    outputs = own.fuse(spread.vectors, rows, batch.size).outputs
    (loss_of(outputs, sum(map(len, shares))) + spread.anchor).backward()
    add_gradients(own.parameters(), group)
    found = {f"gradient.{name}": value for name, value in gradients_of(own).items()}
    save_file({"outputs": outputs.detach(), **found}, folder / f"{case}-{group.rank}.safetensors")


def bags(group: Group, folder: Path) -> None:
    """Encode bags, some of them empty, and store vectors and gradients."""
    torch.manual_seed(0)
    encoder = Wsi2d()
    vectors = spread_bags(encoder, patches_of(group.rank), BAGS[group.rank], group)
    bag_loss_of(vectors).backward()
    add_gradients(encoder.parameters(), group)
    found = {f"gradient.{name}": value for name, value in gradients_of(encoder).items()}
    save_file({"vectors": vectors.detach(), **found}, folder / f"bags-{group.rank}.safetensors")


def exchanges(group: Group) -> dict[str, Any]:
    """Exchange numbers of each type, with splits of which some are zero."""
    found: dict[str, Any] = {}
    splits = ([0, 3], [2, 0])[group.rank]
    for dtype in (torch.float32, torch.bfloat16, torch.int16, torch.uint8, torch.int64, torch.bool):
        values = (torch.arange(sum(splits) * 2).view(-1, 1, 2) + 10 * group.rank).to(dtype)
        got, counts = all_to_all_v(values, splits, group)
        found[str(dtype)] = [got.long().tolist(), counts, list(got.shape)]
    found["gathered"] = [each.tolist() for each in gather_v(torch.arange(group.rank), group)]
    found["nothing"] = list(all_to_all_v(torch.zeros(0, 4), [0, 0], group)[0].shape)
    return found


def mistakes(group: Group) -> dict[str, str]:
    """Make mistakes in the second process, and return what each hears of them; the exchange goes on after."""
    there = group.rank == 1
    wrong = {
        "sum": lambda: all_to_all_v(torch.zeros(5, 2), [2, 2] if there else [5, 0], group),
        "count": lambda: all_to_all_v(torch.zeros(5), [5] if there else [5, 0], group),
        "negative": lambda: all_to_all_v(torch.zeros(5), [6, -1] if there else [5, 0], group),
        "shape": lambda: all_to_all_v(torch.zeros(5, 3 if there else 2), [5, 0], group),
        "type": lambda: all_to_all_v(torch.zeros(5, dtype=torch.half if there else None), [5, 0], group),
        "unknown": lambda: all_to_all_v(torch.zeros(5, dtype=torch.cfloat), [5, 0], group),
    }
    heard = {}
    for name, work in wrong.items():
        try:
            work()
        except ExchangeError as error:
            heard[name] = str(error)
    heard["after"] = all_to_all_v(torch.ones(2), [1, 1], group)[0].sum().item()
    return heard


def poisoned_step(team: Team, text: Path) -> dict[str, Any]:
    """Take a step on examples of which one, the second process's, has a note that gives no numbers."""
    schema = tiny_schema(text)
    there = [[True, True, True], [True, True, True], [False, True, True], [True, True, False]] * 2
    records = made_up(schema, there, seed=3)
    records[5]["notes"][0, 5] = RARE
    own = fresh_tiny(schema)
    with torch.no_grad():
        own.encoders["notes"].words.weight[RARE] = torch.inf
    examples = examples_of(own, records, [0, 1] * 4)
    trainer = Trainer(own, examples, how(schema, {"notes": {"frozen": False}}), team=team)
    (arrays,) = examples.load([team.share(len(records))])
    loss = trainer.step(torch.arange(len(records)), arrays)
    moved = [own.fusion.head.bias.tolist(), own.encoders["wsi"].score.bias.tolist()]
    return {
        "loss": loss,
        "skipped": dict(trainer.skipped),
        "non_finite": trainer.course.non_finite,
        "moved": moved,
    }


def everything(group: Group, folder: Path) -> dict[str, Any]:
    seconds = {}
    for case in CASES:
        began = time.monotonic()
        spread_case(case, group, folder)
        seconds[case] = time.monotonic() - began
    bags(group, folder)
    return {
        "seconds": seconds,
        "poisoned": poisoned_step(Team(group), folder / "text"),
        "exchanges": exchanges(group),
        "mistakes": mistakes(group),
    }


def die(group: Group, folder: Path) -> None:
    """Be killed in the second process, while the first waits for it; store what the first sees of it."""
    if group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        all_to_all_v(torch.ones(2), [1, 1], group)
    except LostError as error:
        (folder / "heard").write_text(str(error))
        raise


def main() -> int:
    asked = json.loads(sys.stdin.readline())
    own, folder = asked["rank"], Path(asked["folder"])
    torch.set_num_threads(1)
    try:
        with joined(own["rank"], own["size"], Path(own["meeting"]), torch.device("cpu")) as group:
            (folder / f"{group.rank}.json").write_text(json.dumps(everything(group, folder)))
            die(group, folder)
    except Exception as error:
        kind = "lost" if isinstance(error, LostError) else "unexpected"
        print(json.dumps({"event": "failed", "kind": kind, "words": f"{type(error).__name__}: {error}"}))
    return 1


if __name__ == "__main__":
    sys.exit(main())

"""What the commands do, with the arguments of :mod:`.definition`."""

from __future__ import annotations

import getpass
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_provider_llmbatch.errors import InputError, LLMBatchError

if TYPE_CHECKING:
    from airflow_provider_llmbatch.engine.erasing import Erased
    from airflow_provider_llmbatch.engine.results.erase import Wanted

#: Says that connections may be read from Airflow's database, as its own commands do.
_CONTEXT = "_AIRFLOW_PROCESS_CONTEXT"


def doctor(args: Namespace) -> None:
    """Print what is found; exits with 1 when something fails."""
    with _told():
        from airflow_provider_llmbatch.cli import findings
        from airflow_provider_llmbatch.cli.doctor import examine

        with _logs_aside():
            found = examine(args.conn_id or (), call=args.call)
        print(findings.as_json(found) if args.json else findings.as_text(found))
        if findings.fails(found):
            raise SystemExit(1)


def stop(args: Namespace) -> None:
    """Have a run stop."""
    with _told():
        from airflow_provider_llmbatch.operators.stopping import stop_run

        stop_run(args.dag_id, args.run_id, by=args.by or getpass.getuser(), why=args.why)
        print(f"The batches of run {args.run_id} of {args.dag_id} stop within two seconds.")


def go_on(args: Namespace) -> None:
    """Let a run go on."""
    with _told():
        from airflow_provider_llmbatch.operators.stopping import let_go_on, stop_of

        was = stop_of(args.dag_id, args.run_id)
        let_go_on(args.dag_id, args.run_id)
        if was is None:
            print(f"Nobody has stopped run {args.run_id} of {args.dag_id}.")
        else:
            print(f"Run {args.run_id} of {args.dag_id} may send again; clear the tasks that have stopped.")


def unpark(args: Namespace) -> None:
    """Open a gate that is parked."""
    with _told():
        from airflow_provider_llmbatch.operators.parked import unpark as open_gate

        open_gate(args.gate)
        print(f"Calls go through {args.gate} again.")


def reset(args: Namespace) -> None:
    """Forget what was seen at a gate."""
    with _told():
        from airflow_provider_llmbatch.operators import routing

        routing.reset(args.gate)
        print(f"Nothing is known of {args.gate} any more.")


def pin(args: Namespace) -> None:
    """Fix the route at an endpoint."""
    with _told():
        from airflow_provider_llmbatch.operators import routing

        routing.pin(args.gate, by=args.by or getpass.getuser())
        print(f"Runs whose routes lead to {args.gate} send everything there within two seconds.")


def unpin(args: Namespace) -> None:
    """Let the rules decide again."""
    with _told():
        from airflow_provider_llmbatch.operators import routing

        routing.unpin(args.gate)
        print(f"{args.gate} is not pinned any more; the rules of the routes decide.")


def delete(args: Namespace) -> None:
    """Delete results, or items in them."""
    with _told():
        from airflow_provider_llmbatch.cli.runs import under_way
        from airflow_provider_llmbatch.operators import deletion
        from airflow_provider_llmbatch.settings import load_settings

        wanted = _wanted(args)
        location, folders, elsewhere, runs = _chosen(args)
        settings = load_settings()
        if wanted is not None:
            folders, elsewhere = [*folders, *elsewhere], []
            runs |= deletion.runs_of(folders)
        if busy := under_way(runs):
            raise InputError(f"Nothing was deleted: {'; '.join(busy)}. Wait for its end, or stop it.")

        def go(dry: bool) -> Iterator[Erased]:
            if wanted is not None:
                return deletion.erase(folders, wanted, dry=dry)
            return deletion.delete(settings, location, folders, dry=dry)

        _carry_out(args, go)
        if wanted is None and args.dag and not args.dry_run:
            deletion.strike_queues(settings, args.dag, args.run)
        for place in elsewhere:
            print(f"Its tasks kept results in {place} as well: delete them with --result-path {place}")


def _chosen(args: Namespace) -> tuple[str, list[str], list[str], set[tuple[str, str]]]:
    """Return the place, its folders, further places, and the runs that wrote there."""
    from airflow_provider_llmbatch.operators import deletion
    from airflow_provider_llmbatch.operators.places import run_folder
    from airflow_provider_llmbatch.settings import load_settings

    if bool(args.result_path) == bool(args.dag or args.run):
        raise InputError("Nothing was deleted: give --dag and --run, or --result-path.")
    if args.result_path:
        location = args.result_path.rstrip("/")
        folders = deletion.folders_below(location)
        return location, folders, [], deletion.runs_of(folders)
    settings = load_settings()
    location = run_folder(settings.results_path, args.dag or "", args.run or "")
    folders, elsewhere = deletion.places_of(settings, args.dag, args.run)
    return location, folders, elsewhere, {(args.dag, args.run)}


def _wanted(args: Namespace) -> Wanted | None:
    """Return which items are meant; None for everything."""
    from airflow_provider_llmbatch.engine.results.erase import Wanted

    pairs = [text.partition("=") for text in args.subject or ()]
    if wrong := next((key for key, equals, _ in pairs if not equals or not key), None):
        raise InputError(f"--subject {wrong!r} has no value: write the field of the metadata as KEY=VALUE.")
    if not pairs and not args.item_id:
        return None
    subjects = frozenset((key, value) for key, _, value in pairs)
    return Wanted(ids=frozenset(args.item_id or ()), subjects=subjects)


def _carry_out(args: Namespace, go: Callable[[bool], Iterator[Erased]]) -> None:
    """Say what will be deleted, ask, and do it."""
    if args.dry_run:
        print(f"Would be deleted: {_printed(go(True))}")
        return
    if not args.yes:
        print(f"To be deleted: {_printed(go(True))}")
        if not sys.stdin.isatty():
            raise InputError("Nothing was deleted: nobody can be asked here; add --yes.")
        if input("Delete this for good? Type yes: ").strip() != "yes":
            raise InputError("Nothing was deleted.")
    print(f"Deleted: {_printed(go(False))}")


def _printed(erased: Iterable[Erased]) -> str:
    """Print one line for each file, and return the sum in words."""
    rows = files = left = 0
    for one in erased:
        unit = "rows" if one.what == "rows" else "bytes"
        print(f"{one.what:<5} {one.place}  {one.count:,} {unit}")
        rows += one.count if one.what == "rows" else 0
        files += one.what == "file"
        left += one.what == "left"
    words = f"{files:,} files, and {rows:,} rows of others."
    return words + (f" {left:,} files are not known here; look at them yourself." if left else "")


@contextmanager
def _logs_aside() -> Iterator[None]:
    """Have Airflow's logs, which go to the standard output, go to the error output meanwhile."""
    sys.stdout.flush()
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(output, 1)
        os.close(output)


@contextmanager
def _told() -> Iterator[None]:
    """Turn errors of ours into a line and an exit code."""
    os.environ.setdefault(_CONTEXT, "server")
    try:
        yield
    except LLMBatchError as error:
        print(error, file=sys.stderr)
        raise SystemExit(1) from None

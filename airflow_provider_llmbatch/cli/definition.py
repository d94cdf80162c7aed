"""The commands and their arguments. Every start of Airflow's command line reads it, so it imports little."""

from __future__ import annotations

from collections.abc import Callable

from airflow.cli.cli_config import ActionCommand, Arg, CLICommand, GroupCommand, lazy_load_command

_COMMANDS = "airflow_provider_llmbatch.cli.commands"
#: Airflow's class has no annotations.
_argument: Callable[..., Arg] = Arg

_DAG = _argument(("-d", "--dag"), help="id of the DAG", metavar="DAG_ID", type=str)
_RUN = _argument(("-r", "--run"), help="id of the run", metavar="RUN_ID", type=str)
_THIS_DAG = _argument(("dag_id",), help="id of the DAG")
_THIS_RUN = _argument(("run_id",), help="id of the run")

_DOCTOR = ActionCommand(
    name="doctor",
    help="Look at all that batches need, and say what to mend",
    description="Look at connections, endpoints, limits, state, storage, queues, prompts and versions, as "
    "this machine sees them. One line each; exits with 1 when one of them fails. Nothing is changed but a "
    "small file and a key, which are removed again.",
    func=lazy_load_command(f"{_COMMANDS}.doctor"),
    args=(
        _argument(
            ("-c", "--conn-id"),
            help="connection to look at, as often as you like; llmbatch_default when left out",
            action="append",
            dest="conn_id",
            metavar="CONN_ID",
            type=str,
        ),
        _argument(
            ("--call",),
            help="send one chat call of a token with each key, which is charged: most services tell their "
            "limits with such calls only",
            action="store_true",
        ),
        _argument(("--json",), help="print JSON", action="store_true"),
    ),
)
_STOP = ActionCommand(
    name="stop",
    help="Have the batches of a run stop within two seconds, so that they go on later",
    func=lazy_load_command(f"{_COMMANDS}.stop"),
    args=(
        _THIS_DAG,
        _THIS_RUN,
        _argument(("--by",), help="who stops it; the user of this shell when left out", type=str),
        _argument(("--why",), help="the reason, for the tasks' logs", default="", type=str),
    ),
)
_GO_ON = ActionCommand(
    name="go-on",
    help="Let a stopped run go on: tasks that start from now on send again",
    func=lazy_load_command(f"{_COMMANDS}.go_on"),
    args=(_THIS_DAG, _THIS_RUN),
)
_GATE = _argument(("gate",), help="such as credential/team or endpoint/https://host/v1/model")
_UNPARK = ActionCommand(
    name="unpark",
    help="Let calls through a credential or an endpoint again that was parked, as the doctor names it",
    func=lazy_load_command(f"{_COMMANDS}.unpark"),
    args=(_GATE,),
)
_RESET = ActionCommand(
    name="reset",
    help="Forget all that was seen at a credential or an endpoint: failures, latencies, that it is parked",
    func=lazy_load_command(f"{_COMMANDS}.reset"),
    args=(_GATE,),
)
_PIN = ActionCommand(
    name="pin",
    help="Have all runs whose routes lead to an endpoint send everything there, until it is unpinned",
    func=lazy_load_command(f"{_COMMANDS}.pin"),
    args=(_GATE, _argument(("--by",), help="who pins it; the user of this shell when left out", type=str)),
)
_UNPIN = ActionCommand(
    name="unpin",
    help="Let the rules of the routes decide again",
    func=lazy_load_command(f"{_COMMANDS}.unpin"),
    args=(_GATE,),
)
_DELETE = ActionCommand(
    name="delete",
    help="Delete the results of a run or a folder, or single items in them",
    description="Without --item-id and --subject everything of the run or below the folder is deleted; with "
    "them only what is kept of these items. Refuses while a run that wrote there has not ended.",
    func=lazy_load_command(f"{_COMMANDS}.delete"),
    args=(
        _DAG,
        _RUN,
        _argument(
            ("--result-path",),
            help="path or URL, in place of a run",
            metavar="PATH",
            type=str,
        ),
        _argument(
            ("--item-id",),
            help="item to erase, as often as you like",
            action="append",
            metavar="ID",
            type=str,
        ),
        _argument(
            ("--subject",),
            help="erase the items whose metadata has this value, as often as you like",
            action="append",
            metavar="KEY=VALUE",
            type=str,
        ),
        _argument(("-n", "--dry-run"), help="only say what would be deleted", action="store_true"),
        _argument(("-y", "--yes"), help="do not ask", action="store_true"),
    ),
)


def get_llmbatch_cli_commands() -> list[CLICommand]:
    """Return the group ``llmbatch``."""
    return [
        GroupCommand(
            name="llmbatch",
            help="Look after batches of LLM calls",
            subcommands=(_DOCTOR, _STOP, _GO_ON, _UNPARK, _RESET, _PIN, _UNPIN, _DELETE),
        )
    ]

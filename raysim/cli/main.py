"""The command line: ``run``, ``compare``, ``describe``, ``plan``, ``list``, and the commands of entry points.

The exit code is 0 for success, 1 for an internal error, and 2 for bad input (with one line on how to correct it, after
a traceback with ``--verbose``). The code is 130 if interrupted, 141 if the reader of the output has closed it, and 143
if terminated.

Commands import libraries other than typer only when they run, so that ``raysim --help`` is quick.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from raysim.cli import options
from raysim.cli.usage import NUMBER, in_one_line, whole_number

if TYPE_CHECKING:
    from raysim.config.schema import Config


UNREAD = 141
"""Exit code of a command whose output is no longer read: the same as that of a process ended by SIGPIPE."""


class Commands(TyperGroup):
    """The group of all commands, which reports ``sys.exit`` in a plug-in as an error."""

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **settings: Any) -> Any:
        args = [_at_home(argument) for argument in args]
        with in_one_line() if args else contextlib.nullcontext():  # without arguments typer raises to print help
            return super().make_context(info_name, args, *more, **settings)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-") and not ctx.resilient_parsing:
            from raysim.core.errors import ConfigError, nearest

            near = nearest(args[0], self.list_commands(ctx))
            raise ConfigError(f"'{args[0]}' is not a command; {near}; see 'raysim --help'")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            with in_one_line():
                return super().invoke(ctx)
        except SystemExit as error:
            from raysim.core import importing
            from raysim.core.errors import RaysimError

            if not importing.ended_by_plugin(error):
                raise
            *_, last = traceback.extract_tb(error.__traceback__)
            raise RaysimError(
                f"{last.filename}, line {last.lineno}: {last.name} {importing.exit_call(error)}, which would have "
                "ended raysim; raise an error instead"
            ) from None


def _at_home(argument: str) -> str:
    option, given, path = argument.partition("=") if argument.startswith("--") else ("", "", argument)
    return option + given + (os.path.expanduser(path) if path.startswith("~/") else path)


app = typer.Typer(
    cls=Commands,
    help="Federated learning across hospitals, simulated on Ray: which federated method is accurate AND fair?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ConfigPath = Annotated[
    Path | None, typer.Argument(metavar="[CONFIG]", help="YAML configuration; without one, the synthetic federation.")
]
Seed = Annotated[
    int | None,
    typer.Option(parser=whole_number, metavar=NUMBER, help="Override the seed (for compare: run this seed alone)."),
]


def _tell_version(asked: bool) -> None:
    if asked:
        from raysim.core.package import __version__

        print(f"raysim {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version, and end.")
]


@app.callback()
def _options(version: Version = False) -> None:
    pass


class Kind(StrEnum):
    """The kinds of names that ``raysim list`` can print, such as strategies."""

    strategies = "strategies"
    models = "models"
    sources = "sources"
    selections = "selections"
    metrics = "metrics"


def _kinds(incomplete: str) -> list[str]:
    return [kind.value for kind in Kind if kind.startswith(incomplete)]


def _names(ctx: typer.Context, incomplete: str) -> list[str]:
    from raysim.core.installed import registered

    return [entry.name for entry in registered(str(ctx.params.get("kind"))) if entry.name.startswith(incomplete)]


@app.command("compare", help="Compare strategies over seeds: tables, plots and one page.")
@app.command("run", help="Train one strategy, and record and report it.")
def train(
    ctx: typer.Context,
    config: ConfigPath = None,
    set_: options.Set = None,
    seed: Seed = None,
    out: options.Out = None,
    in_process: options.InProcess = False,
    details: options.Details = False,
    json: options.Json = False,
    open_: options.Open = False,
    dashboard: options.Dashboard = False,
    verbose: options.Verbose = False,
) -> None:
    """Execute ``raysim run`` or ``raysim compare``; ``ctx`` has the name of the command."""
    options.greet()
    from raysim.cli import commands

    settings = options.with_dashboard(set_, dashboard, in_process)
    comparing = ctx.info_name == "compare"
    execute = commands.compare_all if comparing else commands.run_one
    execute(
        _configuration(config, settings, seed),
        options.console_of(json),
        out,
        in_process=in_process,
        verbose=verbose,
        json=json,
        open_=open_,
        details=details,
        progress=options.progress_of(),
        path=config,
        settings=[*(set_ or ()), *(_one_seed(seed) if comparing else ())],
    )


@app.command()
def describe(
    config: ConfigPath = None,
    set_: options.Set = None,
    seed: Seed = None,
    table: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CSV to write: rows and PSI of each hospital and class.")
    ] = None,
    epsilon: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|counts",
            help=(
                "The constant that is added to each share before PSI is computed; counts: half a row is added to each "
                "count."
            ),
        ),
    ] = None,
    json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Print the hospitals: sizes, prevalence, missing values.

    It also prints how much the hospitals differ, where metrics are undefined, and what was read from the source.
    """
    options.greet()
    from raysim.cli.commands import describe_data

    describe_data(_configuration(config, set_, seed), options.console_of(json), table, epsilon, json=json)


@app.command()
def plan(
    config: ConfigPath = None,
    set_: options.Set = None,
    seed: Seed = None,
    nodes: Annotated[
        str | None, typer.Option(metavar="SPEC", help="Nodes to plan for, such as 2x16cpu+1gpu,1x8cpu.")
    ] = None,
    json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Plan a run without starting it: placement, memory, bytes."""
    options.greet()
    from raysim.cli.commands import show_plan

    show_plan(_configuration(config, set_, seed), nodes, options.console_of(json), json=json)


@app.command("list")
def list_(
    kind: Annotated[str, typer.Argument(metavar="|".join(Kind), help="What to list.", autocompletion=_kinds)],
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Print the documentation and keys of this one.", autocompletion=_names),
    ] = None,
    json: options.Json = False,
) -> None:
    """List the names a configuration can use, or explain one."""
    options.greet()
    from raysim.cli.listing import show_kind, show_one
    from raysim.core.errors import ConfigError, nearest

    if kind not in set(Kind):
        raise ConfigError(f"list: '{kind}' cannot be listed; {nearest(kind, Kind)}; see 'raysim list --help'")
    if name is None:
        show_kind(kind, options.console_of(json), json=json)
    else:
        show_one(kind, name, options.console_of(json), json=json)


def main() -> None:
    """Run the command line and exit. An error that a user can correct is printed in one line, with exit code 2.

    With ``--verbose`` its traceback is printed before the line.
    """
    from raysim.core import blas, host, pipes
    from raysim.core.errors import HangingError, RaysimError, TableGiven, of_the_machine

    pipes.stand_in()
    host.take()
    blas.prefer()
    verbose = any(argument in ("-v", "--verbose") for argument in sys.argv[1:])
    host.end_in_order()
    try:
        _add_commands()
        app(prog_name="raysim")
    except (RaysimError, OSError, MemoryError) as error:
        if isinstance(error, BrokenPipeError) and pipes.silence_unread():
            raise SystemExit(UNREAD) from None
        line = error if isinstance(error, RaysimError) else _without_folder(error) or of_the_machine(error)
        if line is None:
            raise
        if verbose:
            traceback.print_exc()
        _complain(f"raysim: {' '.join(str(line).split())}")
        if isinstance(line, TableGiven):
            print(line.lines)
        if isinstance(error, HangingError):
            sys.stderr.flush()
            os._exit(2)  # an orderly exit would wait for the call that hangs
        raise SystemExit(2) from None
    except SystemExit as ended:  # typer exits with 1 only if output cannot be written
        if ended.code == 1 and pipes.silence_unread():
            raise SystemExit(UNREAD) from None
        raise
    except KeyboardInterrupt:
        print("raysim: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    finally:
        pipes.silence_unread()  # otherwise Python would report unwritten lines at exit
        if host.is_terminating():  # even if a library has turned Terminated into another exception
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os._exit(143)  # only half-imported libraries remain, which could fail at exit
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _without_folder(error: OSError | MemoryError) -> str | None:
    try:
        os.getcwd()
    except FileNotFoundError:
        gone = isinstance(error, FileNotFoundError) and error.filename is None
        return "the working folder no longer exists; change to a folder that exists" if gone else None
    return None


def _complain(line: str) -> None:
    """Print an error message to standard error: wrapped at words in a terminal, else in one line."""
    if sys.stderr.isatty():
        import shutil
        import textwrap

        width = shutil.get_terminal_size().columns
        line = textwrap.fill(line, max(width, 20), break_long_words=False, break_on_hyphens=False)
    print(line, file=sys.stderr)


@cache
def _add_commands() -> None:
    """Add the commands of the entry-point group ``raysim.commands``, once per process.

    Commands of raysim are added first, so that another package cannot take their names.
    """
    from raysim.core.errors import ConfigError
    from raysim.core.installed import loaded, registered

    taken = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    for entry in registered("commands"):
        if entry.name in taken:
            package = entry.dist.name if entry.dist else "another package"
            print(
                f"raysim: the command '{entry.name}' of {package} is left out, because another command has this name",
                file=sys.stderr,
            )
            continue
        try:
            command = loaded(entry, "raysim.commands")
        except ConfigError as error:
            print(f"raysim: {error}", file=sys.stderr)
            continue
        taken.add(entry.name)
        app.command(entry.name)(command)


def _configuration(path: Path | None, overrides: list[str] | None, seed: int | None) -> Config:
    from raysim.config.reading import resolve

    return resolve(path, [*(overrides or ()), *_one_seed(seed)], reads=())


def _one_seed(seed: int | None) -> list[str]:
    return [] if seed is None else [f"seed={seed}", "seeds=[]"]

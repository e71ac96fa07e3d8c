"""MLflow's command line, whose server answers nothing under its Assistant's addresses.

The Assistant runs commands for whoever asks from this machine, once somebody has configured it, and MLflow has neither
a log-in nor a setting that leaves it out. Run as a program in the place of ``python -m mlflow``; its server serves
:func:`app`. Where a new MLflow starts its server otherwise, the program ends at once with an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from raysim.core.package import FOLDER

SERVED = "mlflow.server.fastapi_app:app"
"""What MLflow's own server serves."""

REFUSED = "/mlflow/assistant"
"""Part of each address of the Assistant's."""


async def app(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[Any]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """MLflow's site, an ASGI application, without the Assistant."""
    from mlflow.server.fastapi_app import app as served

    if scope["type"] in ("http", "websocket") and REFUSED in scope["path"].lower():
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"raysim ui does not serve MLflow's Assistant\n"})
        else:
            await send({"type": "websocket.close"})
        return
    await served(scope, receive, send)


def main() -> None:
    """``mlflow`` with the arguments of this process."""
    from mlflow import server
    from mlflow.cli import cli

    build = server._build_uvicorn_command

    def guarded(*arguments: Any, **options: Any) -> list[str]:
        command: list[str] = build(*arguments, **options)
        at = command.index(SERVED)
        # The server would look for modules in the working directory first.
        return [*command[:at], "--app-dir", str(FOLDER.parent), "raysim.tracking.guarded_mlflow:app"]

    server._build_uvicorn_command = guarded
    cli()


if __name__ == "__main__":
    main()

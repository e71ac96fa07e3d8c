"""MLflow's site without its Assistant, for MLflow's own server.

The Assistant runs commands for whoever asks from this machine, once somebody has configured it, and MLflow has neither
a log-in nor a setting that leaves it out. The server serves another site where an entry point of the group
``mlflow.app`` names one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

App: TypeAlias = Callable[..., Awaitable[None]]

REFUSED = "/mlflow/assistant"
"""A part of every address of MLflow's Assistant."""


def app() -> App:
    """What makes the site for ``mlflow server --app-name raysim``: an ASGI application."""
    return _guarded


async def _guarded(
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

"""MLflow's site without its Assistant, for MLflow's own server.

Once configured, the Assistant runs commands for any request from this machine, without log-in. MLflow has no setting
that disables it. MLflow's server can be started with another web application, named by an entry point of the group
``mlflow.app``. raysim's entry point names the application of this module.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

App: TypeAlias = Callable[..., Awaitable[None]]

REFUSED = "/mlflow/assistant"


def app() -> App:
    """Return the web application for ``mlflow server --app-name raysim``, an ASGI application."""
    return _guarded


async def _guarded(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[Any]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """An ASGI application that answers requests as MLflow's site does, but rejects requests for the Assistant."""
    from mlflow.server.fastapi_app import app as served

    if scope["type"] in ("http", "websocket") and REFUSED in scope["path"].lower():
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"raysim ui does not serve MLflow's Assistant\n"})
        else:
            await send({"type": "websocket.close"})
        return
    await served(scope, receive, send)

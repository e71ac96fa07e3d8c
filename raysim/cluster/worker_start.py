"""What Ray runs in place of a worker: asks the fork server for a fork, and else becomes the worker itself.

``worker_start.py ADDRESS COMMAND``. Ray knows a worker by its id, and takes whichever process registers with it. This
program must be quick: it runs once for each worker, without site-packages, and imports little.
"""

import array
import marshal
import os
import socket
import sys

CONTEXT, LANGUAGE = "--serialized-runtime-env-context=", "--language="
"""Arguments for Ray's program that sets up a worker's environment; the second one is always given."""


def main() -> None:
    address, *command = sys.argv[1:]
    context = next((word.removeprefix(CONTEXT) for word in command if word.startswith(CONTEXT)), "")
    if not forked(address, without_set_up(command), context):
        os.execv(command[0], command if context else without_set_up(command))


def without_set_up(command: list[str]) -> list[str]:
    """A command without Ray's program that sets up a worker's environment."""
    set_up = 1 if os.path.basename(command[1]) == "setup_worker.py" else len(command)
    return [word for i, word in enumerate(command) if i != set_up and not word.startswith((CONTEXT, LANGUAGE))]


def forked(address: str, command: list[str], context: str) -> bool:
    """Whether the fork server runs the worker, with this process's environment, folder and open streams.

    ``context``: the runtime environment that Ray asks for, as JSON; empty: none.
    """
    request = marshal.dumps((command, context, dict(os.environ), os.getcwd()))
    streams = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (0, 1, 2)))
    try:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.connect(address)
        line.sendmsg([len(request).to_bytes(8, "little")], [streams])
        line.sendall(request)
        return line.recv(1) == b"\1"
    except OSError:
        return False


if __name__ == "__main__":
    main()

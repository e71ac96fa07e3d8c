"""What Ray runs in place of a worker: asks the fork server for one, and becomes the worker itself where it gives none.

``worker_start.py ADDRESS COMMAND``. Ray knows a worker by its id, and takes whichever process registers with it. This
one must be quick: it runs once for each worker, without site-packages, and imports little.
"""

import array
import marshal
import os
import socket
import sys

ENVIRONMENT = "--serialized-runtime-env-context="
FOR_SETUP = "--language="


def main() -> None:
    address, *command = sys.argv[1:]
    # A worker with an environment of its own goes through Ray's program that sets it up.
    if not any(word.startswith(ENVIRONMENT) for word in command):
        setup = 1 if os.path.basename(command[1]) == "setup_worker.py" else len(command)
        command = [word for i, word in enumerate(command) if i != setup and not word.startswith(FOR_SETUP)]
        if forked(address, command[1:]):
            return
    os.execv(command[0], command)


def forked(address: str, words: list[str]) -> bool:
    """Whether the fork server runs the worker, with this process's environment, folder and open streams."""
    request = marshal.dumps((words, dict(os.environ), os.getcwd()))
    streams = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (0, 1, 2)))
    try:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.connect(address)
        line.sendmsg([len(request).to_bytes(8, "little")], [streams])
        line.sendall(request)
        return line.recv(1) == b"\1"
    except OSError:
        return False


main()

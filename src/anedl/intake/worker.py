"""A process that decodes images for another: `python -m anedl.intake.worker DESCRIPTOR SIDE`.

It answers each path with the image or with the reason there is none. Should a decoder crash on a
hostile file, only this process goes down. It never imports torch, so it starts quickly.
"""

import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path

from anedl.intake.examined import Examined, examine

READY, IMAGE, REASON = b"ready", b"i", b"r"


def serve(connection: Connection, side: int) -> None:
    """Answer paths until the other end closes."""
    connection.send_bytes(READY)
    while True:
        try:
            path = Path(os.fsdecode(connection.recv_bytes()))
        except EOFError:
            return
        found = examine(path, side)
        if isinstance(found, Examined):
            connection.send_bytes(IMAGE + found.to_bytes())
        else:
            connection.send_bytes(REASON + found.encode("utf-8", "backslashreplace"))


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), int(sys.argv[2]))

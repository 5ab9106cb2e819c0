"""``gal predict TASK --listen``: predictions of one task over HTTP, for as long as the command runs."""

from __future__ import annotations

from typing import Self

from gal.node.holder.label_holder import LabelHolder
from gal.node.web.app import make_app
from gal.node.web.online_task import OnlineTask
from gal.node.web.predictions import OnlinePredictions, add_one_task, add_predictions
from gal.node.web.server import LOCAL_NAMES, HttpServer, is_loopback, listening_socket
from gal.node.web.token import FILE as TOKEN_FILE
from gal.node.web.token import ensure_token
from gal.node.web.watching import Watching, add_watching


class Endpoint:
    """Serves predictions of one task over HTTP, from when it is entered until it is left."""

    def __init__(self, holder: LabelHolder, task: str, listen: str, seconds: float = 5.0) -> None:
        self._holder = holder
        self._socket = listening_socket(listen)
        try:
            self._task = OnlineTask(holder, task, seconds)
        except BaseException:
            self._socket.close()
            raise
        self._predictions = OnlinePredictions(holder, seconds, only=self._task)
        self.port = int(self._socket.getsockname()[1])
        self.scheme = "http" if is_loopback(str(self._socket.getsockname()[0])) else "https"
        self.token_file = holder.node.configuration.home / TOKEN_FILE
        self._server: HttpServer | None = None

    def __enter__(self) -> Self:
        home = self._holder.node.configuration.home
        app = make_app(ensure_token(home), LOCAL_NAMES if self.scheme == "http" else None)
        add_predictions(app, self._predictions)
        add_one_task(app, self._task)
        add_watching(app, Watching(self._holder.node))
        self._server = HttpServer(app, self._socket, home)
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.stop()
        self._task.close()

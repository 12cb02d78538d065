# SPDX-License-Identifier: Apache-2.0
"""The sync client: one connection, one call at a time."""
from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from . import wire
from .errors import DeadlineExceeded, Unavailable
from .types import (Answer, Chunk, Document, DocumentInfo, Forgotten, Health, Message, Model,
                    Registered)

CONNECT_TIMEOUT_S = 5.0
GRACE_S = 1.0
"""After its deadline the daemon may still say so itself."""

LOST = (zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_CONNECT_RETRIED
        | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
        | zmq.EVENT_HANDSHAKE_FAILED_AUTH)


def configure(socket: Any) -> None:
    """As libkvasir does: nothing lingers, and a dead daemon is noticed within seconds."""
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.HEARTBEAT_IVL, 2000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 6000)
    socket.setsockopt(zmq.HEARTBEAT_TTL, 6000)


def unreachable(endpoint: str) -> Unavailable:
    """Why nobody was reached: kvasird is not there, or we may not go to its socket."""
    path = endpoint.removeprefix("ipc://")
    if path != endpoint:
        try:
            os.stat(path)
        except PermissionError:
            return Unavailable(f"{path}: permission denied: who may use kvasird is in the group of "
                               "its runtime directory")
        except OSError:
            pass
    return Unavailable(f"no kvasird at {endpoint}")


class Client:
    """Opens with its first call, and again after a loss.  Use it from one thread, or close it."""

    def __init__(self, endpoint: str | None = None, *, runtime_dir: str | None = None,
                 timeout_s: float = 30.0):
        self.endpoint = wire.endpoint(endpoint, runtime_dir)
        self.timeout_s = timeout_s
        self._context: Any = None
        self._socket: Any = None
        self._monitor: Any = None
        self._last_id = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._disconnect()
        if self._context is not None:
            self._context.destroy(linger=0)
            self._context = None

    # ---- the connection ----------------------------------------------------------------------

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.disable_monitor()
            self._monitor.close()
            self._socket.close()
            self._socket = self._monitor = None

    def _require(self) -> None:
        if self._socket is not None and self._is_lost():
            self._disconnect()  # since the last call
        if self._socket is not None:
            return
        self._context = self._context or zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        configure(self._socket)
        self._monitor = self._socket.get_monitor_socket(LOST | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self._socket.connect(self.endpoint)
        deadline = time.monotonic() + CONNECT_TIMEOUT_S
        while self._monitor.poll(max(0, int(1000 * (deadline - time.monotonic())))):
            if recv_monitor_message(self._monitor)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                return
            break
        self._disconnect()
        raise unreachable(self.endpoint)

    def _is_lost(self) -> bool:
        return bool(self._monitor.poll(0))

    def _wait(self, deadline: float | None) -> list[bytes]:
        """The next message; what waits is read before a loss is believed."""
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        left = None if deadline is None else max(0, int(1000 * (deadline - time.monotonic())))
        poller.poll(left)
        if self._socket.poll(0):
            return list(self._socket.recv_multipart())
        if self._is_lost():
            self._disconnect()
            raise Unavailable(f"kvasird at {self.endpoint} is gone")
        raise DeadlineExceeded("no answer in time")

    # ---- calls -------------------------------------------------------------------------------

    def _call(self, method: str, payload: Any, timeout_s: float | None) -> Iterator[Any]:
        self._require()
        self._last_id += 1
        request_id = self._last_id
        deadline = None if timeout_s is None else time.monotonic() + timeout_s + GRACE_S
        is_open = True
        self._socket.send_multipart(wire.request_frames(method, request_id, payload, timeout_s))
        try:
            while is_open:
                reply = wire.Reply(self._wait(deadline))
                if reply.request_id == request_id:
                    is_open = not reply.is_last
                    yield reply.payload(method)
        finally:
            if is_open and self._socket is not None:
                self._cancel(request_id)

    def _cancel(self, request_id: int) -> None:
        self._last_id += 1
        self._socket.send_multipart(wire.request_frames(
            "/kvasir.v1.Rag/Cancel", self._last_id,
            wire.message("CancelRequest", request_id=request_id), None))

    def _unary(self, method: str, payload: Any = None) -> Any:
        payload = wire.message("Empty") if payload is None else payload
        return next(iter(list(self._call(method, payload, self.timeout_s))))

    # ---- what can be asked -------------------------------------------------------------------

    def stream(self, prompt: str | Sequence[Message], *, documents: Iterable[Document | str] = (),
               is_raw: bool = False, salt: bytes | None = None, priority: int | None = None,
               ignore_end: bool = False, timeout_s: float | None = None,
               **sampling: Any) -> Iterator[Chunk]:
        """The answer piece by piece; sampling is that of types.Sampling.  Leaving it cancels."""
        request = wire.generate_request(prompt, documents, is_raw, salt, priority, ignore_end,
                                        sampling)
        for reply in self._call("/kvasir.v1.Rag/Generate", request, timeout_s):
            yield wire.chunk(reply)

    def generate(self, prompt: str | Sequence[Message], **arguments: Any) -> Answer:
        """The answer whole; arguments as of stream."""
        return collect(list(self.stream(prompt, **arguments)))

    def tokenize(self, text: str, *, parse_special: bool = False) -> list[int]:
        return list(self._unary("/kvasir.v1.Rag/Tokenize", wire.message(
            "TokenizeRequest", text=text, parse_special=parse_special)).token_ids)

    def detokenize(self, token_ids: Sequence[int]) -> str:
        reply = self._unary("/kvasir.v1.Rag/Detokenize",
                            wire.message("DetokenizeRequest", token_ids=token_ids))
        return str(reply.text.decode())

    def model(self) -> Model:
        return wire.model(self._unary("/kvasir.v1.Rag/Model"))

    def health(self) -> Health:
        return wire.health(self._unary("/kvasir.v1.Health/Check"))

    def register(self, document: Document | str, *, is_chat: bool = True) -> Registered:
        return wire.registered(self._unary("/kvasir.v1.Documents/Register", wire.message(
            "RegisterRequest", document=wire.segment(document), is_chat=is_chat)))

    def get(self, document: bytes | str) -> DocumentInfo:
        return wire.document_info(self._unary("/kvasir.v1.Documents/Get", wire.ref(document)))

    def list(self, *, limit: int | None = None, order: str | None = None) -> list[DocumentInfo]:
        reply = self._unary("/kvasir.v1.Documents/List",
                            wire.message("ListRequest", limit=limit, order=order))
        return [wire.document_info(d) for d in reply.documents]

    def pin(self, document: bytes | str, *, ttl_s: float | None = None) -> None:
        self._unary("/kvasir.v1.Documents/Pin", wire.ref(document, ttl_s))

    def unpin(self, document: bytes | str) -> None:
        self._unary("/kvasir.v1.Documents/Unpin", wire.ref(document))

    def warm(self, document: bytes | str) -> None:
        self._unary("/kvasir.v1.Documents/Warm", wire.ref(document))

    def forget(self, document: bytes | str, *, abort: bool = False) -> Forgotten:
        """Returns when every copy is overwritten; with abort, requests that read it end now."""
        return wire.forgotten(self._unary("/kvasir.v1.Documents/Forget",
                                          wire.forget(document, abort)))


def collect(chunks: Sequence[Chunk]) -> Answer:
    last = chunks[-1]
    assert last.usage is not None
    return Answer("".join(c.text for c in chunks), tuple(i for c in chunks for i in c.token_ids),
                  last.finish or "", last.usage)

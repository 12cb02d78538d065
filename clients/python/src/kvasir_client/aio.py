# SPDX-License-Identifier: Apache-2.0
"""The async client: one connection, any number of calls."""
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from . import wire
from .client import CONNECT_TIMEOUT_S, GRACE_S, LOST, collect, configure, unreachable
from .errors import DeadlineExceeded, KvasirError, Unavailable
from .types import (Answer, Chunk, Document, DocumentInfo, Forgotten, Health, Message, Model,
                    Registered)


class AsyncClient:
    """Opens with its first call, and again after a loss.  Belongs to one event loop."""

    def __init__(self, endpoint: str | None = None, *, runtime_dir: str | None = None,
                 timeout_s: float = 30.0):
        self.endpoint = wire.endpoint(endpoint, runtime_dir)
        self.timeout_s = timeout_s
        self._context: Any = None
        self._socket: Any = None
        self._monitor: Any = None
        self._readers: list[asyncio.Task[None]] = []
        self._connecting = asyncio.Lock()
        self._last_id = 0
        self._open: dict[int, asyncio.Queue[wire.Reply | KvasirError]] = {}

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._lose(Unavailable("the client is closed"))
        if self._context is not None:
            self._context.destroy(linger=0)
            self._context = None

    # ---- the connection ----------------------------------------------------------------------

    def _lose(self, error: KvasirError) -> None:
        for task in self._readers:
            if task is not asyncio.current_task():
                task.cancel()
        self._readers = []
        if self._socket is not None:
            self._socket.disable_monitor()
            self._monitor.close()
            self._socket.close()
            self._socket = self._monitor = None
        for queue in self._open.values():
            queue.put_nowait(error)

    async def _require(self) -> None:
        async with self._connecting:
            if self._socket is not None:
                return
            self._context = self._context or zmq.asyncio.Context()
            socket = self._context.socket(zmq.DEALER)
            configure(socket)
            monitor = socket.get_monitor_socket(LOST | zmq.EVENT_HANDSHAKE_SUCCEEDED)
            self._socket, self._monitor = socket, monitor
            socket.connect(self.endpoint)
            try:
                event = parse_monitor_message(await asyncio.wait_for(
                    monitor.recv_multipart(), CONNECT_TIMEOUT_S))["event"]
            except (asyncio.TimeoutError, TimeoutError):
                event = 0
            if event != zmq.EVENT_HANDSHAKE_SUCCEEDED:
                error = unreachable(self.endpoint)
                self._lose(error)
                raise error
            self._readers = [asyncio.create_task(self._read()), asyncio.create_task(self._watch())]

    async def _read(self) -> None:
        while True:
            reply = wire.Reply(await self._socket.recv_multipart())
            queue = self._open.get(reply.request_id)
            if queue is not None:
                queue.put_nowait(reply)

    async def _watch(self) -> None:
        await self._monitor.recv_multipart()
        await asyncio.sleep(0)  # what has come already is read first
        self._lose(Unavailable(f"kvasird at {self.endpoint} is gone"))

    # ---- calls -------------------------------------------------------------------------------

    async def _send(self, method: str, request_id: int, payload: Any,
                    timeout_s: float | None) -> None:
        await self._socket.send_multipart(
            wire.request_frames(method, request_id, payload, timeout_s))

    async def _call(self, method: str, payload: Any,
                    timeout_s: float | None) -> AsyncIterator[Any]:
        await self._require()
        self._last_id += 1
        request_id = self._last_id
        queue: asyncio.Queue[wire.Reply | KvasirError] = asyncio.Queue()
        self._open[request_id] = queue
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s + GRACE_S
        is_open = True
        try:
            await self._send(method, request_id, payload, timeout_s)
            while is_open:
                left = None if deadline is None else max(0.0, deadline - loop.time())
                try:
                    reply = await asyncio.wait_for(queue.get(), left)
                except (asyncio.TimeoutError, TimeoutError):
                    raise DeadlineExceeded("no answer in time") from None
                if isinstance(reply, KvasirError):
                    is_open = False
                    raise reply
                is_open = not reply.is_last
                yield reply.payload(method)
        finally:
            del self._open[request_id]
            if is_open and self._socket is not None:
                self._last_id += 1
                # Not awaited: we may be in the middle of being cancelled.
                self._socket.send_multipart(wire.request_frames(
                    "/kvasir.v1.Rag/Cancel", self._last_id,
                    wire.message("CancelRequest", request_id=request_id), None))

    async def _unary(self, method: str, payload: Any = None) -> Any:
        payload = wire.message("Empty") if payload is None else payload
        return [reply async for reply in self._call(method, payload, self.timeout_s)][-1]

    # ---- what can be asked -------------------------------------------------------------------

    async def stream(self, prompt: str | Sequence[Message], *,
                     documents: Iterable[Document | str] = (), is_raw: bool = False,
                     salt: bytes | None = None, priority: int | None = None,
                     ignore_end: bool = False, timeout_s: float | None = None,
                     **sampling: Any) -> AsyncIterator[Chunk]:
        """As Client.stream; cancelling the task cancels the request."""
        request = wire.generate_request(prompt, documents, is_raw, salt, priority, ignore_end,
                                        sampling)
        replies = self._call("/kvasir.v1.Rag/Generate", request, timeout_s)
        try:
            async for reply in replies:
                yield wire.chunk(reply)
        finally:
            await replies.aclose()  # type: ignore[attr-defined]

    async def generate(self, prompt: str | Sequence[Message], **arguments: Any) -> Answer:
        return collect([chunk async for chunk in self.stream(prompt, **arguments)])

    async def tokenize(self, text: str, *, parse_special: bool = False) -> list[int]:
        reply = await self._unary("/kvasir.v1.Rag/Tokenize", wire.message(
            "TokenizeRequest", text=text, parse_special=parse_special))
        return list(reply.token_ids)

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        reply = await self._unary("/kvasir.v1.Rag/Detokenize",
                                  wire.message("DetokenizeRequest", token_ids=token_ids))
        return str(reply.text.decode())

    async def model(self) -> Model:
        return wire.model(await self._unary("/kvasir.v1.Rag/Model"))

    async def health(self) -> Health:
        return wire.health(await self._unary("/kvasir.v1.Health/Check"))

    async def register(self, document: Document | str, *, is_chat: bool = True) -> Registered:
        return wire.registered(await self._unary("/kvasir.v1.Documents/Register", wire.message(
            "RegisterRequest", document=wire.segment(document), is_chat=is_chat)))

    async def get(self, document: bytes | str) -> DocumentInfo:
        return wire.document_info(await self._unary("/kvasir.v1.Documents/Get",
                                                    wire.ref(document)))

    async def list(self, *, limit: int | None = None,
                   order: str | None = None) -> list[DocumentInfo]:
        reply = await self._unary("/kvasir.v1.Documents/List",
                                  wire.message("ListRequest", limit=limit, order=order))
        return [wire.document_info(d) for d in reply.documents]

    async def pin(self, document: bytes | str, *, ttl_s: float | None = None) -> None:
        await self._unary("/kvasir.v1.Documents/Pin", wire.ref(document, ttl_s))

    async def unpin(self, document: bytes | str) -> None:
        await self._unary("/kvasir.v1.Documents/Unpin", wire.ref(document))

    async def warm(self, document: bytes | str) -> None:
        await self._unary("/kvasir.v1.Documents/Warm", wire.ref(document))

    async def forget(self, document: bytes | str, *, abort: bool = False) -> Forgotten:
        """Returns when every copy is overwritten; with abort, requests that read it end now."""
        return wire.forgotten(await self._unary("/kvasir.v1.Documents/Forget",
                                                wire.forget(document, abort)))

# SPDX-License-Identifier: Apache-2.0
"""Requests as frames and frames as replies; no socket here, so both clients share it."""
from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from .errors import error_of
from .types import (Chunk, Document, DocumentInfo, DocumentUsage, Forgotten, Health, Message,
                    Model, Registered, Sampling, Usage)

VERSION = 1
FINISHES = {0: None, 1: "stop", 2: "length", 3: "cancelled"}


def _load() -> descriptor_pool.DescriptorPool:
    path = os.environ.get("KVASIR_SCHEMA") or pathlib.Path(__file__).with_name("schema.binpb")
    files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(path).read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:  # protoc writes a file after those that it imports
        pool.Add(file)
    return pool


_pool = _load()


def message(name: str, **fields: Any) -> Any:
    """A message of the schema by its short name."""
    kind = message_factory.GetMessageClass(_pool.FindMessageTypeByName("kvasir.v1." + name))
    return kind(**{key: value for key, value in fields.items() if value is not None})


def _methods() -> dict[str, tuple[str, str]]:
    """Method path -> names of its request and reply, as services.proto has them."""
    found = {}
    for service in ("Rag", "Documents", "Health"):
        descriptor = _pool.FindServiceByName("kvasir.v1." + service)
        for method in descriptor.methods:
            found[f"/kvasir.v1.{service}/{method.name}"] = (method.input_type.name,
                                                            method.output_type.name)
    return found


METHODS = _methods()


def request_frames(method: str, request_id: int, payload: Any, timeout_s: float | None) -> list[bytes]:
    header = message("RequestHeader", version=VERSION, method=method, request_id=request_id,
                     timeout_ms=None if timeout_s is None else max(1, int(timeout_s * 1000)))
    return [header.SerializeToString(), payload.SerializeToString()]


class Reply:
    """One reply of a call; raises what a status other than OK says when it is asked for."""

    def __init__(self, frames: Sequence[bytes]):
        header = message("ReplyHeader")
        header.ParseFromString(frames[0])
        self.request_id: int = header.request_id
        self.is_last: bool = bool(header.status) or not header.more
        self._header = header
        self._payload = frames[1] if len(frames) > 1 else b""

    def payload(self, method: str) -> Any:
        header = self._header
        if header.status:
            raise error_of(header.status, header.message, header.retry_after_ms / 1000)
        reply = message(METHODS[method][1])
        reply.ParseFromString(self._payload)
        return reply


# ---- what is asked ---------------------------------------------------------------------------


def segment(document: Document | str) -> Any:
    if isinstance(document, str):
        document = Document(document)
    return message("Segment", text=document.text, title=document.title,
                   id=document.id if document.id is not None else document.document_id,
                   token_ids=document.token_ids, document_key=document.key,
                   document_id=document.document_id)


def _sampling(sampling: Sampling) -> Any:
    fields = {name: getattr(sampling, name) for name in (
        "max_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty",
        "frequency_penalty", "presence_penalty", "min_tokens", "seed", "json_schema")}
    return message("Sampling", stop=list(sampling.stop),
                   logit_bias=[message("LogitBias", id=key, bias=value)
                               for key, value in sampling.logit_bias.items()], **fields)


def generate_request(prompt: str | Sequence[Message], documents: Iterable[Document | str],
                     is_raw: bool, salt: bytes | None, priority: int | None, ignore_end: bool,
                     sampling: dict[str, Any]) -> Any:
    """A chat, or with is_raw the documents and the prompt as they are."""
    fields: dict[str, Any] = {"sampling": _sampling(Sampling(**sampling)), "salt": salt,
                              "priority": priority, "ignore_end": ignore_end or None}
    segments = [segment(d) for d in documents]
    if is_raw:
        if not isinstance(prompt, str):
            raise TypeError("a raw prompt must be a string")
        return message("GenerateRequest", segments=segments, query=prompt, add_bos=True, **fields)
    messages = [Message(prompt)] if isinstance(prompt, str) else prompt
    return message("GenerateRequest", documents=segments, messages=[
        message("Message", role=m.role, content=m.content) for m in messages], **fields)


def ref(document: bytes | str, ttl_s: float | None = None) -> Any:
    """By key (bytes) or by id."""
    return message("DocumentRef", key=document if isinstance(document, bytes) else None,
                   id=document if isinstance(document, str) else None,
                   ttl_ms=None if ttl_s is None else int(ttl_s * 1000))


def forget(document: bytes | str, abort: bool) -> Any:
    """By key (bytes) or by id."""
    return message("ForgetRequest", key=document if isinstance(document, bytes) else None,
                   id=document if isinstance(document, str) else None, abort=abort)


# ---- what is answered ------------------------------------------------------------------------


def _usage(usage: Any) -> Usage:
    return Usage(usage.prompt_tokens, usage.completion_tokens, usage.tokens_reused,
                 usage.tokens_built, usage.queue_us, usage.ttft_us, usage.total_us, usage.seed,
                 tuple(DocumentUsage(d.index, d.id, d.key, d.tokens, d.tokens_reused, d.miss_reason)
                       for d in usage.documents),
                 usage.tokens_loaded)


def chunk(reply: Any) -> Chunk:
    return Chunk(reply.text.decode(), tuple(reply.token_ids), FINISHES.get(reply.finish),
                 _usage(reply.usage) if reply.HasField("usage") else None)


def forgotten(reply: Any) -> Forgotten:
    return Forgotten(reply.blocks, reply.bytes, reply.copies, reply.readers_waited,
                     reply.readers_aborted)


def document_info(reply: Any) -> DocumentInfo:
    return DocumentInfo(reply.key, reply.tokens, reply.tokens_resident, reply.pins, reply.hits,
                        reply.state)


def registered(reply: Any) -> Registered:
    return Registered(reply.key, reply.tokens)


def model(reply: Any) -> Model:
    return Model(reply.name, reply.context_tokens, reply.vocab_size, reply.chat_template)


def health(reply: Any) -> Health:
    return Health(reply.status == 1, reply.detail, reply.version)


def endpoint(given: str | None, runtime_dir: str | None) -> str:
    if given:
        return given
    user = os.environ.get("XDG_RUNTIME_DIR")
    for path in (runtime_dir, os.environ.get("KVASIR_RUNTIME_DIR"),
                 "/run/kvasir" if os.path.isdir("/run/kvasir") else None,
                 user and os.path.join(user, "kvasir")):
        if path:
            return "ipc://" + os.path.join(path, "client.sock")
    raise FileNotFoundError("no runtime directory: name one, or set KVASIR_RUNTIME_DIR")

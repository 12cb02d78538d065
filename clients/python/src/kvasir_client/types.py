# SPDX-License-Identifier: Apache-2.0
"""What goes in and comes out."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Document:
    """One of text, token_ids, key and document_id says which; the last two name a registered one."""

    text: str | None = None
    title: str | None = None
    id: str | None = None
    token_ids: Sequence[int] | None = None
    key: bytes | None = None
    document_id: str | None = None


@dataclass(frozen=True)
class Message:
    content: str
    role: str = "user"


@dataclass(frozen=True)
class DocumentUsage:
    index: int
    id: str
    key: bytes
    tokens: int
    tokens_reused: int
    reason: str
    """"hit", or why it was a miss: "cold", "evicted", ..."""


@dataclass(frozen=True)
class Usage:
    """What kernels consumed.  documents may begin with a preamble that has no id."""

    prompt_tokens: int
    completion_tokens: int
    tokens_reused: int
    tokens_built: int
    queue_us: int
    ttft_us: int
    total_us: int
    seed: int
    documents: tuple[DocumentUsage, ...] = ()
    tokens_loaded: int = 0
    """Of tokens_reused: from the host tier, for this request."""


@dataclass(frozen=True)
class Chunk:
    """A piece of an answer: whole characters.  The last one has finish and usage."""

    text: str
    token_ids: tuple[int, ...] = ()
    finish: str | None = None
    usage: Usage | None = None


@dataclass(frozen=True)
class Answer:
    text: str
    token_ids: tuple[int, ...]
    finish: str
    usage: Usage


@dataclass(frozen=True)
class Registered:
    key: bytes
    tokens: int


@dataclass(frozen=True)
class DocumentInfo:
    key: bytes
    tokens: int
    tokens_resident: int
    pins: int
    hits: int
    state: str


@dataclass(frozen=True)
class Forgotten:
    """What was erased."""
    blocks: int
    bytes: int
    copies: int
    readers_waited: int
    readers_aborted: int


@dataclass(frozen=True)
class Model:
    name: str
    context_tokens: int
    vocab_size: int
    chat_template: str


@dataclass(frozen=True)
class Health:
    is_serving: bool
    detail: str
    version: str


@dataclass(frozen=True)
class Sampling:
    """None is the daemon's default of each."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    min_tokens: int | None = None
    seed: int | None = None
    json_schema: str | None = None
    stop: Sequence[str] = ()
    logit_bias: dict[int, float] = field(default_factory=dict)

# SPDX-License-Identifier: Apache-2.0
"""Client of Kvasir: generate answers over documents that are read once."""
from .aio import AsyncClient
from .client import Client
from .errors import (Cancelled, DeadlineExceeded, InvalidArgument, KvasirError, NotFound,
                     OutOfRange, ResourceExhausted, Unavailable)
from .types import (Answer, Chunk, Document, DocumentInfo, DocumentUsage, Forgotten, Health,
                    Message, Model, Registered, Usage)

__all__ = [
    "Answer", "AsyncClient", "Cancelled", "Chunk", "Client", "DeadlineExceeded", "Document",
    "DocumentInfo", "DocumentUsage", "Forgotten", "Health", "InvalidArgument", "KvasirError",
    "Message", "Model", "NotFound", "OutOfRange", "Registered", "ResourceExhausted", "Unavailable", "Usage",
]
__version__ = "0.1.0"

# SPDX-License-Identifier: Apache-2.0
"""One exception a canonical gRPC code that callers may want to tell apart."""
from __future__ import annotations


class KvasirError(Exception):
    """What the daemon answered with a status other than OK."""

    code = 2

    def __init__(self, message: str, code: int | None = None, retry_after_s: float = 0.0):
        super().__init__(message)
        self.code = type(self).code if code is None else code
        self.retry_after_s = retry_after_s


class Cancelled(KvasirError):
    code = 1


class InvalidArgument(KvasirError):
    """Repeating it is useless."""

    code = 3


class DeadlineExceeded(KvasirError):
    code = 4


class NotFound(KvasirError):
    code = 5


class ResourceExhausted(KvasirError):
    """Full now: try again after retry_after_s."""

    code = 8


class OutOfRange(KvasirError):
    """It can never fit the context or the pool."""

    code = 11


class Unavailable(KvasirError):
    """No daemon, or it is stopping: may help to try again."""

    code = 14


_BY_CODE = {kind.code: kind for kind in (Cancelled, InvalidArgument, DeadlineExceeded, NotFound,
                                         ResourceExhausted, OutOfRange, Unavailable)}


def error_of(code: int, message: str, retry_after_s: float = 0.0) -> KvasirError:
    return _BY_CODE.get(code, KvasirError)(message, code, retry_after_s)

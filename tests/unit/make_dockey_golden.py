#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the golden vectors of test_dockey.c, computed with hashlib from the text of kvpool/dockey.h."""
import hashlib
import struct


def digest(*fields):
    return hashlib.sha256(b"".join(struct.pack("<Q", len(f)) + f for f in fields)).hexdigest()


def u32(*values):
    return struct.pack("<%dI" % len(values), *values)


FINGERPRINT = bytes(range(32))


def document(salt, ids):
    return digest(b"kvasir-document", FINGERPRINT, salt, u32(*ids))


print("pool            ", digest(b"kvasir-pool", bytes(range(32)), bytes(range(100, 132)),
                                 u32(1), u32(2), u32(32)))
print("empty           ", document(b"", []))
print("one             ", document(b"", [1]))
print("three           ", document(b"", [1, 258, 0xFFFFFFFF]))
print("thousand        ", document(b"", range(1000)))
print("org_1 + 2345    ", document(b"org_1", list(b"2345")))
print("org_12345 +     ", document(b"org_12345", []))
print("at 5000000000   ", digest(b"kvasir-document-at", bytes(range(32)), struct.pack("<Q", 5000000000)))
print("behind          ", digest(b"kvasir-document-behind", bytes(range(32)), bytes(range(100, 132))))

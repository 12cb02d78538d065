#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ptxas makes of lazy_prefill on sm_90a: matrix products of warpgroups (HGMMA) in every kernel, and no register in
local memory (STL, LDL).  Needs nvcc and no device.

The machine code is read here, because not every nvcc comes with a disassembler: a section .text.KERNEL of a cubin holds
instructions of 16 bytes, and the 9 lowest bits of one say what it does."""
import collections
import os
import struct
import subprocess
import sys
import tempfile

NAMES = {0x1F0: "HGMMA", 0x187: "STL", 0x183: "LDL"}


def compile_cubin(nvcc, src):
    with tempfile.TemporaryDirectory() as folder:
        cubin = os.path.join(folder, "cubin")
        subprocess.run([nvcc, "-std=c++17", "-O3", "-I.", "-I" + src, "-arch=sm_90a", "-cubin", "-o", cubin,
                        os.path.join(src, "kernels/lazy_prefill_sm90.cu")], check=True)
        with open(cubin, "rb") as file:
            return file.read()


def sections(elf):
    table, = struct.unpack_from("<Q", elf, 0x28)
    size, count, of_names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    names = headers[of_names][4]
    for name, _, _, _, offset, length in headers:
        end = elf.index(b"\0", names + name)
        yield elf[names + name:end].decode(), elf[offset:offset + length]


def main():
    nvcc = os.environ.get("NVCC")
    if not nvcc:
        print("SKIP: no nvcc in this build")
        return 77
    kernels, failed = 0, False
    for name, code in sections(compile_cubin(nvcc, os.environ.get("srcdir", "."))):
        if not name.startswith(".text."):
            continue
        seen = collections.Counter(NAMES.get(struct.unpack_from("<H", code, at)[0] & 0x1FF)
                                   for at in range(0, len(code), 16))
        kernels += 1
        failed |= seen["HGMMA"] == 0 or seen["STL"] + seen["LDL"] > 0
        print(f"{name[6:]}: {len(code) // 16} instructions,", ", ".join(f"{n} {seen[n]}" for n in NAMES.values()))
    return 1 if failed or kernels == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

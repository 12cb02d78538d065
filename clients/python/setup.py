# SPDX-License-Identifier: Apache-2.0
"""Puts the compiled schema into the package: protoc is needed to build, not to run."""
import pathlib
import subprocess

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
PROTO = HERE.parent.parent / "proto"


class BuildWithSchema(build_py):
    def run(self):
        target = HERE / "src" / "kvasir_client" / "schema.binpb"
        if PROTO.is_dir():
            subprocess.run(["protoc", "-I", str(PROTO), f"--descriptor_set_out={target}",
                            *sorted(str(p) for p in PROTO.glob("kvasir/v1/*.proto"))], check=True)
        elif not target.exists():
            raise SystemExit("no schema.binpb in this source tree, and no proto/ to make it from")
        super().run()


setup(cmdclass={"build_py": BuildWithSchema})

# SPDX-License-Identifier: Apache-2.0
"""The whole service for the scripts of this folder: kvasird, a worker on a device, and questions."""

import glob
import json
import os
import select
import socket
import subprocess
import sys

ALTERNATIVES = 20
READY_TIMEOUT_S = 120


def find_cublas():
    """cuBLASLt is the machine's own: the toolkit's, or what torch came with."""
    places = ["/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib", "/usr/lib/x86_64-linux-gnu"]
    places += [os.path.join(path, "nvidia", "*", "lib") for path in sys.path]
    for place in places:
        found = sorted(glob.glob(os.path.join(place, "libcublasLt.so.13")))
        if found:
            return os.path.dirname(found[-1])
    return None


class Service:
    """kvasird on a model, with a worker; programs from `bin`, sockets and logs in `folder`."""

    def __init__(self, bin, device, model, folder, *daemon_options):
        self.bin, self.folder, self.programs = bin, folder, []
        self.env = dict(os.environ, NOTIFY_SOCKET=os.path.join(folder, "notify"))
        cublas = find_cublas() if device == "cuda" else None
        if cublas:
            paths = [cublas, os.environ.get("LD_LIBRARY_PATH", "")]
            self.env["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(self.env["NOTIFY_SOCKET"])
        self.runtime = os.path.join(folder, "run")
        os.mkdir(self.runtime, 0o700)
        kv_type = "bf16" if device == "cuda" else "f32"
        model_options = ["--model", model] if model else []  # else a dummy's are among the others
        self.start("kvasird", *model_options, "--kv-type", kv_type, *daemon_options)
        self.start("kvasir-worker", "--device", device)

    def start(self, program, *arguments):
        command = [os.path.join(self.bin, program), "--runtime-dir", self.runtime, *arguments]
        with open(os.path.join(self.folder, program + ".log"), "wb") as log:
            self.programs.append(subprocess.Popen(command, env=self.env, stdout=log, stderr=log))
        try:
            self.wait_ready(self.programs[-1])
        except (TimeoutError, ChildProcessError):
            self.stop()
            with open(os.path.join(self.folder, program + ".log"), encoding="utf-8") as log:
                sys.exit(f"{program} did not start:\n{log.read()}")

    def wait_ready(self, child):
        """Until it is ready; ChildProcessError if it ends first."""
        ended = os.pidfd_open(child.pid)
        while True:
            readable, _, _ = select.select([self.notify, ended], [], [], READY_TIMEOUT_S)
            if self.notify in readable and b"READY=1" in self.notify.recv(4096):
                os.close(ended)
                return
            if ended in readable and self.notify not in readable:
                raise ChildProcessError
            if not readable:
                raise TimeoutError

    def stop(self):
        for program in reversed(self.programs):
            program.terminate()
            program.wait()
        self.notify.close()

    def ask(self, documents, query, max_tokens, *options):
        """The answer's tokens, each with its id and the ids and log probabilities of alternatives."""
        command = [os.path.join(self.bin, "kvasir"), "ask", "--runtime-dir", self.runtime]
        command += ["--stream-json", "--quiet", "--max-tokens", str(max_tokens)]
        command += ["--logprobs", str(ALTERNATIVES), *options]
        if documents:
            command += ["--jsonl", "-"]
        lines = "".join(json.dumps({"text": text}) + "\n" for text in documents)
        output = subprocess.run(
            [*command, "--", query], env=self.env, input=lines.encode(), stdout=subprocess.PIPE, check=True
        ).stdout
        tokens = []
        for line in output.splitlines():
            tokens += json.loads(line).get("logprobs", [])
        return tokens

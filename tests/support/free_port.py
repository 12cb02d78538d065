#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A port that is free and stays so until its program starts: not of the range from which the kernel takes those of
every connection on the machine, so that no other test is given it meanwhile."""
import random
import socket

LOWEST, HIGHEST = 10000, 32000  # net.ipv4.ip_local_port_range begins at 32768

while True:
    port = random.randrange(LOWEST, HIGHEST)
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            continue
    print(port)
    break

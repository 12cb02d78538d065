# SPDX-License-Identifier: Apache-2.0
"""Of the JSON lines that bench/run_hits wrote for one budget and skew: each mode reuses more than the next, and lazy
under our policy at least 1.3 times what reencode does under LRU, which is how caches of rotated copies are kept."""
import json
import sys

LEAST_GAIN = 1.3


def main():
    found = {}
    with open(sys.argv[1], encoding="utf-8") as lines:
        for result in map(json.loads, lines):
            found[result["label"].split(",")[0]] = result["token_hit_ratio"]
    print(", ".join(f"{mode} {ratio:.4f}" for mode, ratio in found.items()))
    assert found["lazy"] > found["reencode"] > found["reencode/lru"] > found["prefix"] > found["none"] == 0, found
    gain = found["lazy"] / found["reencode/lru"]
    assert gain >= LEAST_GAIN, f"lazy is {gain:.2f} times reencode under LRU"
    print(f"lazy is {gain:.2f} times reencode under LRU, {found['lazy'] / found['reencode']:.2f} times under zipf")


main()

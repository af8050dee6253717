#!/usr/bin/env python3
"""Which experts a prompt uses, layer by layer, as the float64 reference routes it.

    ./make_experts.py ../../tests/data > ../../tests/data/goldens/experts.json

For each model a prompt of pseudo-random ids and, for each MoE layer, how many distinct experts its
positions choose: what a single pass has to read. Only prompts are taken whose scores leave no doubt
(last chosen and first rejected are GAP apart everywhere), so that a float32 engine routes alike.
"""
import json
import pathlib
import sys

from k3_numpy import Model

MODELS = ["tiny-k3", "random-a", "random-b", "random-c"]
TOKENS = 5
GAP = 1e-4


class Recording(Model):
    """Keeps what every position chose."""

    def route(self, layer, x):
        chosen = super().route(layer, x)
        self.choices[layer] = sorted(set(chosen[0].ravel().tolist()))
        return chosen


def prompt(seed, vocab):
    ids, state = [], seed
    for _ in range(TOKENS):
        state = (state * 1103515245 + 12345) % 2**31
        ids.append(state // 65536 % vocab)
    return ids


def main():
    out = {}
    for name in MODELS:
        model = Recording(str(pathlib.Path(sys.argv[1]) / name))
        for seed in range(1, 100):
            ids = prompt(seed, model.c.V)
            model.choices, model.trace = {}, {"router": []}
            model.full(ids)
            gaps = [entry["min_gap"] for entry in model.trace["router"] if entry["min_gap"] is not None]
            if all(gap > GAP for gap in gaps):
                break
        out[name] = {"ids": ids, "distinct": [len(model.choices[k]) for k in sorted(model.choices)]}
    print(json.dumps(out, indent=1))


main()

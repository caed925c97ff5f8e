#!/usr/bin/env python3
"""Writes charlm_golden.hpp: the loss curve of a small character model in PyTorch, float64.

Run it where Debian's python3-torch (1.13) is installed, from any folder. Two pre-norm blocks,
learned positions, AdamW. Text, weights and batches come from numpy.random.default_rng, which
softtape draws from too: first the text, then each parameter in order, then each batch.
"""
import math
import pathlib

import numpy as np
import torch
from torch.nn import functional as F

torch.set_default_dtype(torch.float64)
VOCAB, D, HEADS, CONTEXT, BATCH, STEPS = 11, 8, 2, 6, 4, 20

rng = np.random.default_rng(2024)
text = rng.integers(0, VOCAB, 200)

parameters = []


def new(*shape):
    parameters.append(torch.tensor(rng.normal(0, 0.3, shape), requires_grad=True))
    return parameters[-1]


def linear(n_in, n_out):
    w, b = new(n_out, n_in), new(n_out)
    return lambda x: x @ w.T + b


def norm():
    w, b = new(D), new(D)
    return lambda x: F.layer_norm(x, (D,), w, b, 1e-5)


def attention():
    q, k, v, out = linear(D, D), linear(D, D), linear(D, D), linear(D, D)
    hidden = torch.triu(torch.ones(CONTEXT, CONTEXT, dtype=torch.bool), 1)

    def split(x):
        return x.reshape(BATCH, CONTEXT, HEADS, D // HEADS).transpose(1, 2)

    def call(x):
        scores = split(q(x)) @ split(k(x)).transpose(-1, -2) / math.sqrt(D // HEADS)
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
        return out((weights @ split(v(x))).transpose(1, 2).reshape(BATCH, CONTEXT, D))

    return call


def mlp():
    up, down = linear(D, 4 * D), linear(4 * D, D)
    return lambda x: down(F.gelu(up(x)))


def block():
    norm1, attend, norm2, feed = norm(), attention(), norm(), mlp()

    def call(x):
        h = x + attend(norm1(x))
        return h + feed(norm2(h))

    return call


tokens, positions = new(VOCAB, D), new(CONTEXT, D)
blocks = [block(), block()]
last_norm, unembed = norm(), linear(D, VOCAB)
optimiser = torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.1)
losses = []
for _ in range(STEPS):
    starts = rng.integers(0, len(text) - CONTEXT, BATCH)
    x = torch.tensor(np.stack([text[s:s + CONTEXT] for s in starts]))
    y = torch.tensor(np.stack([text[s + 1:s + CONTEXT + 1] for s in starts]))
    h = tokens[x] + positions
    for b in blocks:
        h = b(h)
    loss = F.cross_entropy(unembed(last_norm(h)).reshape(-1, VOCAB), y.reshape(-1))
    losses.append(loss.item())
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

pathlib.Path(__file__).with_name("charlm_golden.hpp").write_text(f"""\
// Losses of 20 training steps of a character model in PyTorch 1.13, float64. Written by
// charlm_golden.py.
#pragma once

#include <vector>

// clang-format off
namespace golden::charlm {{

inline const std::vector<double> losses{{{", ".join(map(repr, losses))}}};

}}  // namespace golden::charlm
// clang-format on
""")

#!/usr/bin/env python3
"""The workloads of workloads.hpp in PyTorch, float32, for tests/bench/compare.

Usage: peer_torch.py WORKLOAD VARIANT [threads=N] [seconds=S] [head=N] [tokens=N] [memory=1]
       peer_torch.py variants WORKLOAD   the names of the variants
       peer_torch.py gemm                GFLOP/s of a product of 512 x 512, and the BLAS library

Prints a line as bench_measure does. Numbers are random: speed does not depend on them.
"""
import re
import sys

import torch
from torch import nn
from torch.nn import functional as F

from peer import gemm_speed, growth, measure

BATCH, TOKENS, WIDTH = 32, 32, 64  # W2
VARIANTS = {"W1": ["eager", "script"], "W2": ["eager", "foreach"], "W3": ["eager", "foreach"],
            "W4": ["composed", "sdpa"], "W5": ["eager", "script"], "W6": ["eager"]}


def causal(n):
    return torch.ones(n, n, dtype=torch.bool).triu(1)


def weights(*shape, scale=1.0):
    return (scale * torch.randn(*shape)).requires_grad_()


def clear(tensors):
    for x in tensors:
        x.grad = None


def head(q, k, v, hidden, scale: float):
    scores = (q @ k.transpose(-2, -1) * scale).masked_fill(hidden, -float("inf"))
    return scores.softmax(-1) @ v


def w1(variant, _):
    x, hidden = torch.randn(5, 8), causal(5)
    ws = [weights(8, 4) for _ in range(3)]

    def loss(x, wq, wk, wv, hidden):
        scores = ((x @ wq) @ (x @ wk).transpose(-2, -1) * 0.5).masked_fill(hidden, -float("inf"))
        return (scores.softmax(-1) @ (x @ wv)).square().sum()

    f = torch.jit.script(loss) if variant == "script" else loss

    def run():
        clear(ws)
        f(x, *ws, hidden).backward()

    return run


def w2(variant, _):
    x, hidden = torch.randn(BATCH, TOKENS, WIDTH), causal(TOKENS)
    y = torch.randint(0, WIDTH, (BATCH * TOKENS,))
    ws = [weights(WIDTH, WIDTH, scale=0.125) for _ in range(4)]
    optimizer = torch.optim.Adam(ws, lr=1e-3, foreach=variant == "foreach")

    def run():
        clear(ws)
        logits = head(x @ ws[0], x @ ws[1], x @ ws[2], hidden, WIDTH**-0.5) @ ws[3]
        F.cross_entropy(logits.view(-1, WIDTH), y).backward()
        optimizer.step()

    return run


class Block(nn.Module):
    def __init__(self, width, heads, tokens):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("hidden", causal(tokens))

    def forward(self, x):
        batch, tokens, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = head(q, k, v, self.hidden, (width // self.heads) ** -0.5)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class LanguageModel(nn.Module):
    def __init__(self, vocabulary, width, heads, layers, tokens):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(0.02 * torch.randn(tokens, width))
        self.blocks = nn.Sequential(*[Block(width, heads, tokens) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.blocks(self.table(ids) + self.positions)
        return self.norm(x) @ self.table.weight.t()


def w3(variant, _):
    model = LanguageModel(96, 64, 4, 2, 64)
    ids, y = torch.randint(0, 96, (16, 64)), torch.randint(0, 96, (16 * 64,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2,
                                  foreach=variant == "foreach")

    def run():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(ids).view(-1, 96), y).backward()
        optimizer.step()

    return run


def w4(variant, keys):
    tokens = int(keys.get("tokens", 2048))
    q, k, v = (weights(1, 8, tokens, 64) for _ in range(3))
    upstream, hidden = torch.randn(1, 8, tokens, 64), causal(tokens)
    fused = getattr(F, "scaled_dot_product_attention", None)

    def run():
        clear((q, k, v))
        if variant == "composed":
            output = head(q, k, v, hidden, 0.125)
        elif fused:
            output = fused(q, k, v, is_causal=True)
        else:  # its name before PyTorch 2
            output = F._scaled_dot_product_attention(q, k, v, is_causal=True)[0]
        output.backward(upstream)

    return run


def w5(variant, _):
    start, factor, shift = (torch.tensor(c, requires_grad=True) for c in (0.5, 0.999, 0.001))

    def chain(x, factor, shift):
        for _ in range(500):
            x = x * factor
            x = x + shift
        return x

    f = torch.jit.script(chain) if variant == "script" else chain

    def run():
        clear((start, factor, shift))
        f(start, factor, shift).backward()

    return run


def w6(_, keys):
    width = int(keys.get("head", 64))
    x, y = torch.randn(128, 64), torch.randn(128, width)
    ws = [weights(64, width, scale=0.125) for _ in range(3)]
    optimizer = torch.optim.SGD(ws, lr=0.1)

    def run():
        clear(ws)
        scores = (x @ ws[0]) @ (x @ ws[1]).t() * width**-0.5
        F.mse_loss(scores.softmax(-1) @ (x @ ws[2]), y).backward()
        optimizer.step()

    return run


def main():
    if sys.argv[1] == "variants":
        print("\n".join(VARIANTS[sys.argv[2]]))
        return
    if sys.argv[1] == "gemm":
        torch.set_num_threads(1)
        a, b = torch.randn(512, 512), torch.randn(512, 512)
        print(*gemm_speed(lambda: a @ b))
        return
    workload, variant = sys.argv[1:3]
    keys = dict(argument.split("=") for argument in sys.argv[3:])
    torch.manual_seed(0)
    torch.set_num_threads(int(keys.get("threads", 1)))
    run = globals()[workload.lower()](variant, keys)
    version = re.match(r"[\d.]+", torch.__version__).group()
    name = f"PyTorch {version} ({variant})"
    print(growth(name, workload, run, keys) if keys.get("memory") else
          measure(name, workload, run, keys, 1000 if workload == "W5" else 1))


if __name__ == "__main__":
    main()

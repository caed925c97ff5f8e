#!/usr/bin/env python3
"""W1, W2 and W6 of workloads.hpp in NumPy, float32, gradients by hand, for tests/bench/compare.

Usage: peer_numpy.py WORKLOAD VARIANT [threads=N] [seconds=S] [head=N]   (VARIANT: numpy)
"""
import sys

import numpy as np

from peer import measure

rng = np.random.default_rng(0)


def normal(*shape, scale=1.0):
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def turned(x):
    return np.swapaxes(x, -1, -2)


def softmax(scores):
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    return scores


class Head:
    """One attention head on q, k, v; backward gives their gradients."""

    def __init__(self, q, k, v, scale, bias=None):
        self.q, self.k, self.v, self.scale = q, k, v, np.float32(scale)
        scores = q @ turned(k) * self.scale
        self.weights = softmax(scores if bias is None else scores + bias)
        self.output = self.weights @ v

    def backward(self, g):
        gweights = g @ turned(self.v)
        mean = (gweights * self.weights).sum(-1, keepdims=True)
        gscores = self.weights * (gweights - mean) * self.scale
        return gscores @ self.k, turned(gscores) @ self.q, turned(self.weights) @ g


def causal(n):
    return np.triu(np.full((n, n), -np.inf, np.float32), 1)


def w1(_):
    x, ws, bias = normal(5, 8), [normal(8, 4) for _ in range(3)], causal(5)

    def run():
        attended = Head(*(x @ w for w in ws), 0.5, bias)
        return [x.T @ g for g in attended.backward(2 * attended.output)]

    return run


def w2(_):
    x = normal(32 * 32, 64)
    y, rows = rng.integers(0, 64, 32 * 32), np.arange(32 * 32)
    ws = [normal(64, 64, scale=0.125) for _ in range(4)]
    ms, vs = [np.zeros_like(w) for w in ws], [np.zeros_like(w) for w in ws]
    bias, step = causal(32), 0

    def run():
        nonlocal step
        attended = Head(*((x @ w).reshape(32, 32, 64) for w in ws[:3]), 0.125, bias)
        output = attended.output.reshape(-1, 64)
        slopes = softmax(output @ ws[3])
        slopes[rows, y] -= 1
        slopes /= np.float32(len(y))
        inner = attended.backward((slopes @ ws[3].T).reshape(32, 32, 64))
        gradients = [x.T @ g.reshape(-1, 64) for g in inner] + [output.T @ slopes]
        step += 1
        rate, root = np.float32(1e-3 / (1 - 0.9**step)), np.float32((1 - 0.999**step) ** -0.5)
        for w, m, v, g in zip(ws, ms, vs, gradients):
            m *= np.float32(0.9)
            m += np.float32(0.1) * g
            v *= np.float32(0.999)
            v += np.float32(0.001) * (g * g)
            w -= rate * m / (np.sqrt(v) * root + np.float32(1e-8))

    return run


def w6(keys):
    width = int(keys.get("head", 64))
    x, y = normal(128, 64), normal(128, width)
    ws = [normal(64, width, scale=0.125) for _ in range(3)]

    def run():
        attended = Head(*(x @ w for w in ws), width**-0.5)
        slopes = (attended.output - y) * np.float32(2 / y.size)
        for w, g in zip(ws, attended.backward(slopes)):
            w -= np.float32(0.1) * (x.T @ g)

    return run


def main():
    workload = sys.argv[1]
    keys = dict(argument.split("=") for argument in sys.argv[3:])
    run = {"W1": w1, "W2": w2, "W6": w6}[workload](keys)
    print(measure(f"NumPy {np.__version__}", workload, run, keys))


if __name__ == "__main__":
    main()

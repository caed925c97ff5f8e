#!/usr/bin/env python3
"""W1 and W5 of engine.cpp in PyTorch, on one thread: the peer that README's ratios name.

Run it right after bench_engine, on the same quiet machine. Prints the fastest and the median of
many timed blocks. Needs python3-torch; says so and ends with status 0 where it is missing.
"""
import statistics
import sys
import time

try:
    import torch
except ImportError:
    print("PyTorch is not installed: nothing to compare with (Debian: apt-get install python3-torch)")
    sys.exit(0)

PAIRS = 500


def w1():
    """One causal attention head on 5 tokens, forward and backward."""
    x = torch.randn(5, 8)
    projections = [torch.randn(8, 4, requires_grad=True) for _ in range(3)]
    hidden = torch.ones(5, 5).triu(1).bool()

    def step():
        q, k, v = (x @ w for w in projections)
        scores = (q @ k.T * 0.5).masked_fill(hidden, -torch.inf)
        (scores.softmax(-1) @ v).square().sum().backward()
        for w in projections:
            w.grad = None

    return step


def w5():
    """A chain of 1000 scalar products and sums, forward and backward."""
    start, factor, shift = (torch.tensor(c, requires_grad=True) for c in (0.5, 0.999, 0.001))

    def step():
        x = start
        for _ in range(PAIRS):
            x = x * factor
            x = x + shift
        x.backward()
        for leaf in (start, factor, shift):
            leaf.grad = None

    return step


def report(name, step, calls, ops):
    """Times blocks of `calls` calls; prints nanoseconds per call, and per op when there are many."""
    for _ in range(3 * calls):
        step()
    times = []
    end = time.perf_counter() + 3.0
    while time.perf_counter() < end or len(times) < 5:
        begin = time.perf_counter_ns()
        for _ in range(calls):
            step()
        times.append((time.perf_counter_ns() - begin) / calls)
    line = f"{name}: fastest {min(times):.0f} ns, median {statistics.median(times):.0f} ns"
    print(line + (f", fastest per op {min(times) / ops:.0f} ns" if ops > 1 else ""))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"PyTorch {torch.__version__}, one thread, float32")
    report("w1_torch", w1(), calls=50, ops=1)
    report("w5_torch", w5(), calls=1, ops=2 * PAIRS)


if __name__ == "__main__":
    main()

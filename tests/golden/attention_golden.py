#!/usr/bin/env python3
"""Writes attention_golden.hpp: attention of PyTorch in float64, and of the lesson's NumPy code.

Run it where Debian's python3-torch (1.13) and python3-numpy are installed, from any folder. Inputs
are not printed: they are numpy.random.default_rng(seed) streams, which softtape's Rng draws too, in
the order q, k, v, then what the case has beside them, then the upstream gradient, then directions.
"""
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

OUT = []


def numbers(t):
    flat = np.asarray(t.detach() if isinstance(t, torch.Tensor) else t).reshape(-1).tolist()
    return "{" + ", ".join(repr(float(v)) for v in flat) + "}"


def normal(rng, *shape):
    return torch.tensor(rng.standard_normal(shape), requires_grad=True)


def case(name, seed, shapes, attend):
    """attend(inputs) -> output, weights. Prints value, gradients, and the gradient of
    sum_i <gradient_i, direction_i>: second derivatives."""
    rng = np.random.default_rng(seed)
    inputs = [normal(rng, *shape) for shape in shapes]
    output, weights = attend(*inputs)
    gy = torch.tensor(rng.standard_normal(tuple(output.shape)))
    gradients = torch.autograd.grad((output * gy).sum(), inputs, create_graph=True)
    directions = [torch.tensor(rng.standard_normal(tuple(x.shape))) for x in inputs]
    second = torch.autograd.grad(sum((g * d).sum() for g, d in zip(gradients, directions)), inputs)
    fields = [numbers(output), numbers(weights) if weights is not None else "{}"]
    fields += ["{" + ", ".join(numbers(g) for g in group) + "}" for group in (gradients, second)]
    OUT.append('    {"%s", %d, %s},' % (name, seed, ",\n     ".join(fields)))


def sdpa(q, k, v, **options):
    return F._scaled_dot_product_attention(q, k, v, need_attn_weights=True, **options)


def composed(q, k, v, bias=None, scale=None, cap=0.0, norm=False):
    if norm:
        q, k = (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) for x in (q, k))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if cap:
        scores = cap * torch.tanh(scores / cap)
    if bias is not None:
        scores = scores + bias
    weights = torch.softmax(scores, -1)
    return weights @ v, weights


def heads(q, k, v, **options):
    """Column blocks through multi_head_attention_forward with identity projections."""
    width = q.shape[-1]
    eye = torch.eye(width, dtype=q.dtype)
    output, weights = F.multi_head_attention_forward(
        q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), width, 2, torch.cat([eye] * 3),
        None, None, None, False, 0.0, eye, None, need_weights=True, average_attn_weights=False,
        **options)
    return output.transpose(0, 1), weights


def additive(q, k, v, wq, uk, score):
    hidden = torch.tanh((q @ wq).unsqueeze(-2) + (k @ uk).unsqueeze(-3))
    weights = torch.softmax(hidden @ score, -1)
    return weights @ v, weights


def linear(q, k, v, causal=False):
    scores = (F.elu(q) + 1) @ (F.elu(k) + 1).transpose(-1, -2)
    if causal:
        scores = torch.tril(scores)
    weights = scores / scores.sum(-1, keepdim=True)
    return weights @ v, weights


def torch_cases():
    qkv = [(2, 3, 4), (2, 5, 4), (2, 5, 2)]
    square = [(3, 4), (3, 4), (3, 2)]
    keep = torch.tensor([[1, 0, 1, 1, 0], [0, 1, 1, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
    two = [(2, 3, 4), (2, 3, 4), (2, 3, 4)]
    case("plain", 1, qkv, sdpa)
    case("four axes", 2, [(2, 2, 3, 2), (2, 2, 4, 2), (2, 2, 4, 3)], sdpa)
    case("keep", 3, qkv, lambda q, k, v: sdpa(q, k, v, attn_mask=keep))
    case("causal", 4, square, lambda q, k, v: sdpa(q, k, v, is_causal=True))
    case("bias", 5, qkv + [(3, 5)], composed)
    case("scale 0.3", 6, qkv, lambda q, k, v: composed(q, k, v, scale=0.3))
    case("learned", 7, qkv + [()], lambda q, k, v, s: composed(q, k, v, scale=s))
    case("soft cap", 8, qkv, lambda q, k, v: composed(q, k, v, cap=0.5))
    case("qk norm", 9, qkv, lambda q, k, v: composed(q, k, v, norm=True))
    case("heads", 10, two, heads)
    future = torch.triu(torch.ones(3, 3, dtype=torch.bool), 1)
    case("heads, causal", 11, two, lambda q, k, v: heads(q, k, v, attn_mask=future))
    padding = torch.tensor([[False, False, True], [False, False, False]])
    case("heads, padding", 12, two, lambda q, k, v: heads(q, k, v, key_padding_mask=padding))
    case("additive", 13, [(3, 2), (4, 3), (4, 2), (2, 5), (3, 5), (5,)], additive)
    case("linear", 14, qkv, linear)
    case("linear, causal", 15, square, lambda q, k, v: linear(q, k, v, True))


def lesson(q, k, v, mask):
    scores = q @ k.T / np.sqrt(q.shape[-1])
    scores[mask] = -1e9
    attn = np.exp(scores - scores.max(axis=-1, keepdims=True))
    attn /= attn.sum(axis=-1, keepdims=True)
    return attn @ v, attn


def lesson_demo():
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (5, 8))
    wq, wk, wv = (rng.normal(0, 0.1, (8, 4)) for _ in range(3))
    return lesson(x @ wq, x @ wk, x @ wv, np.triu(np.ones((5, 5), dtype=bool), k=1))


def lesson_exercise_3():
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(6, 8)) for _ in range(3))
    return lesson(q, k, v, np.triu(np.ones((6, 6), dtype=bool), k=1))


torch_cases()
TEXT = """// Written by attention_golden.py: attention of PyTorch %s and NumPy %s in float64.
#pragma once

#include <cstdint>
#include <vector>

// clang-format off
namespace golden::attention {

using Numbers = std::vector<double>;
struct Case {
  const char* name;
  std::uint64_t seed;
  Numbers output, weights;
  std::vector<Numbers> gradients, second;
};
inline const std::vector<Case> cases{
%s
};

struct Lesson {
  Numbers output, weights;
};
inline const Lesson demo{%s};
inline const Lesson exercise_3{%s};

}  // namespace golden::attention
// clang-format on
""" % (torch.__version__, np.__version__, "\n".join(OUT),
       ",\n    ".join(map(numbers, lesson_demo())),
       ",\n    ".join(map(numbers, lesson_exercise_3())))
pathlib.Path(__file__).with_name("attention_golden.hpp").write_text(TEXT)

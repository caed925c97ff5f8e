#!/usr/bin/env python3
"""Writes nn_golden.hpp: layers, optimisers and schedules of PyTorch in float64.

Run it where Debian's python3-torch (1.13) is installed, from any folder. Weights and inputs are not
written down: both sides draw them from numpy.random.default_rng, in the order of the layer's
parameters, then x, then the upstream gradient.
"""
import pathlib

import numpy as np
import torch
from torch import nn

torch.set_default_dtype(torch.float64)


def numbers(t):
    return "{" + ", ".join(repr(float(v)) for v in np.asarray(t.detach()).reshape(-1)) + "}"


def draw(rng, *shape):
    return torch.tensor(rng.normal(0, 0.5, shape))


def draw_all(rng, parameters):
    with torch.no_grad():
        for p in parameters:
            p.copy_(draw(rng, *p.shape))


class Heads(nn.MultiheadAttention):
    """nn.MultiheadAttention with its parameters in softtape's order, as parts of the stacked ones."""

    def parts(self):
        d = self.embed_dim
        for i in range(3):
            yield self.in_proj_weight, slice(i * d, (i + 1) * d)
            yield self.in_proj_bias, slice(i * d, (i + 1) * d)
        yield self.out_proj.weight, slice(None)
        yield self.out_proj.bias, slice(None)


def whole(parameters):
    return [(p, slice(None)) for p in parameters]


def layer_cases():
    out = ["struct Layer {", "  const char* name;", "  unsigned seed;",
           "  std::vector<double> y, gx;",
           "  std::vector<std::vector<double>> gradients;  // in order of the parameters", "};",
           "inline const std::vector<Layer> layers{"]

    def case(name, parts, f, *shape):
        seed = len(out)
        rng = np.random.default_rng(seed)
        with torch.no_grad():
            for p, part in parts:
                p[part] = draw(rng, *p[part].shape)
        x = draw(rng, *shape).requires_grad_()
        y = f(x)
        gy = draw(rng, *y.shape)
        (y * gy).sum().backward()
        grads = ", ".join(numbers(p.grad[part]) for p, part in parts)
        out.append(f'    {{"{name}", {seed}, {numbers(y)}, {numbers(x.grad)}, {{{grads}}}}},')

    linear = nn.Linear(3, 2)
    case("linear", whole(linear.parameters()), linear, 2, 2, 3)
    norm = nn.LayerNorm(4)
    case("layer_norm", whole(norm.parameters()), norm, 2, 3, 4)
    mlp = nn.Sequential(nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 3))
    case("mlp", whole(mlp.parameters()), mlp, 2, 3)

    causal = torch.triu(torch.ones(3, 3, dtype=torch.bool), 1)
    heads = Heads(4, 2, batch_first=True)
    case("self", list(heads.parts()), lambda x: heads(x, x, x, attn_mask=causal)[0], 2, 3, 4)
    memory = draw(np.random.default_rng(77), 2, 5, 4)
    cross = Heads(4, 2, batch_first=True)
    case("cross", list(cross.parts()), lambda x: cross(x, memory, memory)[0], 2, 3, 4)

    for first in (True, False):
        block = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, activation="gelu",
                                           batch_first=True, norm_first=first)
        block.self_attn.__class__ = Heads
        parts = (whole(block.norm1.parameters()) + list(block.self_attn.parts()) +
                 whole(block.norm2.parameters()) + whole(block.linear1.parameters()) +
                 whole(block.linear2.parameters()))
        case("pre" if first else "post", parts, lambda x: block(x, src_mask=causal), 2, 3, 4)
    return out + ["};"]


def optimiser_cases():
    out = ["", "// Parameters of sizes 2 and 1 after each of 20 steps; the gradients are drawn too.",
           "struct Trajectory {", "  const char* name;", "  std::vector<double> steps;", "};",
           "inline const std::vector<Trajectory> trajectories{"]

    def case(name, make):
        rng = np.random.default_rng(5)
        a = nn.Parameter(draw(rng, 2))
        b = nn.Parameter(draw(rng, 1))
        optimiser = make([a, b])
        steps = []
        for _ in range(20):
            a.grad, b.grad = draw(rng, 2), draw(rng, 1)
            optimiser.step()
            steps += [a.detach().clone(), b.detach().clone()]
        out.append(f'    {{"{name}", {numbers(torch.cat(steps))}}},')

    case("sgd", lambda p: torch.optim.SGD(p, lr=0.1))
    case("sgd decay", lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.2))
    case("momentum", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.2))
    case("nesterov", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True,
                                               weight_decay=0.2))
    case("adam", lambda p: torch.optim.Adam(p, lr=0.05))
    case("adam decay", lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.8, 0.95), eps=1e-3,
                                                  weight_decay=0.1))
    case("adamw", lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.3))
    case("groups", lambda p: torch.optim.AdamW([{"params": p[:1]}, {"params": p[1:], "lr": 0.2}],
                                               lr=0.05))
    return out + ["};"]


def schedule_cases():
    def rates(make, count):
        optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
        schedule = make(optimiser)
        seen = []
        for _ in range(count):
            seen.append(optimiser.param_groups[0]["lr"])
            optimiser.step()
            schedule.step()
        return numbers(torch.tensor(seen))

    step = rates(lambda o: torch.optim.lr_scheduler.StepLR(o, 3, 0.4), 12)
    cosine = rates(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10, 0.02), 11)
    return ["", f"inline const std::vector<double> step_rates{step};",
            f"inline const std::vector<double> cosine_rates{cosine};"]


def main():
    lines = ["// Layers, optimisers and schedules of PyTorch 1.13 in float64. Written by nn_golden.py.",
             "#pragma once", "", "#include <vector>", "", "// clang-format off",
             "namespace golden::nn {", ""]
    lines += layer_cases() + optimiser_cases() + schedule_cases()
    lines += ["", "}  // namespace golden::nn", "// clang-format on", ""]
    pathlib.Path(__file__).with_name("nn_golden.hpp").write_text("\n".join(lines))


main()

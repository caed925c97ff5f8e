#!/usr/bin/env python3
"""Writes reduce_loss_golden.hpp: values and gradients of PyTorch in float64.

Run it where Debian's python3-torch (1.13) is installed, from any folder. Every gradient is that of
sum(gy * y) with the gy printed beside it.
"""
import pathlib

import torch

torch.manual_seed(20240229)
DOUBLE = {"dtype": torch.float64}


def numbers(t):
    flat = t.detach().reshape(-1).tolist()
    text = ", ".join(repr(v).replace("inf", "kInf") for v in flat)
    return "{" + text + "}"


def gradients(y, gy, inputs):
    return torch.autograd.grad((y * gy).sum(), inputs)


def reduce_cases():
    x = torch.randn(2, 3, 2, 2, **DOUBLE)
    out = ["namespace reduce {", "inline const std::vector<double> x" + numbers(x) + ";",
           "struct Case {", "  const char* op;", "  double p;", "  std::vector<int> axes;",
           "  bool keepdim;", "  std::vector<double> y, gy, gx;", "};",
           "inline const std::vector<Case> cases{"]

    def case(op, f, axes, keepdim, p=0.0):
        leaf = x.clone().requires_grad_()
        y = f(leaf)
        gy = torch.randn_like(y)
        (gx,) = gradients(y, gy, [leaf])
        listed = "{" + ", ".join(map(str, axes)) + "}"
        out.append(f'    {{"{op}", {p}, {listed}, {"true" if keepdim else "false"}, '
                   f"{numbers(y)}, {numbers(gy)}, {numbers(gx)}}},")

    for axes, keep in [((0, 1, 2, 3), False), ((1,), True), ((0, 2), False), ((-1, -3), True)]:
        case("sum", lambda t: t.sum(axes, keep), axes, keep)
        case("mean", lambda t: t.mean(axes, keep), axes, keep)
        case("var", lambda t: t.var(axes, True, keep), axes, keep, 1.0)
        case("std", lambda t: t.std(axes, False, keep), axes, keep, 0.0)
        case("max", lambda t: t.amax(axes, keep), axes, keep)
        case("min", lambda t: t.amin(axes, keep), axes, keep)
        case("logsumexp", lambda t: t.logsumexp(axes, keep), axes, keep)
        for p in (1.0, 2.0, 3.5):
            case("norm", lambda t: torch.linalg.vector_norm(t, p, axes, keep), axes, keep, p)
    for axis in (0, 1, -1):
        case("cumsum", lambda t: t.cumsum(axis), (axis,), False)
    out.append("};\n}  // namespace reduce\n")
    return out


def layer_norm_case():
    x = (torch.randn(2, 3, 5, **DOUBLE) * 2 + 1).requires_grad_()
    w = torch.randn(5, **DOUBLE).requires_grad_()
    b = torch.randn(5, **DOUBLE).requires_grad_()
    y = torch.nn.functional.layer_norm(x, (5,), w, b, 1e-3)
    gy = torch.randn_like(y)
    gx, gw, gb = gradients(y, gy, [x, w, b])
    parts = dict(x=x, weight=w, bias=b, y=y, gy=gy, gx=gx, gw=gw, gb=gb)
    return (["namespace layer_norm {"]
            + [f"inline const std::vector<double> {k}{numbers(v)};" for k, v in parts.items()]
            + ["}  // namespace layer_norm\n"])


def cross_entropy_cases():
    logits = torch.randn(5, 4, **DOUBLE) * 3
    targets = torch.tensor([0, 3, -7, 1, 1])
    weights = torch.tensor([0.5, 2.0, 1.25, 0.75], **DOUBLE)
    out = ["namespace cross_entropy {",
           "inline const std::vector<double> logits" + numbers(logits) + ";",
           "inline const std::vector<std::int64_t> targets" + numbers(targets) + ";  // -7 ignored",
           "inline const std::vector<double> weights" + numbers(weights) + ";",
           "struct Case {", "  bool weighted;", "  double smoothing;",
           "  const char* reduction;", "  std::vector<double> y, gy, gx;", "};",
           "inline const std::vector<Case> cases{"]
    for weighted in (False, True):
        for smoothing in (0.0, 0.2):
            for reduction in ("mean", "sum", "none"):
                leaf = logits.clone().requires_grad_()
                y = torch.nn.functional.cross_entropy(
                    leaf, targets, weights if weighted else None, ignore_index=-7,
                    reduction=reduction, label_smoothing=smoothing)
                gy = torch.randn_like(y)
                (gx,) = gradients(y, gy, [leaf])
                out.append(f'    {{{"true" if weighted else "false"}, {smoothing}, "{reduction}", '
                           f"{numbers(y)}, {numbers(gy)}, {numbers(gx)}}},")
    out.append("};\n}  // namespace cross_entropy\n")
    return out


def bce_cases():
    z = torch.randn(2, 3, **DOUBLE) * 4
    t = torch.rand(2, 3, **DOUBLE)
    out = ["namespace bce {", "inline const std::vector<double> logits" + numbers(z) + ";",
           "inline const std::vector<double> targets" + numbers(t) + ";",
           "struct Case {", "  double pos_weight;", "  const char* reduction;",
           "  std::vector<double> y, gy, gz, gt;", "};", "inline const std::vector<Case> cases{"]
    for weight in (1.0, 2.5):
        for reduction in ("mean", "sum", "none"):
            zs, ts = z.clone().requires_grad_(), t.clone().requires_grad_()
            # Written out: 1.13 gives no gradient for the target.
            sp = torch.nn.functional.softplus
            y = weight * ts * sp(-zs) + (1 - ts) * sp(zs)
            y = y if reduction == "none" else getattr(y, reduction)()
            gy = torch.randn_like(y)
            gz, gt = gradients(y, gy, [zs, ts])
            out.append(f'    {{{weight}, "{reduction}", {numbers(y)}, {numbers(gy)}, '
                       f"{numbers(gz)}, {numbers(gt)}}},")
    out.append("};\n}  // namespace bce\n")
    return out


lines = ["// Values and gradients of PyTorch 1.13 in float64. Written by reduce_loss_golden.py.",
         "#pragma once\n", "#include <cstdint>", "#include <vector>\n",
         "// clang-format off", "namespace golden {\n",
         *reduce_cases(), *layer_norm_case(), *cross_entropy_cases(), *bce_cases(),
         "}  // namespace golden", "// clang-format on"]
pathlib.Path(__file__).with_suffix(".hpp").write_text("\n".join(lines) + "\n")

#!/usr/bin/env python3
"""Writes npy_golden.hpp: files of NumPy, and the numbers that each must give.

Run it where Debian's python3-numpy (1.24) is installed, from any folder.
"""
import io
import pathlib

import numpy as np

TENSOR_TYPE = {"f2": "<f4", "f4": "<f4", "f8": "<f8", "b1": "|b1"}  # all others: "<i8"
DTYPE = {"<f4": "float32", "<f8": "float64", "<i8": "int64", "|b1": "boolean"}


def literal(data):
    """Bytes as a C string; three octal digits never run into what follows."""
    text = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in data)
    return f'"{text}"sv'


def file_of(array, version=None):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version)
    return out.getvalue()


def case(name, array, version=None):
    target = TENSOR_TYPE.get(array.dtype.str[1:], "<i8")
    want = array.astype(target).tobytes(order="C")
    shape = ", ".join(map(str, array.shape))
    return (f'    {{"{name}", {literal(file_of(array, version))}, DType::{DTYPE[target]}, '
            f"{{{shape}}}, {literal(want)}}},")


cases = []
specials = [0.1, 1 / 3, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -0.0,
            123456789.12345678, 1e23, np.inf, -np.inf, np.nan]
cases.append(case("f8 specials", np.array(specials)))
with np.errstate(over="ignore"):
    cases.append(case("f4 specials", np.array(specials + [1e-45], "<f4")))
halves = np.array([0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x3c00, 0xc000, 0x7bff, 0x7c00, 0xfc00,
                   0x7e01, 0x3555], "<u2")
for order in "<>":
    cases.append(case(f"{order}f2", halves.view("<f2").astype(f"{order}f2")))
    for kind in ["f4", "f8"]:
        cases.append(case(f"{order}{kind}", np.arange(6, dtype=f"{order}{kind}").reshape(2, 3) / 7))
    for kind in ["i2", "i4", "i8", "u2", "u4"]:
        ends = np.iinfo(kind)
        cases.append(case(f"{order}{kind}", np.array([ends.min, ends.max, 1, 2], f"{order}{kind}")))
cases.append(case("i1", np.array([-128, 127, 0], "i1")))
cases.append(case("u1", np.array([255, 0, 1], "u1")))
cases.append(case("b1", np.array([[True, False], [False, True]])))
cases.append(case("rank 0", np.array(2.5)))
cases.append(case("rank 1", np.arange(5)))
cases.append(case("rank 6", np.arange(24.0).reshape(2, 1, 3, 1, 2, 2)))
cases.append(case("no numbers", np.zeros((0, 3))))
grid = np.arange(24).reshape(2, 3, 4)
cases.append(case("fortran 2", np.asfortranarray(grid[0] / 3)))
cases.append(case("fortran 3", np.asfortranarray(grid)))
cases.append(case("fortran 3 big", np.asfortranarray(grid.astype(">f4"))))
cases.append(case("fortran empty", np.zeros((3, 0, 2), order="F")))
cases.append(case("version 2", grid[0], (2, 0)))
cases.append(case("version 3", grid[0], (3, 0)))
refused = [("c16", np.zeros(2, complex)), ("u8", np.zeros(2, "u8")), ("text", np.array(["ab"])),
           ("structure", np.zeros(2, [("a", "f4"), ("b", "i4")])), ("rank 7", np.zeros((1,) * 7))]
refusals = [f'    {{"{name}", {literal(file_of(array))}}},' for name, array in refused]
nl = "\n"
(pathlib.Path(__file__).parent / "npy_golden.hpp").write_text(f"""\
// Files of NumPy {np.__version__} and the numbers in them. Written by npy_golden.py.
#pragma once

#include <string_view>
#include <vector>

#include "softtape/base/dtype.hpp"
#include "softtape/base/shape.hpp"

// clang-format off
namespace golden::npy {{

using softtape::DType;
using namespace std::string_view_literals;

struct File {{
  const char* name;
  std::string_view bytes;
  DType dtype;
  softtape::Shape shape;
  std::string_view numbers;  // row-major, little-endian
}};
inline const std::vector<File> files{{
{nl.join(cases)}
}};

struct Refused {{
  const char* name;
  std::string_view bytes;
}};
inline const std::vector<Refused> refused{{
{nl.join(refusals)}
}};

}}  // namespace golden::npy
""", encoding="utf-8")

#!/usr/bin/env python3
"""A reader and a writer of safetensors files, from the format's description alone.

    safetensors_golden.py              writes safetensors_golden.hpp beside this script
    safetensors_golden.py --read FILE  checks a file and prints its tensors, one a line

Needs nothing but Python. The tests run the second form on what softtape wrote.
"""
import json
import pathlib
import struct
import sys

BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2,
         "U16": 2, "I8": 1, "U8": 1, "BOOL": 1}


def write(tensors, metadata):
    """tensors: (name, dtype, shape, bytes). Widest first, as the Python package lays them out."""
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, dtype, shape, numbers in sorted(tensors, key=lambda t: (-BYTES[t[1]], t[0])):
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(numbers)]}
        data += numbers
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def no_doubles(pairs):
    result = dict(pairs)
    assert len(result) == len(pairs), "doubled name"
    return result


def read(file):
    length, = struct.unpack("<Q", file[:8])
    assert length % 8 == 0, "numbers are not aligned"
    text, data = file[8:8 + length], file[8 + length:]
    assert len(text) == length and text[:1] == b"{"
    header = json.loads(text, object_pairs_hook=no_doubles)
    metadata = header.pop("__metadata__", {})
    assert all(isinstance(value, str) for value in metadata.values())
    at = 0
    for entry in sorted(header.values(), key=lambda e: e["data_offsets"]):
        begin, end = entry["data_offsets"]
        count = 1
        for size in entry["shape"]:
            count *= size
        width = BYTES[entry["dtype"]]
        assert begin == at and end - begin == count * width, "hole or overlap"
        assert begin % width == 0, "not aligned"
        at = end
    assert at == len(data), "bytes left over"
    return [(name, e["dtype"], e["shape"], data[slice(*e["data_offsets"])])
            for name, e in header.items()], metadata


def literal(data):
    text = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in data)
    return f'"{text}"sv'


def widened(dtype, numbers):
    """What softtape makes of these numbers, as (dtype, bytes)."""
    if dtype == "BF16":
        return "float32", b"".join(b"\0\0" + numbers[i:i + 2] for i in range(0, len(numbers), 2))
    letters = {"F16": "e", "I32": "i", "U32": "I", "I16": "h", "U16": "H", "I8": "b", "U8": "B"}
    same = {"F32": "float32", "F64": "float64", "I64": "int64", "BOOL": "boolean"}
    if dtype in same:
        return same[dtype], numbers
    values = struct.unpack(f"<{len(numbers) // BYTES[dtype]}{letters[dtype]}", numbers)
    if dtype == "F16":
        return "float32", struct.pack(f"<{len(values)}f", *values)
    return "int64", struct.pack(f"<{len(values)}q", *values)


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--read":
        tensors, metadata = read(pathlib.Path(sys.argv[2]).read_bytes())
        for name, dtype, shape, numbers in tensors:
            print(name, dtype, "x".join(map(str, shape)) or "scalar", numbers.hex() or "empty")
        for key, value in sorted(metadata.items()):
            print(f"{key}={value}")
        return
    inf = float("inf")
    tensors = [
        ("flags", "BOOL", [3], b"\1\0\1"),
        ("model.weight", "F32", [2, 3], struct.pack("<6f", 0.1, -0.0, inf, -inf, 1e-45, 3e38)),
        ("double", "F64", [2], struct.pack("<2d", 5e-324, 1 / 3)),
        ("step", "I64", [], struct.pack("<q", -2**63)),
        ("none", "F32", [0, 4], b""),
        ("half", "F16", [4], struct.pack("<4e", 0.5, -2.0, 6e-8, inf)),
        ("brain", "BF16", [2], b"\x80\x3f\x00\xc0"),
        ("i32", "I32", [2], struct.pack("<2i", -2**31, 2**31 - 1)),
        ("u32", "U32", [2], struct.pack("<2I", 0, 2**32 - 1)),
        ("i16", "I16", [2], struct.pack("<2h", -2**15, 2**15 - 1)),
        ("u16", "U16", [1], struct.pack("<1H", 2**16 - 1)),
        ("i8", "I8", [2], struct.pack("<2b", -128, 127)),
        ("u8", "U8", [2], struct.pack("<2B", 0, 255)),
        ("gr\u00fc\u00dfe", "F32", [1], struct.pack("<f", 2.5)),
    ]
    rows = []
    file = write(tensors, {"format": "pt"})
    for name, dtype, shape, numbers in read(file)[0]:
        target, want = widened(dtype, numbers)
        rows.append(f"    {{{literal(name.encode())}, DType::{target}, "
                    f"{{{', '.join(map(str, shape))}}}, {literal(want)}}},")
    rows = "\n".join(rows)
    (pathlib.Path(__file__).parent / "safetensors_golden.hpp").write_text(f"""\
// A safetensors file and the numbers in it. Written by safetensors_golden.py.
#pragma once

#include <string_view>
#include <vector>

#include "softtape/base/dtype.hpp"
#include "softtape/base/shape.hpp"

// clang-format off
namespace golden::safetensors {{

using softtape::DType;
using namespace std::string_view_literals;

inline constexpr std::string_view file = {literal(file)};

struct Tensor {{
  std::string_view name;
  DType dtype;
  softtape::Shape shape;
  std::string_view numbers;  // row-major, little-endian
}};
inline const std::vector<Tensor> tensors{{
{rows}
}};

}}  // namespace golden::safetensors
""", encoding="utf-8")


if __name__ == "__main__":
    main()

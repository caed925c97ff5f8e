// A safetensors file and the numbers in it. Written by safetensors_golden.py.
#pragma once

#include <string_view>
#include <vector>

#include "softtape/base/dtype.hpp"
#include "softtape/base/shape.hpp"

// clang-format off
namespace golden::safetensors {

using softtape::DType;
using namespace std::string_view_literals;

inline constexpr std::string_view file = "`\003\000\000\000\000\000\000{\042__metadata__\042:{\042format\042:\042pt\042},\042double\042:{\042dtype\042:\042F64\042,\042shape\042:[2],\042data_offsets\042:[0,16]},\042step\042:{\042dtype\042:\042I64\042,\042shape\042:[],\042data_offsets\042:[16,24]},\042gr\134u00fc\134u00dfe\042:{\042dtype\042:\042F32\042,\042shape\042:[1],\042data_offsets\042:[24,28]},\042i32\042:{\042dtype\042:\042I32\042,\042shape\042:[2],\042data_offsets\042:[28,36]},\042model.weight\042:{\042dtype\042:\042F32\042,\042shape\042:[2,3],\042data_offsets\042:[36,60]},\042none\042:{\042dtype\042:\042F32\042,\042shape\042:[0,4],\042data_offsets\042:[60,60]},\042u32\042:{\042dtype\042:\042U32\042,\042shape\042:[2],\042data_offsets\042:[60,68]},\042brain\042:{\042dtype\042:\042BF16\042,\042shape\042:[2],\042data_offsets\042:[68,72]},\042half\042:{\042dtype\042:\042F16\042,\042shape\042:[4],\042data_offsets\042:[72,80]},\042i16\042:{\042dtype\042:\042I16\042,\042shape\042:[2],\042data_offsets\042:[80,84]},\042u16\042:{\042dtype\042:\042U16\042,\042shape\042:[1],\042data_offsets\042:[84,86]},\042flags\042:{\042dtype\042:\042BOOL\042,\042shape\042:[3],\042data_offsets\042:[86,89]},\042i8\042:{\042dtype\042:\042I8\042,\042shape\042:[2],\042data_offsets\042:[89,91]},\042u8\042:{\042dtype\042:\042U8\042,\042shape\042:[2],\042data_offsets\042:[91,93]}}   \001\000\000\000\000\000\000\000UUUUUU\325\077\000\000\000\000\000\000\000\200\000\000 @\000\000\000\200\377\377\377\177\315\314\314=\000\000\000\200\000\000\200\177\000\000\200\377\001\000\000\000\346\261a\177\000\000\000\000\377\377\377\377\200\077\000\300\0008\000\300\001\000\000|\000\200\377\177\377\377\001\000\001\200\177\000\377"sv;

struct Tensor {
  std::string_view name;
  DType dtype;
  softtape::Shape shape;
  std::string_view numbers;  // row-major, little-endian
};
inline const std::vector<Tensor> tensors{
    {"double"sv, DType::float64, {2}, "\001\000\000\000\000\000\000\000UUUUUU\325\077"sv},
    {"step"sv, DType::int64, {}, "\000\000\000\000\000\000\000\200"sv},
    {"gr\303\274\303\237e"sv, DType::float32, {1}, "\000\000 @"sv},
    {"i32"sv, DType::int64, {2}, "\000\000\000\200\377\377\377\377\377\377\377\177\000\000\000\000"sv},
    {"model.weight"sv, DType::float32, {2, 3}, "\315\314\314=\000\000\000\200\000\000\200\177\000\000\200\377\001\000\000\000\346\261a\177"sv},
    {"none"sv, DType::float32, {0, 4}, ""sv},
    {"u32"sv, DType::int64, {2}, "\000\000\000\000\000\000\000\000\377\377\377\377\000\000\000\000"sv},
    {"brain"sv, DType::float32, {2}, "\000\000\200\077\000\000\000\300"sv},
    {"half"sv, DType::float32, {4}, "\000\000\000\077\000\000\000\300\000\000\2003\000\000\200\177"sv},
    {"i16"sv, DType::int64, {2}, "\000\200\377\377\377\377\377\377\377\177\000\000\000\000\000\000"sv},
    {"u16"sv, DType::int64, {1}, "\377\377\000\000\000\000\000\000"sv},
    {"flags"sv, DType::boolean, {3}, "\001\000\001"sv},
    {"i8"sv, DType::int64, {2}, "\200\377\377\377\377\377\377\377\177\000\000\000\000\000\000\000"sv},
    {"u8"sv, DType::int64, {2}, "\000\000\000\000\000\000\000\000\377\000\000\000\000\000\000\000"sv},
};

}  // namespace golden::safetensors

// Named tensors in the safetensors format: a JSON header, then the numbers. PyTorch, JAX and NumPy
// users read and write such files with the package `safetensors`.
#pragma once

#include <map>
#include <string>

#include "softtape/nn/state.hpp"

namespace softtape {

/// Free text that a file carries beside its tensors.
using Metadata = std::map<std::string, std::string>;

/// What a safetensors file holds, in the order of its header.
struct SafeTensors {
  State tensors;
  Metadata metadata;
};

/// Writes tensors as F32, F64, I64 and BOOL, little-endian, through write_file. The header keeps
/// the order of `tensors`; the numbers lie widest type first, so that each is aligned.
/// Throws: ValueError for a name that is there twice, "__metadata__", or text that is not UTF-8;
/// GraphError for an undefined tensor; IoError when the file cannot be written.
SOFTTAPE_API void save_safetensors(const std::string& path, const State& tensors,
                                   const Metadata& metadata = {});

/// Reads F32, F64, I64 and BOOL as they are, F16 and BF16 as float32, I8 to I32 and U8 to U32 as
/// int64; all of these are exact.
/// Throws: IoError for a file that cannot be read, is cut or malformed (sizes that do not fit,
/// overlaps, holes, doubled names, more than 6 axes, a header beyond 100 MB, a BOOL that is neither
/// 0 nor 1), or holds another element type.
SOFTTAPE_API SafeTensors load_safetensors(const std::string& path);

}  // namespace softtape

// One tensor in NumPy's file format: what numpy.save writes and numpy.load reads.
#pragma once

#include <string>

#include "softtape/base/export.hpp"
#include "softtape/graph/tensor.hpp"

namespace softtape {

/// Writes a tensor as <f4, <f8, <i8 or |b1, version 1.0 of the format, through write_file.
/// Throws: GraphError for an undefined tensor, IoError when the file cannot be written.
SOFTTAPE_API void save_npy(const std::string& path, const Tensor& tensor);

/// Reads versions 1, 2 and 3, either byte order, C or Fortran order: f4, f8, i8 and b1 as they are,
/// f2 as float32, i1 to i4 and u1 to u4 as int64; all of these are exact.
/// Throws: IoError for a file that cannot be read, is cut, longer than its header says or
/// malformed, has more than 6 axes, a boolean that is neither 0 nor 1, or another element type.
SOFTTAPE_API Tensor load_npy(const std::string& path);

}  // namespace softtape

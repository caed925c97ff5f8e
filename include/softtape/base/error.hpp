// Error types: one root, leaves by cause. Every message reads
//   [op] rule in words: names with shapes or values; hint
// and every check runs before any work, so a call that throws has changed nothing.
#pragma once

#include <stdexcept>
#include <string>

#include "softtape/base/export.hpp"

namespace softtape {

/// Root of everything softtape throws.
class SOFTTAPE_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Sizes, ranks or axes that do not fit together.
class SOFTTAPE_API ShapeError : public Error {
 public:
  using Error::Error;
};

/// A number outside what the operation accepts: an index, a probability, a non-finite setting.
class SOFTTAPE_API ValueError : public Error {
 public:
  using Error::Error;
};

/// Element types that do not fit: mixed float types, a mask that is not boolean, text for numbers.
class SOFTTAPE_API DtypeError : public Error {
 public:
  using Error::Error;
};

/// Misuse of the graph: an undefined tensor, a second backward, a parameter changed under its
/// graph.
class SOFTTAPE_API GraphError : public Error {
 public:
  using Error::Error;
};

/// A file that cannot be read or written, or is not what it claims to be.
class SOFTTAPE_API IoError : public Error {
 public:
  using Error::Error;
};

}  // namespace softtape

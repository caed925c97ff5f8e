// Any bytes as an .npy file: an IoError, or a tensor that comes back when written.
#include "fuzz/fuzz.hpp"
#include "io/parse.hpp"
#include "softtape/base/error.hpp"
#include "softtape/ops/create.hpp"

using namespace softtape;

const std::string& fuzz::sample() {
  static const std::string bytes = detail::npy_bytes(ones({2, 3}));
  return bytes;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const Tensor x = detail::parse_npy(fuzz::view(data, size), "[fuzz]");
    fuzz::require(fuzz::same(x, detail::parse_npy(detail::npy_bytes(x), "[again]")));
  } catch (const IoError& error) {
    fuzz::require(std::string_view(error.what()).substr(0, 6) == "[fuzz]");
  }
  return 0;
}

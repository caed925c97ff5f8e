// Any bytes as a safetensors file: an IoError, or tensors that come back when written.
#include "fuzz/fuzz.hpp"
#include "io/parse.hpp"
#include "softtape/base/error.hpp"
#include "softtape/ops/create.hpp"

using namespace softtape;

const std::string& fuzz::sample() {
  static const std::string bytes = detail::safetensors_bytes(
      {{"a", ones({2, 1})}, {"b", tensor({true, false})}}, {{"key", "text"}}, "sample");
  return bytes;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const SafeTensors file = detail::parse_safetensors(fuzz::view(data, size), "[fuzz]");
    const SafeTensors again = detail::parse_safetensors(
        detail::safetensors_bytes(file.tensors, file.metadata, "again"), "[again]");
    fuzz::require(fuzz::same(file.tensors, again.tensors) && file.metadata == again.metadata);
  } catch (const IoError& error) {
    fuzz::require(std::string_view(error.what()).substr(0, 6) == "[fuzz]");
  }
  return 0;
}

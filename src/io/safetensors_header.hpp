// The JSON header of a safetensors file, before anything is known about the numbers behind it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "softtape/io/safetensors.hpp"

namespace softtape::detail {

struct HeaderEntry {
  std::string name;
  std::string dtype;  // the file's word: "F32"
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes behind the header
};

struct SafetensorsHeader {
  std::vector<HeaderEntry> entries;
  Metadata metadata;
};

/// Throws: IoError beginning with `what` unless it is JSON of the right form, every name once.
SafetensorsHeader parse_header(std::string_view json, const std::string& what);

/// The header as JSON. Throws: ValueError beginning with `what` for text that is not UTF-8.
std::string header_json(const SafetensorsHeader& header, const std::string& what);

}  // namespace softtape::detail

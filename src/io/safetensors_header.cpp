// The header, through nlohmann's JSON library, which stays inside this file. It is read event by
// event: a tree would drop the first of two entries with one name, and grow before it is checked.
#include "io/safetensors_header.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "softtape/base/error.hpp"

namespace softtape::detail {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kMetadata = "__metadata__";

// Takes {NAME: {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
// "__metadata__": {KEY: TEXT, ...}} and nothing else. The parser calls each function where it meets
// such a thing, and goes on while they return true.
class SafetensorsHeaderReader {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  explicit SafetensorsHeaderReader(const std::string& what) : what_(what) {}
  SafetensorsHeader take() { return std::move(header_); }

  bool start_object(std::size_t) {
    if (place_ == Place::outside) {
      place_ = Place::file;
    } else if (place_ == Place::file) {
      place_ = key_ == kMetadata ? Place::metadata : Place::entry;
      if (place_ == Place::entry) header_.entries.push_back({key_, {}, {}, 0, 0});
      fields_.clear();
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(string_t& key) {
    auto& known = place_ == Place::file ? names_ : fields_;
    if (!known.insert(key).second) fail(fmt::format("\"{}\" is doubled in the header", key));
    if (place_ == Place::entry && key != "dtype" && key != "shape" && key != "data_offsets") {
      fail(fmt::format("\"{}\" has an unknown field \"{}\"", name(), key));
    }
    key_ = key;
    return true;
  }

  bool end_object() {
    if (place_ == Place::entry && fields_.size() != 3) {
      fail(fmt::format("\"{}\" needs dtype, shape and data_offsets", name()));
    }
    place_ = place_ == Place::file ? Place::outside : Place::file;
    return true;
  }

  bool start_array(std::size_t) {
    if (place_ != Place::entry || key_ == "dtype") unexpected("a list");
    place_ = key_ == "shape" ? Place::shape : Place::offsets;
    offsets_ = 0;
    return true;
  }

  bool end_array() {
    if (place_ == Place::offsets && offsets_ != 2) {
      fail(fmt::format("\"{}\" needs two data_offsets", name()));
    }
    place_ = Place::entry;
    return true;
  }

  bool number_unsigned(number_unsigned_t number) {
    if (place_ == Place::shape) {
      header_.entries.back().shape.push_back(number);
    } else if (place_ == Place::offsets && offsets_ < 2) {
      (offsets_++ == 0 ? header_.entries.back().begin : header_.entries.back().end) = number;
    } else {
      unexpected("a number");
    }
    return true;
  }

  bool string(string_t& text) {
    if (place_ == Place::metadata) {
      header_.metadata.emplace(key_, text);
    } else if (place_ == Place::entry && key_ == "dtype") {
      header_.entries.back().dtype = text;
    } else {
      unexpected("text");
    }
    return true;
  }

  bool null() { unexpected("null"); }
  bool boolean(bool) { unexpected("a boolean"); }
  bool number_integer(number_integer_t) { unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) { unexpected("a fraction"); }
  bool binary(binary_t&) { unexpected("binary data"); }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::detail::exception&) {
    fail(fmt::format("the header is not JSON from byte {} on", at));
  }

 private:
  enum class Place { outside, file, metadata, entry, shape, offsets };

  const std::string& name() const { return header_.entries.back().name; }
  [[noreturn]] void fail(const std::string& why) const {
    throw IoError(fmt::format("{}: {}", what_, why));
  }
  [[noreturn]] void unexpected(const char* kind) const {
    fail(fmt::format("the header has {} in the wrong place, after \"{}\"", kind, key_));
  }

  const std::string& what_;
  SafetensorsHeader header_;
  Place place_ = Place::outside;
  std::string key_;
  int offsets_ = 0;
  std::unordered_set<std::string> names_, fields_;  // keys seen in the file, in the inner object
};

}  // namespace

SafetensorsHeader parse_header(std::string_view json, const std::string& what) {
  // The parser would stop at a zero byte and call what stands before it complete.
  if (json.empty() || json.front() != '{' || json.find('\0') != std::string_view::npos) {
    throw IoError(fmt::format("{}: the header is not a JSON object", what));
  }
  SafetensorsHeaderReader reader(what);
  Json::sax_parse(json.begin(), json.end(), &reader);
  return reader.take();
}

std::string header_json(const SafetensorsHeader& header, const std::string& what) {
  std::string text = "{";
  const auto put = [&text](const std::string& key, const Json& value) {
    if (text.size() > 1) text += ',';
    text += Json(key).dump() + ':' + value.dump();
  };
  try {
    if (!header.metadata.empty()) put(kMetadata, header.metadata);
    for (const HeaderEntry& entry : header.entries) {
      put(entry.name, {{"dtype", entry.dtype},
                       {"shape", entry.shape},
                       {"data_offsets", {entry.begin, entry.end}}});
    }
  } catch (const Json::type_error&) {
    throw ValueError(fmt::format("{}: names and metadata must be UTF-8", what));
  }
  return text + '}';
}

}  // namespace softtape::detail

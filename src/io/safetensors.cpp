// Safetensors: eight bytes of header length, the header (safetensors_header.hpp), the numbers.
// Source: the format's description in the repository huggingface/safetensors.
#include "softtape/io/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "io/elements.hpp"
#include "io/parse.hpp"
#include "io/safetensors_header.hpp"
#include "softtape/base/error.hpp"
#include "softtape/io/file.hpp"

namespace softtape {

namespace detail {

namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeader = 100'000'000;  // the limit of the Python package

struct NamedType {
  std::string_view name;
  Stored type;
};
constexpr NamedType kSafetensorsTypes[] = {
    {"F16", Stored::f16}, {"BF16", Stored::bf16}, {"F32", Stored::f32}, {"F64", Stored::f64},
    {"I8", Stored::i8},   {"I16", Stored::i16},   {"I32", Stored::i32}, {"I64", Stored::i64},
    {"U8", Stored::u8},   {"U16", Stored::u16},   {"U32", Stored::u32}, {"BOOL", Stored::boolean},
};

std::string name_of(Stored type) {
  const auto is_it = [type](const NamedType& known) { return known.type == type; };
  return std::string(
      std::find_if(std::begin(kSafetensorsTypes), std::end(kSafetensorsTypes), is_it)->name);
}

Stored type_of(const HeaderEntry& entry, const std::string& what) {
  for (const auto& [name, type] : kSafetensorsTypes) {
    if (name == entry.dtype) return type;
  }
  throw IoError(fmt::format(
      "{}: there are tensors of F32, F64, I64, BOOL and what widens to them: \"{}\" is {}", what,
      entry.name, entry.dtype));
}

// Each byte behind the header must belong to exactly one tensor.
void check_offsets(const std::vector<HeaderEntry>& entries, std::uint64_t length,
                   const std::string& what) {
  std::vector<const HeaderEntry*> in_order;
  for (const HeaderEntry& entry : entries) in_order.push_back(&entry);
  std::sort(in_order.begin(), in_order.end(), [](const HeaderEntry* a, const HeaderEntry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  std::uint64_t at = 0;
  for (const HeaderEntry* entry : in_order) {
    if (entry->begin != at || entry->end < entry->begin || entry->end > length) {
      throw IoError(fmt::format(
          "{}: tensors must lie one after the other: \"{}\" has bytes {} to {}, expected from {} "
          "on, at most to {}",
          what, entry->name, entry->begin, entry->end, at, length));
    }
    at = entry->end;
  }
  if (at != length) {
    throw IoError(fmt::format("{}: {} bytes too many at the end", what, length - at));
  }
}

}  // namespace

SafeTensors parse_safetensors(std::string_view bytes, const std::string& what) {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes && i < bytes.size(); ++i) {
    length |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  if (bytes.size() < kLengthBytes || length > kMaxHeader || length > bytes.size() - kLengthBytes) {
    throw IoError(fmt::format(
        "{}: not a safetensors file, or cut: {} bytes do not hold a header of {} (at most {})",
        what, bytes.size(), length, kMaxHeader));
  }
  SafetensorsHeader header = parse_header(bytes.substr(kLengthBytes, length), what);
  const std::string_view data = bytes.substr(kLengthBytes + length);
  check_offsets(header.entries, data.size(), what);

  SafeTensors file{{}, std::move(header.metadata)};
  for (const HeaderEntry& entry : header.entries) {
    const Stored type = type_of(entry, what);
    const std::string whose = fmt::format("{}, \"{}\"", what, entry.name);
    const std::uint64_t size = entry.end - entry.begin;
    const Shape shape = stored_shape(entry.shape, type, size, whose);
    file.tensors.emplace_back(entry.name, decode(type, shape, data.substr(entry.begin, size),
                                                 std::endian::little, whose));
  }
  return file;
}

std::string safetensors_bytes(const State& tensors, const Metadata& metadata, const char* op) {
  SafetensorsHeader header{{}, metadata};
  std::unordered_set<std::string_view> seen;
  for (const auto& [name, tensor] : tensors) {
    if (name == "__metadata__" || !seen.insert(name).second) {
      throw ValueError(fmt::format(
          "[{}] every tensor needs a name of its own: \"{}\" is doubled or reserved", op, name));
    }
    if (!tensor.defined()) {
      throw GraphError(fmt::format("[{}] undefined tensor: \"{}\"", op, name));
    }
    header.entries.push_back({name,
                              name_of(stored(tensor.dtype())),
                              {tensor.shape().begin(), tensor.shape().end()},
                              0,
                              0});
  }
  // Readers map files into memory, so every number must be aligned: wide types go first.
  std::string data;
  for (const std::size_t bytes : {8u, 4u, 1u}) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Tensor& tensor = tensors[i].second;
      if (size_of(tensor.dtype()) != bytes) continue;
      header.entries[i].begin = data.size();
      encode(tensor, data);
      header.entries[i].end = data.size();
    }
  }

  std::string json = header_json(header, fmt::format("[{}]", op));
  json.resize((json.size() + 7) / 8 * 8, ' ');
  if (json.size() > kMaxHeader) {
    throw ValueError(fmt::format("[{}] names and metadata must fit {} bytes: they take {}", op,
                                 kMaxHeader, json.size()));
  }
  std::string file;
  file.reserve(kLengthBytes + json.size() + data.size());
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    file += static_cast<char>(json.size() >> (8 * i) & 0xff);
  }
  return file += json += data;
}

}  // namespace detail

void save_safetensors(const std::string& path, const State& tensors, const Metadata& metadata) {
  write_file(path, detail::safetensors_bytes(tensors, metadata, "save_safetensors"));
}

SafeTensors load_safetensors(const std::string& path) {
  return detail::parse_safetensors(read_file(path), fmt::format("[load_safetensors] '{}'", path));
}

}  // namespace softtape

// .npy: a magic word, a version, a Python dictionary as text, the numbers.
// Source: NumPy's documentation of numpy.lib.format.
#include "softtape/io/npy.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <vector>

#include "io/elements.hpp"
#include "io/parse.hpp"
#include "softtape/base/error.hpp"
#include "softtape/io/file.hpp"
#include "softtape/ops/shape.hpp"

namespace softtape {

namespace detail {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct NpyType {
  std::string_view name;  // without the byte order
  Stored type;
};
constexpr NpyType kNpyTypes[] = {
    {"f4", Stored::f32}, {"f8", Stored::f64}, {"f2", Stored::f16},     {"i8", Stored::i64},
    {"i4", Stored::i32}, {"i2", Stored::i16}, {"i1", Stored::i8},      {"u4", Stored::u32},
    {"u2", Stored::u16}, {"u1", Stored::u8},  {"b1", Stored::boolean},
};

struct NpyHeader {
  Stored type = Stored::f32;
  std::endian order = std::endian::little;
  bool fortran = false;
  std::vector<std::uint64_t> shape;
};

// Reads {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }, keys in any order.
class NpyHeaderReader {
 public:
  NpyHeaderReader(std::string_view text, const std::string& what) : rest_(text), what_(what) {}

  NpyHeader read() {
    std::optional<std::string_view> descr;
    std::optional<bool> fortran;
    std::optional<std::vector<std::uint64_t>> shape;
    expect("{");
    while (!take("}")) {
      const std::string_view key = quoted();
      expect(":");
      if (key == "descr" && !descr) {
        descr = quoted();
      } else if (key == "fortran_order" && !fortran) {
        fortran = take("True");
        if (!*fortran) expect("False");
      } else if (key == "shape" && !shape) {
        shape = tuple();
      } else {
        fail(fmt::format("key '{}' is unknown or doubled", key));
      }
      if (!take(",")) {
        expect("}");
        break;
      }
    }
    skip_blanks();
    if (!rest_.empty()) fail("there is text behind the dictionary");
    if (!descr || !fortran || !shape) fail("descr, fortran_order and shape must be there");
    NpyHeader header{.fortran = *fortran, .shape = std::move(*shape)};
    read_type(*descr, header);
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw IoError(fmt::format("{}: bad header: {}", what_, why));
  }

  void skip_blanks() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
  }
  bool take(std::string_view word) {
    skip_blanks();
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void expect(std::string_view word) {
    if (!take(word)) fail(fmt::format("expected {}", word));
  }

  std::string_view quoted() {
    skip_blanks();
    const char quote = rest_.empty() ? '\0' : rest_.front();
    if (quote != '\'' && quote != '"')
      fail("expected text in quotes (structured types are not read)");
    const std::size_t end = rest_.find(quote, 1);
    if (end == std::string_view::npos) fail("a quote does not end");
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }

  // () or (2,) or (2, 3) or (2, 3,)
  std::vector<std::uint64_t> tuple() {
    std::vector<std::uint64_t> sizes;
    expect("(");
    if (take(")")) return sizes;
    for (;;) {
      sizes.push_back(number());
      const bool comma = take(",");
      if (take(")")) {
        if (!comma && sizes.size() == 1) fail("a tuple of one needs a comma");
        return sizes;
      }
      if (!comma) fail("sizes must be separated by commas");
    }
  }

  std::uint64_t number() {
    skip_blanks();
    std::uint64_t value = 0;
    const char* begin = rest_.data();
    const auto [end, error] = std::from_chars(begin, begin + rest_.size(), value);
    const auto digits = static_cast<std::size_t>(end - begin);
    if (error != std::errc() || (digits > 1 && rest_.front() == '0')) fail("expected a size");
    rest_.remove_prefix(digits);
    return value;
  }

  void read_type(std::string_view descr, NpyHeader& header) const {
    for (const auto& [name, type] : kNpyTypes) {
      if (descr.size() < 2 || descr.substr(1) != name) continue;
      const char order = descr.front();
      if (order != '<' && order != '>' && !(order == '|' && width(type) == 1)) break;
      header.type = type;
      header.order = order == '>' ? std::endian::big : std::endian::little;
      return;
    }
    throw IoError(fmt::format(
        "{}: there are tensors of f4, f8, i8, b1 and what widens to them: its type is '{}'", what_,
        descr));
  }

  std::string_view rest_;
  const std::string& what_;
};

}  // namespace

Tensor parse_npy(std::string_view bytes, const std::string& what) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  if (bytes.substr(0, kMagic.size()) != kMagic || bytes.size() < kMagic.size() + 2) {
    throw IoError(fmt::format("{}: not an .npy file, or cut: {} bytes", what, bytes.size()));
  }
  const int version = byte(kMagic.size());
  if (version < 1 || version > 3 || byte(kMagic.size() + 1) != 0) {
    throw IoError(fmt::format("{}: versions 1.0, 2.0 and 3.0 are read: it is {}.{}", what, version,
                              byte(kMagic.size() + 1)));
  }
  const std::size_t length_at = kMagic.size() + 2;
  const std::size_t text_at = length_at + (version == 1 ? 2 : 4);
  std::size_t length = 0;
  for (std::size_t i = length_at; i < text_at && i < bytes.size(); ++i) {
    length |= std::size_t{byte(i)} << (8 * (i - length_at));
  }
  if (bytes.size() < text_at || bytes.size() - text_at < length) {
    throw IoError(fmt::format("{}: cut in its header: {} bytes", what, bytes.size()));
  }
  const NpyHeader header = NpyHeaderReader(bytes.substr(text_at, length), what).read();
  const std::string_view data = bytes.substr(text_at + length);
  const Shape shape = stored_shape(header.shape, header.type, data.size(), what);
  if (!header.fortran || shape.rank() < 2)
    return decode(header.type, shape, data, header.order, what);
  // In Fortran order the first axis runs fastest: that is the transpose, row by row.
  std::vector<std::int64_t> sizes(shape.begin(), shape.end());
  std::reverse(sizes.begin(), sizes.end());
  std::vector<int> axes(sizes.size());
  std::iota(axes.rbegin(), axes.rend(), 0);
  return permute(decode(header.type, Shape(sizes), data, header.order, what), axes);
}

std::string npy_bytes(const Tensor& tensor) {
  if (!tensor.defined()) throw GraphError("[save_npy] undefined tensor");
  constexpr const char* kDescr[] = {"<f4", "<f8", "<i8", "|b1"};
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}",
                  kDescr[static_cast<int>(tensor.dtype())], to_string(tensor.shape()));
  // NumPy maps files into memory: the numbers begin at a multiple of 64, behind a line end.
  const std::size_t before = kMagic.size() + 4;
  text.resize((before + text.size() + 1 + 63) / 64 * 64 - before - 1, ' ');
  text += '\n';
  std::string bytes(kMagic);
  bytes +=
      {'\x01', '\x00', static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  bytes += text;
  encode(tensor, bytes);
  return bytes;
}

}  // namespace detail

void save_npy(const std::string& path, const Tensor& tensor) {
  write_file(path, detail::npy_bytes(tensor));
}

Tensor load_npy(const std::string& path) {
  return detail::parse_npy(read_file(path), fmt::format("[load_npy] '{}'", path));
}

}  // namespace softtape

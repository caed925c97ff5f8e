// Safetensors files: the format's, ours, and everything that is neither.
#include "softtape/io/safetensors.hpp"

#include <array>
#include <cstdio>

#include "golden/safetensors_golden.hpp"
#include "io/support.hpp"
#include "softtape/base/error.hpp"
#include "softtape/ops/create.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;
using io_test::bytes_of;
using io_test::put;
using io_test::raw;
using test_support::Folder;

namespace {

// A file with this header and this many zero bytes behind it.
std::string safetensors_file(const std::string& header, std::size_t bytes = 0) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return out + header + std::string(bytes, '\0');
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{}]}})", name, dtype,
                     shape, offsets);
}

State sample() {
  return {{"flags", tensor({true, false, true})},
          {"block.weight", tensor({{0.5, -0.0, test_support::kNaN}}, {.dtype = DType::float32})},
          {"step", scalar(std::int64_t{-7})},
          {"none", zeros({0, 3})},
          {"lr", scalar(5e-324, {.dtype = DType::float64})},
          {"six", ones({1, 2, 1, 1, 1, 1}, {.requires_grad = true})}};
}

std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string out;
  std::array<char, 4096> block{};
  while (std::fgets(block.data(), block.size(), pipe)) out += block.data();
  CHECK(::pclose(pipe) == 0);
  return out;
}

}  // namespace

TEST_CASE("safetensors: a file of another writer gives its numbers, wider where need be") {
  const test_support::LeakGuard leaks;
  const Folder folder;
  put(folder / "x.st", golden::safetensors::file);
  const SafeTensors got = load_safetensors(folder / "x.st");
  const auto& want = golden::safetensors::tensors;
  REQUIRE(got.tensors.size() == want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    CAPTURE(want[i].name);
    const Tensor& tensor = got.tensors[i].second;
    CHECK(got.tensors[i].first == want[i].name);
    CHECK(tensor.dtype() == want[i].dtype);
    CHECK(tensor.shape() == want[i].shape);
    CHECK(raw(tensor) == want[i].numbers);
  }
  CHECK(got.metadata == Metadata{{"format", "pt"}});
}

TEST_CASE("safetensors: CKP-006, order, shapes and every bit come back") {
  const test_support::LeakGuard leaks;
  const Folder folder;
  const State state = sample();
  const Metadata metadata{{"", "empty key"}, {"note", "\"quotes\" \n \xc3\xa4"}};
  save_safetensors(folder / "x.st", state, metadata);
  const SafeTensors got = load_safetensors(folder / "x.st");
  CHECK(io_test::same_state(got.tensors, state));
  CHECK(got.metadata == metadata);
  save_safetensors(folder / "none.st", {});
  CHECK(load_safetensors(folder / "none.st").tensors.empty());
  CHECK(folder.entries() == 2);
}

TEST_CASE("safetensors: another reader takes our files") {
  const Folder folder;
  save_safetensors(folder / "x.st", sample(), {{"format", "pt"}});
  CHECK(output_of("python3 golden/safetensors_golden.py --read " + (folder / "x.st")) ==
        "flags BOOL 3 010001\n"
        "block.weight F32 1x3 0000003f000000800000c07f\n"
        "step I64 scalar f9ffffffffffffff\n"
        "none F32 0x3 empty\n"
        "lr F64 scalar 0100000000000000\n"
        "six F32 1x2x1x1x1x1 0000803f0000803f\n"
        "format=pt\n");
}

TEST_CASE("safetensors: what cannot be written is refused before a file is touched") {
  const Folder folder;
  const std::string path = folder / "x.st";
  const Tensor x = ones({2});
  CHECK_THROWS_SAYING(ValueError, "save_safetensors", "\"a\"",
                      save_safetensors(path, {{"a", x}, {"b", x}, {"a", x}}));
  CHECK_THROWS_SAYING(ValueError, "save_safetensors", "\"__metadata__\"",
                      save_safetensors(path, {{"__metadata__", x}}));
  CHECK_THROWS_SAYING(GraphError, "save_safetensors", "undefined tensor: \"a\"",
                      save_safetensors(path, {{"a", Tensor()}}));
  CHECK_THROWS_SAYING(ValueError, "save_safetensors", "UTF-8",
                      save_safetensors(path, {{"\xff", x}}));
  CHECK_THROWS_SAYING(ValueError, "save_safetensors", "UTF-8",
                      save_safetensors(path, {{"a", x}}, {{"k", "\xc3"}}));
  CHECK_THROWS_AS(save_safetensors(folder / "no/x.st", {{"a", x}}), IoError);
  CHECK(folder.entries() == 0);
}

TEST_CASE("safetensors: malformed headers are refused and say why") {
  const Folder folder;
  const std::string path = folder / "x.st";
  const auto refuse = [&](const std::string& words, const std::string& bytes) {
    CAPTURE(bytes);
    put(path, bytes);
    CHECK_THROWS_SAYING(IoError, "load_safetensors", words, load_safetensors(path));
  };
  const std::string a = entry("a", "F32", "2", "0,8");
  // The length.
  refuse("0 bytes do not hold", "");
  refuse("7 bytes do not hold", std::string(7, '\0'));
  refuse("a header of 100", safetensors_file("{}").replace(0, 1, "d"));
  refuse("at most 100000000", std::string(100, '\xff'));
  // The text.
  refuse("not a JSON object", safetensors_file(""));
  refuse("not a JSON object", safetensors_file("[1]"));
  refuse("not a JSON object", safetensors_file(" {}"));
  refuse("not a JSON object", safetensors_file(std::string("{}\0", 3)));
  refuse("not JSON", safetensors_file("{"));
  refuse("not JSON", safetensors_file("{} x"));
  refuse("not JSON", safetensors_file("{" + a + ",}", 8));
  refuse("not JSON", safetensors_file("{\"\xff\":{}}"));
  refuse("not JSON", safetensors_file("{\"a\":NaN}"));
  // The structure.
  refuse("a list in the wrong place", safetensors_file("{\"a\":" + std::string(100'000, '[')));
  refuse("an object in the wrong place", safetensors_file("{\"a\":{\"dtype\":{}}}"));
  refuse("a number in the wrong place", safetensors_file("{\"a\":1}"));
  refuse("text in the wrong place", safetensors_file("{\"a\":\"b\"}"));
  refuse("null in the wrong place", safetensors_file("{\"a\":null}"));
  refuse("a boolean in the wrong place", safetensors_file("{\"a\":{\"dtype\":true}}"));
  refuse("a number in the wrong place", safetensors_file("{\"__metadata__\":{\"k\":1}}"));
  refuse("an object in the wrong place", safetensors_file("{\"__metadata__\":{\"k\":{}}}"));
  refuse("needs dtype, shape and data_offsets",
         safetensors_file(R"({"a":{"dtype":"F32","shape":[2]}})", 8));
  refuse("unknown field \"more\"", safetensors_file(R"({"a":{"more":1}})"));
  refuse("two data_offsets", safetensors_file("{" + entry("a", "F32", "2", "0") + "}", 8));
  refuse("a number in the wrong place",
         safetensors_file("{" + entry("a", "F32", "2", "0,8,8") + "}", 8));
  refuse("a negative number", safetensors_file("{" + entry("a", "F32", "-2", "0,8") + "}", 8));
  refuse("a fraction", safetensors_file("{" + entry("a", "F32", "2.0", "0,8") + "}", 8));
  refuse("a fraction",
         safetensors_file("{" + entry("a", "F32", "18446744073709551616", "0,8") + "}", 8));
  // Doubled names, at every level.
  refuse("\"a\" is doubled",
         safetensors_file("{" + a + "," + entry("a", "F32", "2", "8,16") + "}", 16));
  refuse("\"k\" is doubled", safetensors_file(R"({"__metadata__":{"k":"1","k":"2"}})"));
  refuse("\"__metadata__\" is doubled",
         safetensors_file(R"({"__metadata__":{},"__metadata__":{}})"));
  refuse("\"dtype\" is doubled", safetensors_file(R"({"a":{"dtype":"F32","dtype":"F32"}})"));
  // Element types.
  refuse("\"a\" is U64", safetensors_file("{" + entry("a", "U64", "1", "0,8") + "}", 8));
  refuse("\"a\" is F8_E4M3", safetensors_file("{" + entry("a", "F8_E4M3", "8", "0,8") + "}", 8));
  refuse("\"a\" is f32", safetensors_file("{" + entry("a", "f32", "2", "0,8") + "}", 8));
}

TEST_CASE("safetensors: bytes must belong to one tensor each") {
  const Folder folder;
  const std::string path = folder / "x.st";
  const auto refuse = [&](const std::string& words, const std::string& entries, std::size_t bytes) {
    CAPTURE(entries);
    put(path, safetensors_file("{" + entries + "}", bytes));
    CHECK_THROWS_SAYING(IoError, "load_safetensors", words, load_safetensors(path));
  };
  const auto f32 = [](const std::string& name, const std::string& shape,
                      const std::string& offsets) { return entry(name, "F32", shape, offsets); };
  refuse("one after the other", f32("a", "2", "4,12"), 12);                               // hole
  refuse("one after the other", f32("a", "2", "0,8") + "," + f32("b", "2", "4,12"), 12);  // overlap
  refuse("one after the other", f32("a", "2", "0,8") + "," + f32("b", "2", "0,8"), 8);
  refuse("one after the other", f32("a", "2", "0,8"), 7);
  refuse("one after the other", f32("a", "2", "8,0"), 8);
  refuse("one after the other", f32("a", "2", "18446744073709551608,0"), 8);
  refuse("1 bytes too many", f32("a", "2", "0,8"), 9);
  refuse("8 bytes too many", "", 8);
  refuse("sizes must fit", f32("a", "3", "0,8"), 8);
  refuse("sizes must fit", f32("a", "2", "0,7"), 7);
  refuse("sizes must fit", f32("a", "4294967296,4294967296", "0,0"), 0);
  refuse("sizes must fit", f32("a", "4611686018427387906", "0,8"), 8);
  refuse("sizes must fit", f32("a", "18446744073709551615", "0,0"), 0);
  refuse("sizes must fit", f32("a", "1000000000000", "0,8"), 8);
  refuse("at most 6 axes: got 7", f32("a", "1,1,1,1,1,1,2", "0,8"), 8);
  put(path, safetensors_file("{" + f32("b", "1", "4,8") + "," + f32("e", "0", "4,4") + "," +
                                 f32("a", "", "0,4") + "}  ",
                             8));
  const State state = load_safetensors(path).tensors;
  REQUIRE(state.size() == 3);
  CHECK(state[0].first == "b");
}

TEST_CASE("safetensors: any damage is an error, or costs the numbers that it hit") {
  const test_support::LeakGuard leaks;
  const Folder folder;
  const std::string path = folder / "x.st";
  const State state{{"w", tensor({0.5, -1.5}, {.dtype = DType::float32})},
                    {"n", scalar(std::int64_t{3})},
                    {"b", tensor({true, false})}};
  save_safetensors(path, state, {{"k", "v"}});
  const std::string good = bytes_of(path);
  const std::size_t data_at = good.size() - (8 + 8 + 2);
  int errors = 0;
  io_test::for_each_damage(
      good, [&](const std::string& what, const std::string& bad, std::size_t at, bool cut) {
        put(path, bad);
        try {
          const SafeTensors got = load_safetensors(path);
          std::string data;
          for (const std::size_t i : {1u, 0u, 2u}) data += raw(got.tensors.at(i).second);
          CHECK_MESSAGE((!cut && data == bad.substr(data_at)), what);
        } catch (const IoError&) {
          ++errors;
          CHECK_MESSAGE((cut || at < data_at || at + 2 >= good.size()), what);
        }
      });
  CHECK(errors > static_cast<int>(good.size()));
}

TEST_CASE("safetensors: a missing file, a folder, a random one") {
  const Folder folder;
  CHECK_THROWS_SAYING(IoError, "read_file", "No such file", load_safetensors(folder / "none"));
  CHECK_THROWS_SAYING(IoError, "read_file", "directory", load_safetensors(folder.path()));
  Rng rng(1);
  for (int i = 0; i < 50; ++i) {
    std::string noise;
    for (int k = 0; k < 300; ++k) noise += static_cast<char>(rng.integers(0, 256));
    put(folder / "x", i % 2 ? noise : safetensors_file("{" + noise + "}", 8));
    CHECK_THROWS_SAYING(IoError, "load_safetensors", "/x'", load_safetensors(folder / "x"));
  }
}

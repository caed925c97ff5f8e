// .npy files: NumPy's own, ours, and everything that is neither.
#include "softtape/io/npy.hpp"

#include "golden/npy_golden.hpp"
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

// A file of version 1 with this dictionary and these bytes behind it.
std::string npy_file(const std::string& dictionary, const std::string& data = "") {
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(dictionary.size() & 0xff);
  bytes += static_cast<char>(dictionary.size() >> 8);
  return bytes + dictionary + data;
}

}  // namespace

TEST_CASE("npy: NumPy's files give NumPy's numbers") {
  const test_support::LeakGuard leaks;
  const Folder folder;
  for (const auto& golden : golden::npy::files) {
    CAPTURE(golden.name);
    put(folder / "x.npy", golden.bytes);
    const Tensor x = load_npy(folder / "x.npy");
    CHECK(x.dtype() == golden.dtype);
    CHECK(to_string(x.shape()) == to_string(golden.shape));
    CHECK(raw(x) == golden.numbers);
    CHECK_FALSE(x.requires_grad());
  }
}

TEST_CASE("npy: softtape's files are NumPy's, byte for byte") {
  const Folder folder;
  int compared = 0;
  for (const auto& golden : golden::npy::files) {
    const std::string_view name = golden.name;
    if (name != "f8 specials" && name != "f4 specials" && name != "b1" && name != "rank 0" &&
        name != "rank 1" && name != "rank 6" && name != "no numbers" && name != "<f4" &&
        name != "<f8" && name != "<i8") {
      continue;
    }
    CAPTURE(golden.name);
    put(folder / "x.npy", golden.bytes);
    save_npy(folder / "y.npy", load_npy(folder / "x.npy"));
    CHECK(bytes_of(folder / "y.npy") == golden.bytes);
    ++compared;
  }
  CHECK(compared == 10);
}

TEST_CASE("npy: CKP-006, numbers come back bit for bit, gradients or not") {
  const Folder folder;
  const std::vector<double> numbers{0.1,
                                    1.0 / 3,
                                    5e-324,
                                    2.2250738585072014e-308,
                                    1.7976931348623157e308,
                                    -0.0,
                                    123456789.12345678,
                                    1e23,
                                    test_support::kInf,
                                    -test_support::kInf,
                                    test_support::kNaN};
  for (const DType dtype : test_support::kFloats) {
    const Tensor x = tensor(numbers, {.dtype = dtype, .requires_grad = true});
    save_npy(folder / "x.npy", x);
    CHECK(test_support::same_bits(load_npy(folder / "x.npy"), x));
  }
}

TEST_CASE("npy: other element types, too many axes and undefined tensors are refused") {
  const Folder folder;
  for (const auto& golden : golden::npy::refused) {
    CAPTURE(golden.name);
    put(folder / "x.npy", golden.bytes);
    const std::string_view which = golden.name;
    const std::string words = which == "c16"         ? "'<c16'"
                              : which == "u8"        ? "'<u8'"
                              : which == "text"      ? "'<U2'"
                              : which == "structure" ? "structured"
                                                     : "at most 6 axes: got 7";
    CHECK_THROWS_SAYING(IoError, "load_npy", words, load_npy(folder / "x.npy"));
  }
  CHECK_THROWS_SAYING(GraphError, "save_npy", "undefined", save_npy(folder / "y.npy", Tensor()));
  CHECK(folder.entries() == 1);
}

TEST_CASE("npy: the header may be laid out otherwise, but not say anything else") {
  const Folder folder;
  const std::string path = folder / "x.npy";
  const std::string two(8, '\0');
  for (const char* good : {"{'descr':'<f4','fortran_order':False,'shape':(2,)}",
                           "{\"shape\": ( 2 , ),\"descr\": \"<f4\", "
                           "\"fortran_order\" : True , }  \n",
                           "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2,), }"}) {
    put(path, npy_file(good, two));
    CHECK(load_npy(path).numel() == 2);
  }
  for (const char* bad : {"",
                          "{",
                          "{}",
                          "{'descr': '<f4'}",
                          "{'descr': '<f4', 'fortran_order': False}",
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (2)}",
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)",
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (2,",
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (2 1)}",
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (02,)}",
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (+2,)}",
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (2L,)}",
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (2.0,)}",
                          "{'descr': '<f4', 'fortran_order': False, 'shape': [2]}",
                          "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x",
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}",
                          "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
                          "{'descr': '<f4' 'fortran_order': False, 'shape': (2,)}",
                          "{'descr': '<f4, 'fortran_order': False, 'shape': (2,)}",
                          "{'descr': '|f4', 'fortran_order': False, 'shape': (2,)}",
                          "{'descr': 'f4', 'fortran_order': False, 'shape': (2,)}",
                          "{'descr': '', 'fortran_order': False, 'shape': (2,)}"}) {
    CAPTURE(bad);
    put(path, npy_file(bad, two));
    CHECK_THROWS_SAYING(IoError, "load_npy", "x.npy", load_npy(path));
  }
}

TEST_CASE("npy: sizes that do not fit the file are refused before anything is allocated") {
  const Folder folder;
  const std::string path = folder / "x.npy";
  const auto refuse = [&](const std::string& shape, std::size_t bytes) {
    CAPTURE(shape);
    put(path, npy_file("{'descr': '<f8', 'fortran_order': False, 'shape': " + shape + "}",
                       std::string(bytes, '\0')));
    CHECK_THROWS_SAYING(IoError, "load_npy", "sizes must fit", load_npy(path));
  };
  refuse("(2,)", 15);
  refuse("(2,)", 17);
  refuse("(2,)", 0);
  refuse("()", 0);
  refuse("(0,)", 8);
  refuse("(1000000000000,)", 16);
  refuse("(4294967296, 4294967296)", 0);  // 2^64 is 0 in 64 bits
  refuse("(2305843009213693953,)", 8);    // 8 times this is 8 in 64 bits
  refuse("(9223372036854775808,)", 0);    // -2^63 in 63 bits
  refuse("(18446744073709551615, 2)", 8);
  put(path, npy_file("{'descr': '<f8', 'fortran_order': False, 'shape': (18446744073709551616,)}"));
  CHECK_THROWS_SAYING(IoError, "load_npy", "expected a size", load_npy(path));
}

TEST_CASE("npy: any damage is an error, or costs the number that it hit") {
  const test_support::LeakGuard leaks;
  const Folder folder;
  const std::string path = folder / "x.npy";
  for (const Tensor& x : {tensor({{1.5, -2.0}, {3.0, 0.25}}, {.dtype = DType::float32}),
                          tensor({true, false, true}), tensor({{1, 2, 3}})}) {
    save_npy(path, x);
    const std::string good = bytes_of(path);
    const std::size_t data_at = good.size() - raw(x).size();
    int errors = 0;
    io_test::for_each_damage(
        good, [&](const std::string& what, const std::string& bad, std::size_t at, bool cut) {
          put(path, bad);
          bool loaded = true;
          try {
            const Tensor y = load_npy(path);
            // The numbers themselves carry no checksum; the header's blanks may be other blanks.
            const std::string got = raw(y);
            const bool fits = !cut && got.size() == raw(x).size() && got == bad.substr(data_at);
            CHECK_MESSAGE(fits, what);
            if (at < data_at) CHECK_MESSAGE(got == raw(x), what);
          } catch (const IoError&) {
            loaded = false;
            ++errors;
          }
          CHECK_MESSAGE(
              (loaded || cut || at < data_at || at == good.size() || x.dtype() == DType::boolean),
              what);
        });
    CHECK(errors > static_cast<int>(good.size()));
  }
}

TEST_CASE("npy: a missing file, a folder, an empty and a random one") {
  const Folder folder;
  CHECK_THROWS_SAYING(IoError, "read_file", "No such file", load_npy(folder / "none"));
  CHECK_THROWS_SAYING(IoError, "read_file", "directory", load_npy(folder.path()));
  put(folder / "x", "");
  CHECK_THROWS_SAYING(IoError, "load_npy", "0 bytes", load_npy(folder / "x"));
  Rng rng(1);
  for (int i = 0; i < 50; ++i) {
    std::string noise = i % 2 ? "\x93NUMPY\x01" : "";
    for (int k = 0; k < 300; ++k) noise += static_cast<char>(rng.integers(0, 256));
    put(folder / "x", noise);
    CHECK_THROWS_SAYING(IoError, "load_npy", "/x'", load_npy(folder / "x"));
  }
  CHECK_THROWS_AS(save_npy(folder / "no/x.npy", ones({2})), IoError);
}

// The random generator against NumPy, to the bit: streams by seed, mixed draws, choices, children
// and saved states.
#include "softtape/base/random.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "base/numpy_rng_data.hpp"
#include "support/sha256.hpp"

namespace softtape {
namespace {

using test::seed_cases;
using test::sha256_of;
using Integers = std::vector<std::int64_t>;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

/// `n` numbers that `fill(span)` draws.
template <typename T, typename Fill>
std::vector<T> drawn(std::size_t n, Fill&& fill) {
  std::vector<T> values(n);
  fill(std::span<T>(values));
  return values;
}

template <typename T, std::size_t N>
std::vector<T> vector_of(const std::array<T, N>& values) {
  return {values.begin(), values.end()};
}

template <typename T>
void check_reals(const std::vector<T>& values, const test::SeedCase::Reals& expected) {
  for (std::size_t i = 0; i < expected.first.size(); ++i) {
    CHECK(static_cast<double>(values[i]) == expected.first[i]);
  }
  CHECK(static_cast<double>(values.back()) == expected.last);
  CHECK(sha256_of(values) == expected.hash);
}

TEST_CASE("random: SHA-256 of the standard's own examples") {
  const auto hash = [](const std::string& text) {
    return sha256_of(std::vector<char>(text.begin(), text.end()));
  };
  CHECK(hash("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST_CASE("random: seeding and raw words are NumPy's") {
  for (const auto& c : seed_cases()) {
    CAPTURE(c.name);
    Rng rng(c.seeds);
    const RngState& s = rng.state();
    CHECK(std::array{s.state_high, s.state_low, s.inc_high, s.inc_low} == c.state);
    for (const std::uint64_t word : c.raw) CHECK(rng.next_uint64() == word);
  }
}

TEST_CASE("random: one seed can be given in several ways") {
  CHECK(Rng(42).state() == Rng({42}).state());
  CHECK(Rng(std::uint64_t{3} << 32 | 5).state() == Rng({5, 3}).state());
  CHECK(Rng({std::uint64_t{1} << 40, 3}).state() == Rng({0, 256, 3}).state());
  CHECK(Rng(std::vector<std::uint64_t>{}).random() == Rng(0).random());
  CHECK(Rng({7, 3}).state() != Rng({3, 7}).state());
}

TEST_CASE("random: uniform and normal streams are NumPy's, in double and float") {
  for (const auto& c : seed_cases()) {
    CAPTURE(c.name);
    const Rng fresh(c.seeds);
    Rng rng = fresh;
    check_reals(drawn<double>(1000000, [&](auto out) { rng.random(out); }), c.random);
    rng = fresh;
    check_reals(drawn<float>(100001, [&](auto out) { rng.random(out); }), c.random_float);
    rng = fresh;
    const auto normals = drawn<double>(1000000, [&](auto out) { rng.standard_normal(out); });
    check_reals(normals, c.standard_normal);
    const auto [least, most] = std::minmax_element(normals.begin(), normals.end());
    CHECK(std::max(-*least, *most) == c.normal_max_abs);
    rng = fresh;
    check_reals(drawn<float>(100001, [&](auto out) { rng.standard_normal(out); }),
                c.standard_normal_float);
    rng = fresh;
    CHECK(drawn<double>(6, [&](auto out) { rng.normal(out, 1.5, 0.1); }) == vector_of(c.normal));
    rng = fresh;
    CHECK(drawn<double>(5, [&](auto out) { rng.uniform(out, -2, 3); }) == vector_of(c.uniform));
  }
}

TEST_CASE("random: scaled draws are rounded twice, as in NumPy") {
  Rng rng(42);
  CHECK(sha256_of(drawn<double>(100001, [&](auto out) { rng.normal(out, 1.5, 0.1); })) ==
        "4989fa50b7c1ffdbbc55e1856f06629d38a5a3aef5932c817e4d32d407d6327e");
  rng = Rng(42);
  CHECK(sha256_of(drawn<double>(100001, [&](auto out) { rng.uniform(out, -2, 3); })) ==
        "566601e9f35550d28555a7aa5e7efe4762fe21fdc253ea7f52c5a704c3cc86cc");
}

TEST_CASE("random: integers and permutations are NumPy's") {
  const std::int64_t two_40 = std::int64_t{1} << 40, two_32 = std::int64_t{1} << 32;
  for (const auto& c : seed_cases()) {
    CAPTURE(c.name);
    const Rng fresh(c.seeds);
    const auto integers = [&](std::size_t n, std::int64_t low, std::int64_t high) {
      Rng rng = fresh;
      return drawn<std::int64_t>(n, [&](auto out) { rng.integers(out, low, high); });
    };
    CHECK(integers(20, 0, 16) == vector_of(c.integers_16));
    CHECK(sha256_of(integers(100001, 0, 10)) == c.integers_10_hash);
    CHECK(integers(5, -5, two_40) == vector_of(c.integers_2_40));
    CHECK(integers(5, 0, two_32) == vector_of(c.integers_2_32));
    CHECK(integers(3, 0, kMax) == vector_of(c.integers_2_63));
    CHECK(Rng(fresh).permutation(10) == vector_of(c.permutation));
    CHECK(sha256_of(Rng(fresh).permutation(1000)) == c.permutation_1000_hash);
  }
}

TEST_CASE("random: integers over every kind of range, drawn from one generator") {
  Rng fill(2023), scalar(2023);
  for (const auto& c : test::integers_cases()) {
    CAPTURE(c.low);
    CAPTURE(c.high);
    const IntegersOptions options = {.endpoint = c.endpoint};
    CHECK(drawn<std::int64_t>(4, [&](auto out) { fill.integers(out, c.low, c.high, options); }) ==
          vector_of(c.expected));
    for (const std::int64_t expected : c.expected) {
      CHECK(scalar.integers(c.low, c.high, options) == expected);
    }
  }
}

TEST_CASE("random: draws of all kinds share one stream") {
  for (const auto& c : seed_cases()) {
    CAPTURE(c.name);
    Rng rng(c.seeds);
    const auto& expected = c.interleaved;
    CHECK(rng.integers(0, 7) == expected.integer_1);
    CHECK(rng.random() == expected.random);
    CHECK(rng.integers(0, 7) == expected.integer_2);
    CHECK(rng.standard_normal() == expected.normal_1);
    CHECK(rng.permutation(4) == vector_of(expected.permutation));
    CHECK(drawn<float>(1, [&](auto out) { rng.random(out); })[0] == expected.random_float);
    CHECK(rng.integers(0, 7) == expected.integer_3);
    CHECK(rng.standard_normal() == expected.normal_2);
  }
}

TEST_CASE("random: shuffles are NumPy's") {
  Rng rng(5);
  Integers values = {10, 20, 30, 40, 50, 60, 70};
  rng.shuffle(values);
  CHECK(values == Integers{20, 50, 30, 40, 70, 60, 10});
  CHECK(rng.permutation(3) == Integers{2, 0, 1});
  CHECK(rng.permutation(1) == Integers{0});
  CHECK(rng.permutation(0).empty());
  CHECK(sha256_of(rng.permutation(100000)) ==
        "09493e87ed6e1c229e2a3f4942118fabfa4efbf94ef4e8c9f3f41b34fb9ce17b");
  CHECK(rng.state().has_uint32);
  CHECK(rng.state().uinteger == 1479408392);
}

TEST_CASE("random: choices are NumPy's, drawn from one generator") {
  Rng rng(77);
  for (const auto& c : test::choice_cases()) {
    CAPTURE(c.n);
    CAPTURE(c.size);
    CAPTURE(c.replace);
    CAPTURE(c.shuffle);
    const Integers values =
        rng.choice(c.n, c.size, {.replace = c.replace, .p = c.p, .shuffle = c.shuffle});
    REQUIRE(values.size() == static_cast<std::size_t>(c.size));
    if (c.hash.empty()) {
      CHECK(values == c.expected);
    } else {
      CHECK(sha256_of(values) == c.hash);
    }
  }
}

TEST_CASE("random: children are NumPy's, whatever was drawn before") {
  for (const auto& c : seed_cases()) {
    CAPTURE(c.name);
    Rng parent(c.seeds);
    parent.integers(0, 10);
    const RngState before = parent.state();
    std::vector<Rng> children = parent.spawn(3);
    REQUIRE(children.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(children[i].standard_normal() == c.children[i].normal);
      CHECK(children[i].integers(0, 100) == c.children[i].integer);
    }
    CHECK(Rng(c.seeds).spawn(2)[1].spawn(1)[0].standard_normal() == c.grandchild_normal);

    RngState expected = before;
    expected.n_children_spawned = 3;
    CHECK(parent.state() == expected);
  }
}

TEST_CASE("random: later children go on counting, below a long seed too") {
  Rng child = Rng({3, 1, 4, 1, 5, 9}).spawn(2)[1];
  CHECK(child.spawn(0).empty());
  child.spawn(5);
  Rng grandchild = child.spawn(2)[1];
  CHECK(grandchild.state().spawn_key == std::vector<std::uint64_t>{1, 6});
  CHECK(grandchild.next_uint64() == 0xe02c705fd01ef81f);
  CHECK(grandchild.next_uint64() == 0x8d069fa7a82bdcf5);
  CHECK(grandchild.standard_normal() == -1.84026076125343);
}

TEST_CASE("random: a state saved with half a word waiting goes on at the same draw") {
  Rng rng(11);
  for (int i = 0; i < 3; ++i) rng.standard_normal();
  CHECK(rng.integers(0, 1000) == 712);
  CHECK(rng.integers(0, 1000) == 28);
  CHECK(rng.integers(0, 1000) == 485);
  rng.spawn(2);

  const RngState saved = rng.state();
  CHECK(saved.state_high == 0xeb65898def18ab53);
  CHECK(saved.state_low == 0xdff2f06292e98c95);
  CHECK(saved.inc_high == 0x5f8ac07ffe071c3);
  CHECK(saved.inc_low == 0xb00016928186734b);
  CHECK(saved.has_uint32);
  CHECK(saved.uinteger == 635337695);
  CHECK(saved.entropy == std::vector<std::uint32_t>{11});
  CHECK(saved.spawn_key.empty());
  CHECK(saved.n_children_spawned == 2);

  Rng restored(999), copy = rng;
  restored.set_state(saved);
  for (Rng* each : {&rng, &restored, &copy}) {
    CHECK(each->integers(0, 1000) == 147);
    CHECK(each->random() == 0.9282110229603695);
    CHECK(each->integers(0, 1000) == 547);
  }
  CHECK(restored.state() == rng.state());
  CHECK(restored.spawn(1)[0].state() == Rng(11).spawn(3)[2].state());
}

TEST_CASE("random: filling is drawing one by one") {
  Rng fill(8), scalar(8);
  for (const double x : drawn<double>(1000, [&](auto out) { fill.random(out); })) {
    REQUIRE(scalar.random() == x);
  }
  for (const double x : drawn<double>(1000, [&](auto out) { fill.standard_normal(out); })) {
    REQUIRE(scalar.standard_normal() == x);
  }
  for (const double x : drawn<double>(1000, [&](auto out) { fill.normal(out, 3, 2); })) {
    REQUIRE(scalar.normal(3, 2) == x);
  }
  for (const double x : drawn<double>(1000, [&](auto out) { fill.uniform(out, 3, 5); })) {
    REQUIRE(scalar.uniform(3, 5) == x);
  }
  const RngState before = fill.state();
  fill.random(std::span<float>());
  fill.standard_normal(std::span<double>());
  CHECK(fill.state() == before);
}

TEST_CASE("random: normal and uniform round the double stream to float") {
  Rng floats(8), doubles(8);
  for (const float x : drawn<float>(1000, [&](auto out) { floats.normal(out, 3, 0.2); })) {
    REQUIRE(x == static_cast<float>(doubles.normal(3, 0.2)));
  }
  for (const float x : drawn<float>(1000, [&](auto out) { floats.uniform(out, -0.3, 0.7); })) {
    REQUIRE(x == static_cast<float>(doubles.uniform(-0.3, 0.7)));
  }
}

}  // namespace
}  // namespace softtape

// Shape: construction, axes, broadcasting, and the sizes that cannot be.
#include "softtape/base/shape.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "softtape/base/dtype.hpp"
#include "softtape/base/error.hpp"
#include "support/compare.hpp"

using namespace softtape;

namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

Shape ranks(int rank, std::int64_t size) {
  return Shape(std::vector<std::int64_t>(static_cast<std::size_t>(rank), size));
}

}  // namespace

TEST_CASE("shapes have rank 0 to 6") {
  CHECK(Shape{}.rank() == 0);
  CHECK(Shape{}.numel() == 1);
  CHECK(to_string(Shape{}) == "()");
  CHECK(to_string(Shape{5}) == "(5,)");
  CHECK(to_string(Shape{2, 3}) == "(2, 3)");
  std::int64_t numel = 1;
  for (int rank = 0; rank <= Shape::kMaxRank; ++rank, numel *= 3) {
    const Shape shape = ranks(rank, 3);
    CHECK(shape.rank() == rank);
    CHECK(shape.numel() == numel);
    CHECK(shape.end() - shape.begin() == rank);
    CHECK(shape == ranks(rank, 3));
    CHECK((rank == 0) == (shape == ranks(rank, 2)));
  }
  CHECK_THROWS_SAYING(ShapeError, "shape", "at most 6 axes: got 7", ranks(7, 1));
}

TEST_CASE("shapes of equal size and other rank differ") {
  CHECK(Shape{2, 3} != Shape{3, 2});
  CHECK(Shape{6} != Shape{2, 3});
  CHECK(Shape{1} != Shape{});
  CHECK(Shape{0} != Shape{});
  CHECK(Shape{2, 0} != Shape{2});
}

TEST_CASE("sizes may be 0 and not negative") {
  CHECK(Shape{0}.numel() == 0);
  CHECK(Shape{3, 0, 2}.numel() == 0);
  CHECK_THROWS_SAYING(ShapeError, "shape", "got (-1, 3)", Shape{-1, 3});
  CHECK_THROWS_SAYING(ShapeError, "shape", "negative", Shape{2, 0, -5});
}

TEST_CASE("CPP-006 element counts are 64-bit") {
  CHECK(Shape{5000, 900, 800}.numel() == 3600000000);
}

TEST_CASE("element counts beyond 63 bits are refused") {
  CHECK(Shape{kMost}.numel() == kMost);
  CHECK(Shape{kMost, 1}.numel() == kMost);
  CHECK_THROWS_SAYING(ShapeError, "shape", "63 bits", Shape{kMost, 2});
  CHECK_THROWS_SAYING(ShapeError, "shape", "63 bits", Shape{1LL << 32, 1LL << 31});
  CHECK_THROWS_SAYING(ShapeError, "shape", "63 bits", Shape{1LL << 32, 1LL << 32, 1LL << 32});
  // Wraps around to a small number, or to 0.
  CHECK_THROWS_SAYING(ShapeError, "shape", "63 bits", Shape{1LL << 33, 1LL << 31});
  CHECK_THROWS_SAYING(ShapeError, "shape", "63 bits", Shape{(1LL << 32) + 1, 1LL << 32});
  // Nothing is nothing, however many times, and wherever the 0 stands.
  CHECK(Shape{0, kMost, kMost}.numel() == 0);
  CHECK(Shape{kMost, kMost, 0}.numel() == 0);
}

TEST_CASE("axes count from both ends") {
  const Shape shape{2, 3, 5};
  CHECK(shape.dim(0) == 2);
  CHECK(shape.dim(-1) == 5);
  CHECK(shape.dim(-3) == 2);
  CHECK_THROWS_SAYING(ShapeError, "dim", "got 3 for a tensor of rank 3", shape.dim(3));
  CHECK_THROWS_SAYING(ShapeError, "dim", "got -4", shape.dim(-4));
  CHECK_THROWS_AS(Shape{}.dim(0), ShapeError);
  CHECK_THROWS_AS(Shape{}.dim(-1), ShapeError);
  CHECK(normalize_axis("op", -2, 3) == 1);
  CHECK_THROWS_SAYING(ShapeError, "op", "[-2, 2)", normalize_axis("op", 2, 2));
}

TEST_CASE("with, without and inserted change one axis") {
  const Shape shape{2, 3, 5};
  CHECK(shape.with(1, 7) == Shape{2, 7, 5});
  CHECK(shape.with(-1, 7) == Shape{2, 3, 7});
  CHECK(shape.without(0) == Shape{3, 5});
  CHECK(shape.without(-1) == Shape{2, 3});
  CHECK(shape.inserted(0, 7) == Shape{7, 2, 3, 5});
  CHECK(shape.inserted(3, 7) == Shape{2, 3, 5, 7});
  CHECK(shape.inserted(-1, 7) == Shape{2, 3, 5, 7});
  CHECK(Shape{}.inserted(0, 4) == Shape{4});
  CHECK(Shape{4}.without(0) == Shape{});
}

TEST_CASE("with, without and inserted refuse axes and sizes that cannot be") {
  const Shape shape{2, 3, 5};
  for (const int axis : {3, -4, 100}) {
    CHECK_THROWS_AS(shape.with(axis, 1), ShapeError);
    CHECK_THROWS_AS(shape.without(axis), ShapeError);
  }
  CHECK_THROWS_AS(shape.inserted(4, 1), ShapeError);
  CHECK_THROWS_AS(shape.inserted(-5, 1), ShapeError);
  CHECK_THROWS_AS(Shape{}.without(0), ShapeError);
  CHECK_THROWS_AS(shape.with(0, -1), ShapeError);
  CHECK_THROWS_AS(shape.with(0, kMost), ShapeError);
  CHECK_THROWS_AS(ranks(6, 1).inserted(0, 1), ShapeError);
}

TEST_CASE("broadcasting aligns axes at the end and stretches ones") {
  CHECK(broadcast("op", {}, {}) == Shape{});
  CHECK(broadcast("op", {2, 3}, {}) == Shape{2, 3});
  CHECK(broadcast("op", {}, {2, 3}) == Shape{2, 3});
  CHECK(broadcast("op", {2, 3}, {3}) == Shape{2, 3});
  CHECK(broadcast("op", {2, 1}, {1, 3}) == Shape{2, 3});
  CHECK(broadcast("op", {5, 1, 3}, {4, 1}) == Shape{5, 4, 3});
  CHECK(broadcast("op", {1, 1, 1, 1, 1, 1}, {2, 3, 4, 5, 6, 7}) == Shape{2, 3, 4, 5, 6, 7});
}

TEST_CASE("broadcasting a size of 1 with nothing gives nothing") {
  CHECK(broadcast("op", {0}, {1}) == Shape{0});
  CHECK(broadcast("op", {2, 1}, {2, 0}) == Shape{2, 0});
  CHECK_THROWS_AS(broadcast("op", {0}, {2}), ShapeError);
}

TEST_CASE("shapes that do not broadcast are named, with the sizes that do not meet") {
  CHECK_THROWS_SAYING(ShapeError, "add", "a is (2, 3), b is (3, 2)",
                      broadcast("add", {2, 3}, {3, 2}));
  CHECK_THROWS_SAYING(ShapeError, "add", "2 meets 4", broadcast("add", {2}, {3, 4}));
  CHECK_THROWS_SAYING(ShapeError, "add", "4 meets 2", broadcast("add", {3, 4}, {2}));
  // Stretched, the two have more elements than fit.
  CHECK_THROWS_AS(broadcast("add", {1LL << 40, 1}, {1, 1LL << 40}), ShapeError);
}

TEST_CASE("default dtype is float32, and a guard changes it for a scope") {
  CHECK(default_dtype() == DType::float32);
  {
    const DefaultDtype outer(DType::float64);
    CHECK(default_dtype() == DType::float64);
    CHECK_THROWS_SAYING(DtypeError, "DefaultDtype", "int64", DefaultDtype(DType::int64));
    CHECK(default_dtype() == DType::float64);
    try {
      const DefaultDtype inner(DType::float32);
      CHECK(zeros({1}).dtype() == DType::float32);
      throw ValueError("left by an exception");
    } catch (const ValueError&) {
    }
    CHECK(zeros({1}).dtype() == DType::float64);
  }
  CHECK(default_dtype() == DType::float32);
}

TEST_CASE("element types know their size and name") {
  CHECK(size_of(DType::float32) == sizeof(float));
  CHECK(size_of(DType::float64) == sizeof(double));
  CHECK(size_of(DType::int64) == sizeof(std::int64_t));
  CHECK(size_of(DType::boolean) == sizeof(bool));
  CHECK(std::string(to_string(DType::boolean)) == "boolean");
  CHECK(is_floating(dtype_of<float>));
  CHECK_FALSE(is_floating(dtype_of<std::int64_t>));
  CHECK_THROWS_SAYING(DtypeError, "op", "boolean",
                      visit_float(DType::boolean, "op", [](auto) { return 0; }));
}

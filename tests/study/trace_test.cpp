// What trace and to_dot show of a graph.
#include "softtape/study/trace.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/reduce.hpp"
#include "support/compare.hpp"

using namespace softtape;
using test_support::contains;
using test_support::leaf;

namespace {

std::int64_t count(const std::string& whole, const std::string& part) {
  std::int64_t n = 0;
  for (auto at = whole.find(part); at != std::string::npos; at = whole.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("trace lists inputs before results, with ranges, names and gradient norms") {
  Tensor x = leaf({3.0, -4.0}).named("x");
  const Tensor scale = tensor({1.0, 2.0}, {.dtype = DType::float64});
  Tensor y = (x * scale).named("scores");
  y.retain_grad();
  const Tensor loss = sum(square(y));
  loss.backward({.retain_graph = true});

  const Trace t = trace(loss);
  REQUIRE(t.rows.size() == 5);
  CHECK(t.left_out == 0);
  const TraceRow& last = t.rows[4];
  CHECK(last.op == "sum");
  CHECK(last.shape == Shape{});
  CHECK(last.inputs == std::vector<std::int64_t>{3});
  REQUIRE(last.values);
  CHECK(last.values->low == 73);  // 9 + 64
  CHECK(t.rows[3].op == "square");
  const TraceRow& product = t.rows[2];
  CHECK(product.op == "mul");
  CHECK(product.name == "scores");
  CHECK(product.values->low == -8);
  CHECK(product.values->high == 3);
  REQUIRE(product.gradient_norm);
  CHECK(*product.gradient_norm == doctest::Approx(2 * std::sqrt(9.0 + 64.0)));
  REQUIRE(product.inputs.size() == 2);
  const TraceRow& first = t.rows[static_cast<std::size_t>(product.inputs[0])];
  CHECK(first.name == "x");
  CHECK(first.op.empty());
  CHECK(first.requires_grad);
  CHECK(first.gradient_norm);
  CHECK_FALSE(t.rows[static_cast<std::size_t>(product.inputs[1])].requires_grad);

  const std::string table = fmt::format("{}", t);
  CHECK(contains(table, "#"));
  CHECK(contains(table, "scores"));
  CHECK(contains(table, "-8 to 3"));
  CHECK(contains(table, "constant"));
  CHECK(count(table, "\n") == 5);
}

TEST_CASE(
    "trace knows values that are gone, graphs that were freed, and numbers that are not finite") {
  const Tensor x = leaf({0.0, 1.0});
  Tensor y = sum(log(x + 0.0));  // add keeps nothing, log keeps its input
  const Trace kept = trace(y);
  CHECK(kept.rows.back().values->not_finite == 1);
  CHECK(kept.rows.back().values->low > kept.rows.back().values->high);
  CHECK(contains(to_string(kept), "none finite, 1 not finite"));
  const auto row = [](const Trace& t, const char* op) {
    for (const TraceRow& r : t.rows) {
      if (r.op == op) return r;
    }
    FAIL("no row of op " << op);
    return TraceRow{};
  };
  CHECK(row(kept, "add").values);
  CHECK_FALSE(row(kept, "log").values);  // sum does not read it
  CHECK(contains(to_string(kept), "not kept"));
  CHECK_FALSE(trace(y, {.values = false}).rows.back().values);

  y.backward();
  const Trace freed = trace(y);
  CHECK(freed.rows.size() == 1);
  CHECK(freed.rows[0].freed);
  CHECK(contains(to_string(freed), "freed"));
}

TEST_CASE("trace shows the line of a call under the anomaly guard") {
  const Tensor x = leaf({1.0, 2.0});
  const AnomalyGuard guard;
  const int line = __LINE__ + 1;
  const Tensor y = exp(x);
  const Trace t = trace(y);
  CHECK(t.rows.back().site.line == line);
  CHECK(contains(to_string(t), fmt::format("trace_test.cpp:{}", line)));
}

TEST_CASE("trace counts shared nodes once and takes several outputs") {
  Tensor y = leaf({1.0});
  for (int i = 0; i < 60; ++i) y = y + y;
  CHECK(trace(y).rows.size() == 61);
  const Tensor a = exp(y);
  const Tensor b = sin(y);
  CHECK(trace({a, b}).rows.size() == 63);
  CHECK(trace({a, a}).rows.size() == 62);
}

TEST_CASE("trace and to_dot stop at their node limit and say what is left out") {
  Tensor y = leaf({1.0});
  for (int i = 0; i < 200000; ++i) y = neg(y);
  const Trace t = trace(y, {.max_nodes = 3});
  REQUIRE(t.rows.size() == 3);
  CHECK(t.left_out == 200001 - 3);
  CHECK(t.rows[0].inputs == std::vector<std::int64_t>{-1});
  CHECK(t.rows[2].inputs == std::vector<std::int64_t>{1});
  CHECK(contains(to_string(t), "199998 more nodes farther from the outputs"));
  const std::string dot = to_dot(y, {.max_nodes = 3});
  CHECK(contains(dot, "199998 more nodes"));
  CHECK(contains(dot, "more -> n0"));
  CHECK(trace(y).rows.size() == 1000);
}

TEST_CASE("to_dot writes nodes, edges and escaped names") {
  Tensor x = leaf({1.0, 2.0}).named("a \"b\" \\");
  const Tensor y = sum(x * x);
  const std::string dot = to_dot(y);
  CHECK(dot.rfind("digraph softtape {\n", 0) == 0);
  CHECK(dot.substr(dot.size() - 2) == "}\n");
  CHECK(contains(dot, R"(n0 [label="a \"b\" \\\n(2,)\n1 to 2", fillcolor=lightblue];)"));
  CHECK(contains(dot, R"(n1 [label="mul\n(2,))"));
  CHECK(count(dot, "n0 -> n1;") == 2);
  CHECK(count(dot, "n1 -> n2;") == 1);
}

TEST_CASE("trace of a leaf, of integers, of nothing") {
  CHECK(to_string(trace(arange(3))) ==
        "#  op        name  shape  inputs  values  |grad|  line\n"
        "0  constant        (3,)           0 to 2");
  CHECK(contains(to_string(trace(zeros({0, 2}))), "empty"));
  CHECK(trace(std::vector<Tensor>{}).rows.empty());
  CHECK_THROWS_WITH_AS(trace(Tensor()), doctest::Contains("[trace] output 0 is an undefined"),
                       GraphError);
  CHECK_THROWS_WITH_AS(trace(zeros({1}), {.max_nodes = 0}),
                       doctest::Contains("[trace] max_nodes must be at least 1"), ValueError);
}

// Puts every row of the table through every check, and finds ops that no row recorded.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "grad_cases/cases.hpp"
#include "softtape/base/parallel.hpp"
#include "softtape/graph/op.hpp"
#include "softtape/ops/create.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/reduce.hpp"
#include "softtape/study/derivatives.hpp"
#include "softtape/study/gradcheck.hpp"
#include "softtape/study/trace.hpp"

using namespace softtape;
using namespace grad_cases;

namespace {

std::string title(const GradCase& row) { return row.op + ", " + row.name; }

std::vector<Tensor> inputs_of(const GradCase& row) {
  Rng rng(1);
  return row.inputs(rng);
}

std::vector<std::size_t> float_inputs(const std::vector<Tensor>& x) {
  std::vector<std::size_t> which;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (is_floating(x[i].dtype())) which.push_back(i);
  }
  return which;
}

Tensor random_like(const Tensor& y, std::uint64_t seed) {
  Rng rng(seed);
  return randn(rng, y.shape(), {.dtype = y.dtype()});
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  return a.shape() == b.shape() && a.dtype() == b.dtype() && visit_any(a.dtype(), [&](auto zero) {
           using T = decltype(zero);
           return std::memcmp(a.data<T>().data(), b.data<T>().data(),
                              a.data<T>().size() * sizeof(T)) == 0;
         });
}

bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Tensor& x, const Tensor& y) { return same_bits(x, y); });
}

// Empty when all numbers agree to rtol times their size (at least `floor`), else the worst place.
std::string difference(const std::vector<long double>& got, const std::vector<long double>& want,
                       double rtol, double floor) {
  if (got.size() != want.size()) return fmt::format("{} numbers for {}", got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) continue;
    const long double size = std::max<long double>(std::abs(want[i]), floor);
    if (!(std::abs(got[i] - want[i]) <= rtol * size)) {
      return fmt::format("at {}: {:.17g}, expected {:.17g}", i, static_cast<double>(got[i]),
                         static_cast<double>(want[i]));
    }
  }
  return "";
}

double largest(const std::vector<long double>& numbers) {
  long double most = 0;
  for (const long double x : numbers) most = std::max(most, std::abs(x));
  return static_cast<double>(most);
}

// The value and the gradients of all float inputs that `needs` names.
struct Result {
  Tensor value;
  std::vector<Tensor> gradients;
};
Result differentiate(const TensorFunction& f, const std::vector<Tensor>& inputs,
                     const std::vector<std::size_t>& needs, const Tensor& gy) {
  std::vector<Tensor> x;
  for (const Tensor& t : inputs) x.push_back(t.detach().clone());
  std::vector<Tensor> wanted;
  for (const std::size_t i : needs) wanted.push_back(x[i].requires_grad_());
  Result result;
  result.value = f(x);
  result.gradients = grad(result.value, wanted, {.grad_outputs = {gy}, .allow_unused = true});
  return result;
}

// Rows whose op is the same one, with float32 inputs.
std::vector<Tensor> as_float32(std::vector<Tensor> x) {
  for (Tensor& t : x) {
    if (is_floating(t.dtype())) t = to(t, DType::float32);
  }
  return x;
}
std::vector<Tensor> as_float64(std::vector<Tensor> x) {
  for (Tensor& t : x) {
    if (is_floating(t.dtype())) t = to(t, DType::float64);
  }
  return x;
}

std::set<std::string> recorded_ops(const GradCase& row) {
  std::vector<Tensor> x = inputs_of(row);
  for (const std::size_t i : float_inputs(x)) x[i].requires_grad_();
  std::set<std::string> names;
  for (const TraceRow& node : trace(row.f(x), {.max_nodes = 10000, .values = false}).rows) {
    names.insert(node.op);
  }
  return names;
}

struct ThreadCount {
  explicit ThreadCount(int n) : before(num_threads()) { set_num_threads(n); }
  ~ThreadCount() { set_num_threads(before); }
  int before;
};

}  // namespace

TEST_CASE("every op has a row that records it") {
  std::set<std::string> recorded;
  for (const GradCase& row : all_families().cases) {
    CAPTURE(title(row));
    const std::set<std::string> names = recorded_ops(row);
    CHECK(names.count(row.op) == 1);
    if (names.count(row.op)) recorded.insert(row.op);
  }
  std::set<std::string> refused;
  for (const ErrorCase& row : all_families().errors) refused.insert(row.op);
  for (const OpInfo* op : all_ops()) {
    const std::string name = op->name;
    CHECK_MESSAGE(recorded.count(name) == 1, "op '", name, "' has no row in tests/grad_cases");
    // Sums of gradients are made by backward passes alone: nobody can call it with wrong arguments.
    if (name == "accumulate") continue;
    CHECK_MESSAGE(refused.count(name) == 1, "op '", name, "' has no error row in tests/grad_cases");
  }
}

TEST_CASE("values agree with an independent reference") {
  for (const GradCase& row : all_families().cases) {
    CAPTURE(title(row));
    const std::vector<Tensor> x = inputs_of(row);
    Arrays arrays;
    for (const Tensor& t : x) arrays.push_back(array_of(t));
    const Tensor y = row.f(x);
    const Array expected = row.reference(arrays);
    CHECK(to_string(y.shape()) == to_string(expected.shape));
    const std::string wrong =
        difference(y.to_vector<long double>(), expected.numbers, row.value_rtol, 0.1);
    CHECK_MESSAGE(wrong.empty(), wrong);
  }
}

TEST_CASE("gradients agree with differences to second order, and nothing is left behind") {
  for (const GradCase& row : all_families().cases) {
    CAPTURE(title(row));
    const std::vector<Tensor> x = inputs_of(row);
    const GraphStats before = graph_stats();
    {
      const GradcheckReport report = gradcheck(row.f, x,
                                               {.order = row.large ? 1 : 2,
                                                .directions = row.large ? 1 : 2,
                                                .allow_float32 = row.coarse});
      CHECK_MESSAGE(report.passed, to_string(report));
      CHECK(report.comparisons > 0);
    }
    CHECK(graph_stats().live_nodes == before.live_nodes);
    CHECK(graph_stats().live_bytes == before.live_bytes);
  }
}

TEST_CASE("jvp and vjp are transposes of each other") {
  for (const GradCase& row : all_families().cases) {
    if (row.large) continue;
    CAPTURE(title(row));
    const std::vector<Tensor> x = inputs_of(row);
    std::vector<Tensor> tangents(x.size());
    for (const std::size_t i : float_inputs(x)) tangents[i] = random_like(x[i], 10 + i);
    const Tensor moved = jvp(row.f, x, tangents);
    const Tensor gy = random_like(moved, 20);
    const std::vector<Tensor> gradients = vjp(row.f, x, gy);
    long double by_jvp = 0;
    long double size = 0;
    const auto a = moved.to_vector<long double>();
    const auto b = gy.to_vector<long double>();
    for (std::size_t k = 0; k < a.size(); ++k) {
      by_jvp += a[k] * b[k];
      size += std::abs(a[k] * b[k]);
    }
    long double by_vjp = 0;
    for (const std::size_t i : float_inputs(x)) {
      const auto g = gradients[i].to_vector<long double>();
      const auto t = tangents[i].to_vector<long double>();
      for (std::size_t k = 0; k < g.size(); ++k) {
        by_vjp += g[k] * t[k];
        size += std::abs(g[k] * t[k]);
      }
    }
    CHECK(std::abs(by_jvp - by_vjp) <= (row.coarse ? 1e-6L : 1e-12L) * (1 + size));
  }
}

TEST_CASE("any subset of inputs gets the gradients that all of them get") {
  for (const GradCase& row : all_families().cases) {
    if (row.large) continue;
    CAPTURE(title(row));
    const std::vector<Tensor> x = inputs_of(row);
    const std::vector<std::size_t> floats = float_inputs(x);
    const Tensor plain = row.f(x);
    CHECK_FALSE(plain.requires_grad());
    const Tensor gy = random_like(plain, 30);
    const Result all = differentiate(row.f, x, floats, gy);
    CHECK(same_bits(all.value, plain));
    for (std::size_t bits = 1; bits + 1 < std::size_t{1} << floats.size(); ++bits) {
      CAPTURE(bits);
      std::vector<std::size_t> needs;
      std::vector<Tensor> expected;
      for (std::size_t i = 0; i < floats.size(); ++i) {
        if (!(bits >> i & 1u)) continue;
        needs.push_back(floats[i]);
        expected.push_back(all.gradients[i]);
      }
      const Result some = differentiate(row.f, x, needs, gy);
      CHECK(same_bits(some.value, plain));
      CHECK(same_bits(some.gradients, expected));
    }
  }
}

TEST_CASE("backward() leaves in .grad() what grad() returns, and adds up") {
  for (const GradCase& row : all_families().cases) {
    if (row.large) continue;
    CAPTURE(title(row));
    std::vector<Tensor> x = inputs_of(row);
    const std::vector<std::size_t> floats = float_inputs(x);
    const Tensor gy = random_like(row.f(x), 31);
    const Result expected = differentiate(row.f, x, floats, gy);
    for (const std::size_t i : floats) x[i].requires_grad_();
    row.f(x).backward({.gradient = gy});
    for (std::size_t i = 0; i < floats.size(); ++i) {
      CHECK(same_bits(x[floats[i]].grad(), expected.gradients[i]));
    }
    row.f(x).backward({.gradient = gy});
    for (std::size_t i = 0; i < floats.size(); ++i) {
      if (!expected.gradients[i].defined()) continue;
      CHECK(same_bits(x[floats[i]].grad(), mul(2, expected.gradients[i])));
    }
  }
}

TEST_CASE("one tensor in both places gets both gradients") {
  int tried = 0;
  for (const GradCase& row : all_families().cases) {
    if (row.large) continue;
    CAPTURE(title(row));
    const std::vector<Tensor> x = inputs_of(row);
    if (x.size() != 2 || x[0].shape() != x[1].shape() || float_inputs(x).size() != 2) continue;
    ++tried;
    const Tensor gy = random_like(row.f(x), 40);
    const Result twice = differentiate(
        [&](std::span<const Tensor> one) {
          return row.f(std::vector<Tensor>{one[0], one[0]});
        },
        {x[0]}, {0}, gy);
    const Result apart = differentiate(row.f, {x[0], x[0]}, {0, 1}, gy);
    const auto sum = add(apart.gradients[0], apart.gradients[1]).to_vector<long double>();
    const std::string wrong =
        difference(twice.gradients[0].to_vector<long double>(), sum, 1e-13, largest(sum));
    CHECK_MESSAGE(wrong.empty(), wrong);
  }
  CHECK(tried > 5);
}

TEST_CASE("[thread] values and gradients repeat bit for bit, at one thread and at two") {
  for (const GradCase& row : all_families().cases) {
    CAPTURE(title(row));
    const std::vector<Tensor> x = inputs_of(row);
    const Tensor gy = random_like(row.f(x), 50);
    const auto run = [&](int threads) {
      const ThreadCount count(threads);
      return differentiate(row.f, x, float_inputs(x), gy);
    };
    const Result one = run(1);
    for (const int threads : {1, 2}) {
      const Result again = run(threads);
      CHECK(same_bits(one.value, again.value));
      CHECK(same_bits(one.gradients, again.gradients));
    }
  }
}

TEST_CASE("float32 values and gradients are those of float64, rounded") {
  for (const GradCase& row : all_families().cases) {
    if (!row.float32) continue;
    CAPTURE(title(row));
    const std::vector<Tensor> x = as_float32(inputs_of(row));
    const Tensor y = row.f(x);
    REQUIRE(y.dtype() == DType::float32);
    const Tensor gy = random_like(y, 60);
    const Result single = differentiate(row.f, x, float_inputs(x), gy);
    const Result twice =
        differentiate(row.f, as_float64(x), float_inputs(x), to(gy, DType::float64));
    const auto value = twice.value.to_vector<long double>();
    std::string wrong = difference(y.to_vector<long double>(), value, row.float32_rtol, 1);
    CHECK_MESSAGE(wrong.empty(), "value ", wrong);
    for (std::size_t i = 0; i < single.gradients.size(); ++i) {
      REQUIRE(single.gradients[i].defined() == twice.gradients[i].defined());
      if (!single.gradients[i].defined()) continue;
      const auto expected = twice.gradients[i].to_vector<long double>();
      wrong = difference(single.gradients[i].to_vector<long double>(), expected, row.float32_rtol,
                         std::max(1.0, largest(expected)));
      CHECK_MESSAGE(wrong.empty(), "gradient ", i, " ", wrong);
    }
  }
}

TEST_CASE("gradients at kinks, ties and infinite slopes are as decided") {
  for (const PointCase& row : all_families().points) {
    CAPTURE(row.op);
    CAPTURE(row.name);
    const Result result = differentiate(row.f, row.inputs, float_inputs(row.inputs), row.gy);
    REQUIRE(result.gradients.size() == row.gradients.size());
    for (std::size_t i = 0; i < row.gradients.size(); ++i) {
      CAPTURE(i);
      REQUIRE(result.gradients[i].defined());
      const std::string wrong = difference(result.gradients[i].to_vector<long double>(),
                                           row.gradients[i].to_vector<long double>(), 0, 1);
      CHECK_MESSAGE(wrong.empty(), wrong);
    }
  }
}

TEST_CASE("wrong arguments are refused by type and tag, and nothing is recorded or lost") {
  for (const ErrorCase& row : all_families().errors) {
    CAPTURE(row.op);
    CAPTURE(row.name);
    const GraphStats before = graph_stats();
    std::string message = "nothing was thrown";
    bool right_type = false;
    try {
      row.call();
    } catch (const Error& thrown) {
      message = thrown.what();
      right_type =
          row.type == ErrorType::shape   ? dynamic_cast<const ShapeError*>(&thrown) != nullptr
          : row.type == ErrorType::value ? dynamic_cast<const ValueError*>(&thrown) != nullptr
          : row.type == ErrorType::dtype ? dynamic_cast<const DtypeError*>(&thrown) != nullptr
                                         : dynamic_cast<const GraphError*>(&thrown) != nullptr;
    }
    CAPTURE(message);
    CHECK(right_type);
    CHECK(message.rfind("[" + row.op + "] ", 0) == 0);
    CHECK(message.find(row.message) != std::string::npos);
    CHECK(graph_stats().live_nodes == before.live_nodes);
    CHECK(graph_stats().live_bytes == before.live_bytes);
  }
}

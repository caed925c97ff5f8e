// Tensors as text. Expected texts are what str() gives in NumPy 1.24 for the same array.
#include <fmt/format.h>

#include <sstream>

#include "ops/support.hpp"
#include "softtape/ops/shape.hpp"
#include "support/constants.hpp"

using namespace softtape;
using test_support::kDouble;
using test_support::kInf;
using test_support::kNaN;

TEST_CASE("tensors print as NumPy prints arrays") {
  const std::pair<Tensor, const char*> rows[] = {
      {tensor({1.0, 2.5, -3.25}, kDouble), R"([ 1.    2.5  -3.25])"},
      {tensor({{1.0, 2.0}, {3.0, 4.0}}, kDouble), R"([[1. 2.]
 [3. 4.]])"},
      {tensor({0.1, 0.25, 100.0}, kDouble), R"([  0.1    0.25 100.  ])"},
      {tensor({1.0 / 3, 2.0 / 3}, kDouble), R"([0.33333333 0.66666667])"},
      {tensor({1.0 / 3, 2.0 / 3}), R"([0.33333334 0.6666667 ])"},
      {tensor({0.123456785, 0.00012, 0.1}, kDouble),
       R"([1.23456785e-01 1.20000000e-04 1.00000000e-01])"},
      {tensor({1e-5, 1.0}, kDouble), R"([1.e-05 1.e+00])"},
      {tensor({1e-4, 0.05}, kDouble), R"([0.0001 0.05  ])"},
      {tensor({1e-4, 0.05}), R"([1.e-04 5.e-02])"},
      {tensor({1.0, 1000.0}, kDouble), R"([   1. 1000.])"},
      {tensor({1.0, 1001.0}, kDouble), R"([1.000e+00 1.001e+03])"},
      {tensor({99999999.0, -1e7}, kDouble), R"([ 99999999. -10000000.])"},
      {tensor({1e8}, kDouble), R"([1.e+08])"},
      {tensor({89260408.0}), R"([89260408.])"},
      {tensor({2.0427716e6, -5.140064e-5, 0.06630634}),
       R"([ 2.0427716e+06 -5.1400639e-05  6.6306338e-02])"},
      {tensor({1e-100, 1e-5}, kDouble), R"([1.e-100 1.e-005])"},
      {tensor({1.5e300, -2.0, 0.0}, kDouble), R"([ 1.5e+300 -2.0e+000  0.0e+000])"},
      {tensor({5e-324, 1.7976931348623157e308}, kDouble), R"([4.94065646e-324 1.79769313e+308])"},
      {tensor({0.0, -0.0}, kDouble), R"([ 0. -0.])"},
      {tensor({kNaN, 1.0, kInf}, kDouble), R"([nan  1. inf])"},
      {tensor({kNaN, -kInf}, kDouble), R"([ nan -inf])"},
      {tensor({-kInf, 1.5, 12345.678}, kDouble), R"([         -inf 1.5000000e+00 1.2345678e+04])"},
      {tensor({-kInf, 1e-7}, kDouble), R"([  -inf 1.e-07])"},
      {tensor({kNaN, kNaN}), R"([nan nan])"},
      {tensor({1, -20, 300}), R"([  1 -20 300])"},
      {tensor({{true, false}, {false, false}}), R"([[ True False]
 [False False]])"},
      {tensor({{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}}), R"([[[1 2]
  [3 4]]

 [[5 6]
  [7 8]]])"},
      {reshape(arange(8), {2, 1, 2, 1, 2}), R"([[[[[0 1]]

   [[2 3]]]]



 [[[[4 5]]

   [[6 7]]]]])"},
      {scalar(3.0, kDouble), R"(3.0)"},
      {scalar(1.0 / 3, kDouble), R"(0.3333333333333333)"},
      {scalar(1.0 / 3), R"(0.33333334)"},
      {scalar(1e16, kDouble), R"(1e+16)"},
      {scalar(123456789012345.0, kDouble), R"(123456789012345.0)"},
      {scalar(67108872.0), R"(67108870.0)"},
      {scalar(-1.5e-5, kDouble), R"(-1.5e-05)"},
      {scalar(1e-4, kDouble), R"(0.0001)"},
      {scalar(kNaN), R"(nan)"},
      {scalar(-7), R"(-7)"},
      {scalar(true), R"(True)"},
      {zeros({0}), R"([])"},
      {zeros({2, 0, 3}), R"([])"},
      {arange(30), R"([ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
 24 25 26 27 28 29])"},
      {linspace(0, 1, 13, kDouble),
       R"([0.         0.08333333 0.16666667 0.25       0.33333333 0.41666667
 0.5        0.58333333 0.66666667 0.75       0.83333333 0.91666667
 1.        ])"},
      {reshape(linspace(-2, 2, 20, kDouble), {2, 10}),
       R"([[-2.         -1.78947368 -1.57894737 -1.36842105 -1.15789474 -0.94736842
  -0.73684211 -0.52631579 -0.31578947 -0.10526316]
 [ 0.10526316  0.31578947  0.52631579  0.73684211  0.94736842  1.15789474
   1.36842105  1.57894737  1.78947368  2.        ]])"},
      {arange(1001), R"([   0    1    2 ...  998  999 1000])"},
      {reshape(arange(1200), {30, 40}), R"([[   0    1    2 ...   37   38   39]
 [  40   41   42 ...   77   78   79]
 [  80   81   82 ...  117  118  119]
 ...
 [1080 1081 1082 ... 1117 1118 1119]
 [1120 1121 1122 ... 1157 1158 1159]
 [1160 1161 1162 ... 1197 1198 1199]])"},
      {reshape(arange(1400), {7, 2, 100}), R"([[[   0    1    2 ...   97   98   99]
  [ 100  101  102 ...  197  198  199]]

 [[ 200  201  202 ...  297  298  299]
  [ 300  301  302 ...  397  398  399]]

 [[ 400  401  402 ...  497  498  499]
  [ 500  501  502 ...  597  598  599]]

 ...

 [[ 800  801  802 ...  897  898  899]
  [ 900  901  902 ...  997  998  999]]

 [[1000 1001 1002 ... 1097 1098 1099]
  [1100 1101 1102 ... 1197 1198 1199]]

 [[1200 1201 1202 ... 1297 1298 1299]
  [1300 1301 1302 ... 1397 1398 1399]]])"},
      {reshape(arange(1002), {6, 167}), R"([[   0    1    2 ...  164  165  166]
 [ 167  168  169 ...  331  332  333]
 [ 334  335  336 ...  498  499  500]
 [ 501  502  503 ...  665  666  667]
 [ 668  669  670 ...  832  833  834]
 [ 835  836  837 ...  999 1000 1001]])"},
  };
  for (const auto& [x, text] : rows) CHECK(to_string(x) == text);
}

TEST_CASE("precision, threshold, edges and width can be set") {
  const Tensor x = tensor({1.0 / 3, 2.0, 12.345678}, kDouble);
  CHECK(to_string(x, {.precision = 3}) == "[ 0.333  2.    12.346]");
  CHECK(to_string(x, {.precision = 0}) == "[ 0.  2. 12.]");
  CHECK(to_string(tensor({1e-7, 1.0 / 3}, kDouble), {.precision = 2}) == "[1.00e-07 3.33e-01]");
  CHECK(to_string(arange(10), {.threshold = 9, .edge_items = 2}) == "[0 1 ... 8 9]");
  CHECK(to_string(arange(10), {.threshold = 9, .edge_items = 5}) == "[0 1 2 3 4 5 6 7 8 9]");
  CHECK(to_string(arange(10), {.line_width = 10}) == "[0 1 2 3\n 4 5 6 7\n 8 9]");
  CHECK(to_string(tensor({{1.5, 2.5}}, kDouble), {.line_width = 1}) == "[[1.5\n  2.5]]");
  CHECK_REFUSED(ValueError, "[to_string] options", to_string(x, {.precision = -1}));
  CHECK_REFUSED(ValueError, "[to_string] options", to_string(x, {.line_width = -1}));
}

TEST_CASE("printing leaves the graph alone and takes an undefined tensor") {
  const Tensor x = tensor({1.0, 2.0}, {.requires_grad = true});
  const auto nodes = graph_stats().live_nodes;
  CHECK(to_string(x) == "[1. 2.]");
  CHECK(graph_stats().live_nodes == nodes);
  CHECK(to_string(Tensor()) == "undefined");
}

TEST_CASE("fmt and streams") {
  const Tensor x = tensor({{1.0, 0.125}, {-3.0, 2.0}});
  CHECK(fmt::format("{}", x) == "[[ 1.     0.125]\n [-3.     2.   ]]");
  CHECK(fmt::format("<{:.1}>", x[0]) == "<[1.  0.1]>");
  CHECK(fmt::format("{} {}", x.shape(), x.dtype()) == "(2, 2) float32");
  CHECK(fmt::format("{}", Shape{5}) == "(5,)");
  std::ostringstream out;
  out << x[1] << ' ' << Shape{} << ' ' << DType::boolean;
  CHECK(out.str() == "[-3.  2.] () boolean");
  CHECK_THROWS_AS(static_cast<void>(fmt::format(fmt::runtime("{:x}"), x)), ValueError);
}

// Elementwise ops of two inputs, comparisons, and where.
#include <fmt/format.h>

#include <cmath>

#include "ops/cotangent.hpp"
#include "ops/map.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/reduce.hpp"

namespace softtape {

using detail::add_product_to_sum;
using detail::OperandPair;
using detail::set_product;
using detail::set_summed;
using detail::Upstream;
using detail::VjpState;

namespace {

// Arithmetic on tensors of one dtype: floats alone, or int64 too.
enum class On { floats, numbers };
template <On kind, class F>
Tensor arithmetic(const char* op, const OperandPair& in, F f) {
  const DType dtype = detail::TensorAccess::node(in.a())->dtype;
  Tensor y = detail::make_result(op, in.a(), in.b(), dtype);
  if constexpr (kind == On::numbers) {
    if (dtype == DType::int64) {
      detail::map_broadcast<std::int64_t, std::int64_t>(in.a(), in.b(), y, f);
      return y;
    }
  }
  visit_float(dtype, op, [&](auto zero) {
    using T = decltype(zero);
    detail::map_broadcast<T, T>(in.a(), in.b(), y, f);
  });
  return y;
}

template <class F>
Tensor compare(const char* op, const Operand& a, const Operand& b, bool booleans, F f) {
  const OperandPair in(op, a, b);
  const DType dtype = in.a().dtype();
  if (dtype == DType::boolean && !booleans) {
    throw DtypeError(fmt::format("[{}] booleans have no order: compare numbers", op));
  }
  Tensor y = detail::make_result(op, in.a(), in.b(), DType::boolean);
  visit_any(dtype, [&](auto zero) {
    using T = decltype(zero);
    detail::map_broadcast<T, bool>(in.a(), in.b(), y, f);
  });
  return y;
}

template <class F>
Tensor logical(const char* op, const Tensor& a, const Tensor& b, F f) {
  detail::check_boolean(op, "a", a);
  detail::check_boolean(op, "b", b);
  Tensor y = detail::make_result(op, a, b, DType::boolean);
  detail::map_broadcast<bool, bool>(a, b, y, f);
  return y;
}

const OpInfo kAdd{"add", [](Vjp& r) {
                    VjpState& pass = VjpState::of(r);
                    if (pass.needs(1)) set_summed(r, 1, pass.gy);
                    // Alone, so that the rule below may work in its memory.
                    if (pass.needs(0)) set_summed(r, 0, pass.last_gy());
                  }};

const OpInfo kSub{"sub", [](Vjp& r) {
                    if (r.needs(0)) set_summed(r, 0, r.gy());
                    if (r.needs(1)) set_summed(r, 1, neg(r.gy()));
                  }};

const OpInfo kMul{"mul",
                  [](Vjp& r) {
                    VjpState& pass = VjpState::of(r);
                    const bool second = pass.needs(1) && !add_product_to_sum(r, 1, 0);
                    if (pass.needs(0)) {
                      set_product(r, 0, 1, second ? Upstream::kept : Upstream::done);
                    }
                    if (second) set_product(r, 1, 0, Upstream::done);
                  },
                  saves_inputs};

const OpInfo kDiv{"div",
                  [](Vjp& r) {
                    const Tensor b = r.x(1);
                    if (r.needs(0)) set_summed(r, 0, chain_mul(r.gy(), div(1, b)));
                    if (r.needs(1)) {
                      const Tensor slope = neg(div(r.y(), b));
                      set_summed(r, 1, chain_mul(r.gy(), slope));
                    }
                  },
                  saves_input(1) | saves_output};

const OpInfo kPow{"pow",
                  [](Vjp& r) {
                    const Tensor a = r.x(0);
                    const Tensor b = r.x(1);
                    if (r.needs(0)) {
                      // chain_mul: an exponent of 0 has slope 0 even where a^-1 is infinite.
                      const Tensor slope = chain_mul(b, pow(a, sub(b, 1)));
                      set_summed(r, 0, chain_mul(r.gy(), slope));
                    }
                    if (r.needs(1)) {
                      const Tensor slope = chain_mul(r.y(), log(a));
                      set_summed(r, 1, chain_mul(r.gy(), slope));
                    }
                  },
                  saves_inputs | saves_output};

const OpInfo kChainMul{"chain_mul",
                       [](Vjp& r) {
                         if (r.needs(0)) {
                           set_summed(r, 0, chain_mul(r.gy(), r.x(1)));
                         }
                         if (r.needs(1)) {
                           set_summed(r, 1, chain_mul(r.gy(), r.x(0)));
                         }
                       },
                       saves_inputs};

// The winner takes the gradient, a tie is split evenly.
void share_between(Vjp& r, const Tensor& a_wins, const Tensor& tie) {
  const Tensor half = mul(r.gy(), 0.5);
  if (r.needs(0)) {
    set_summed(r, 0, where(a_wins, r.gy(), where(tie, half, 0)));
  }
  if (r.needs(1)) {
    const Tensor b_wins = logical_not(logical_or(a_wins, tie));
    set_summed(r, 1, where(b_wins, r.gy(), where(tie, half, 0)));
  }
}

const OpInfo kMaximum{"maximum",
                      [](Vjp& r) { share_between(r, gt(r.x(0), r.x(1)), eq(r.x(0), r.x(1))); },
                      saves_inputs};
const OpInfo kMinimum{"minimum",
                      [](Vjp& r) { share_between(r, lt(r.x(0), r.x(1)), eq(r.x(0), r.x(1))); },
                      saves_inputs};

const OpInfo kWhere{"where",
                    [](Vjp& r) {
                      const Tensor condition = r.x(0);
                      if (r.needs(1)) {
                        set_summed(r, 1, where(condition, r.gy(), 0));
                      }
                      if (r.needs(2)) {
                        set_summed(r, 2, where(condition, 0, r.gy()));
                      }
                    },
                    saves_input(0)};

}  // namespace

Tensor add(Operand a, Operand b) {
  const OperandPair in("add", a, b);
  Tensor y = arithmetic<On::numbers>("add", in, [](auto x, auto z) { return x + z; });
  return detail::record_with(kAdd, saves_nothing, std::move(y), {in.a(), in.b()});
}

Tensor sub(Operand a, Operand b) {
  const OperandPair in("sub", a, b);
  Tensor y = arithmetic<On::numbers>("sub", in, [](auto x, auto z) { return x - z; });
  return detail::record_with(kSub, saves_nothing, std::move(y), {in.a(), in.b()});
}

Tensor mul(Operand a, Operand b) {
  const OperandPair in("mul", a, b);
  Tensor y = arithmetic<On::numbers>("mul", in, [](auto x, auto z) { return x * z; });
  return detail::record_with(kMul, detail::saves_of_product(in.a(), in.b()), std::move(y),
                             {in.a(), in.b()});
}

Tensor div(Operand a, Operand b) {
  const OperandPair in("div", a, b);
  Tensor y = arithmetic<On::floats>("div", in, [](auto x, auto z) { return x / z; });
  return record(kDiv, std::move(y), {in.a(), in.b()});
}

Tensor pow(Operand a, Operand b) {
  const OperandPair in("pow", a, b);
  const bool squares = !b.is_tensor() && b.number() == 2;
  Tensor y = squares
                 ? arithmetic<On::floats>("pow", in, [](auto x, auto) { return x * x; })
                 : arithmetic<On::floats>("pow", in, [](auto x, auto z) { return std::pow(x, z); });
  return record(kPow, std::move(y), {in.a(), in.b()});
}

Tensor chain_mul(TensorArg g, TensorArg slope) {
  const OperandPair in("chain_mul", g, slope);
  Tensor y = arithmetic<On::floats>("chain_mul", in,
                                    [](auto x, auto z) { return x == 0 ? decltype(x){0} : x * z; });
  return detail::record_with(kChainMul, detail::saves_of_product(in.a(), in.b()), std::move(y),
                             {in.a(), in.b()});
}

Tensor maximum(Operand a, Operand b) {
  const OperandPair in("maximum", a, b);
  // x != x: a NaN on the left would lose every comparison.
  Tensor y = arithmetic<On::numbers>("maximum", in,
                                     [](auto x, auto z) { return x > z || x != x ? x : z; });
  return record(kMaximum, std::move(y), {in.a(), in.b()});
}

Tensor minimum(Operand a, Operand b) {
  const OperandPair in("minimum", a, b);
  Tensor y = arithmetic<On::numbers>("minimum", in,
                                     [](auto x, auto z) { return x < z || x != x ? x : z; });
  return record(kMinimum, std::move(y), {in.a(), in.b()});
}

Tensor where(TensorArg condition, Operand a, Operand b) {
  detail::check_boolean("where", "condition", condition);
  const OperandPair in("where", a, b);
  const Shape shape =
      broadcast("where", condition->shape(), detail::result_shape("where", in.a(), in.b()));
  Tensor y = detail::make_tensor(shape, in.a().dtype());
  visit_any(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* out = detail::fresh_numbers<T>(y);
    const bool* chosen = detail::numbers<bool>(condition);
    const T* pa = detail::numbers<T>(in.a());
    const T* pb = detail::numbers<T>(in.b());
    const std::int64_t n = shape.numel();
    const std::int64_t a_step = in.a().numel() == n ? 1 : 0;
    const std::int64_t b_step = in.b().numel() == n ? 1 : 0;
    if (condition->numel() == n && (a_step || in.a().numel() == 1) &&
        (b_step || in.b().numel() == 1)) {
      detail::for_ranges(n, detail::kGrain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          out[i] = chosen[i] ? pa[i * a_step] : pb[i * b_step];
        }
      });
      return;
    }
    const detail::BroadcastPlan values(shape, in.a().shape(), in.b().shape());
    const detail::BroadcastPlan mask(shape, condition->shape(), shape);
    detail::for_ranges(n, detail::kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        std::int64_t ic, ia, ib, unused;
        mask.element(i, ic, unused);
        values.element(i, ia, ib);
        out[i] = chosen[ic] ? pa[ia] : pb[ib];
      }
    });
  });
  return record(kWhere, std::move(y), {*condition, in.a(), in.b()});
}

Tensor eq(Operand a, Operand b) {
  return compare("eq", a, b, true, [](auto x, auto z) { return x == z; });
}
Tensor ne(Operand a, Operand b) {
  return compare("ne", a, b, true, [](auto x, auto z) { return x != z; });
}
Tensor lt(Operand a, Operand b) {
  return compare("lt", a, b, false, [](auto x, auto z) { return x < z; });
}
Tensor le(Operand a, Operand b) {
  return compare("le", a, b, false, [](auto x, auto z) { return x <= z; });
}
Tensor gt(Operand a, Operand b) {
  return compare("gt", a, b, false, [](auto x, auto z) { return x > z; });
}
Tensor ge(Operand a, Operand b) {
  return compare("ge", a, b, false, [](auto x, auto z) { return x >= z; });
}

Tensor logical_and(TensorArg a, TensorArg b) {
  return logical("logical_and", a, b, [](bool x, bool z) { return x && z; });
}
Tensor logical_or(TensorArg a, TensorArg b) {
  return logical("logical_or", a, b, [](bool x, bool z) { return x || z; });
}
Tensor logical_xor(TensorArg a, TensorArg b) {
  return logical("logical_xor", a, b, [](bool x, bool z) { return x != z; });
}
Tensor logical_not(TensorArg a) {
  detail::check_boolean("logical_not", "a", a);
  Tensor y = detail::make_tensor(a->shape(), DType::boolean);
  detail::map_numbers(detail::numbers<bool>(a), detail::fresh_numbers<bool>(y), y.numel(),
                      [](bool x) { return !x; });
  return y;
}

}  // namespace softtape

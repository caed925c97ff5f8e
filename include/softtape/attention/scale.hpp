// Scale: the factor on attention scores, an experiment variable of its own.
#pragma once

#include <cstdint>
#include <string>

#include "softtape/graph/tensor.hpp"

namespace softtape {

/// What raw scores q.k are multiplied by, once, before mask and softmax.
///
/// | form          | factor      | score standard deviation for unit-variance q, k |
/// | inv_sqrt_dk() | 1/sqrt(dk)  | 1 for every dk (Vaswani et al. 2017)            |
/// | none()        | 1           | sqrt(dk): saturates beyond sqrt(2 ln T)         |
/// | inv_dk()      | 1/dk        | 1/sqrt(dk) (muP, Yang et al. 2022)              |
/// | value(x)      | x           | any finite number, 0 and negative too           |
/// | learned(t)    | the tensor  | one number, differentiable                      |
class SOFTTAPE_API Scale {
 public:
  static Scale inv_sqrt_dk() { return Scale(Kind::inv_sqrt_dk); }
  static Scale none() { return Scale(Kind::none); }
  static Scale inv_dk() { return Scale(Kind::inv_dk); }
  /// Throws: ValueError when x is not finite.
  static Scale value(double x);
  /// A float tensor of one element. Throws: ShapeError or DtypeError otherwise.
  static Scale learned(const Tensor& factor);

  bool is_learned() const { return kind_ == Kind::learned; }
  /// The factor for keys of width dk; of a learned scale its present value.
  double factor(std::int64_t dk) const;
  /// The tensor of a learned scale, undefined otherwise.
  const Tensor& tensor() const { return tensor_; }
  /// "inv_sqrt_dk", "none", "inv_dk", "value" or "learned".
  std::string name() const;

 private:
  enum class Kind { inv_sqrt_dk, none, inv_dk, value, learned };
  explicit Scale(Kind kind, double value = 1) : kind_(kind), value_(value) {}

  Kind kind_;
  double value_;
  Tensor tensor_;
};

}  // namespace softtape

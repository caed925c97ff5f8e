// Takes a State apart: every entry once, of the right type and shape, and none left over.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/node.hpp"
#include "softtape/base/error.hpp"
#include "softtape/nn/state.hpp"

namespace softtape::detail {

class StateReader {
 public:
  /// `what` is loaded, for messages. Throws: GraphError for an undefined tensor, ValueError for a
  /// name that comes twice.
  StateReader(std::string what, const State& state) : what_(std::move(what)) {
    for (const auto& [name, tensor] : state) {
      check_defined("load_state", name.c_str(), tensor);
      if (!entries_.emplace(name, tensor).second) {
        refuse(fmt::format("every name must come once: {} is doubled", name));
      }
    }
  }

  bool has(const std::string& name) const { return entries_.contains(name); }

  /// Takes an entry. Throws (all): ValueError when it is not there, ShapeError, DtypeError.
  Tensor tensor(const std::string& name) {
    const auto found = entries_.find(name);
    if (found == entries_.end()) refuse(fmt::format("{} is missing", name));
    Tensor out = std::move(found->second);
    entries_.erase(found);
    return out;
  }
  Tensor tensor(const std::string& name, const Shape& shape, DType dtype) {
    Tensor x = tensor(name);
    if (x.shape() != shape) {
      throw ShapeError(fmt::format("[load_state] shapes must be equal: {} is {} here, {} there",
                                   name, to_string(shape), to_string(x.shape())));
    }
    if (x.dtype() != dtype) {
      throw DtypeError(fmt::format("[load_state] dtypes must be equal: {} is {} here, {} there",
                                   name, to_string(dtype), to_string(x.dtype())));
    }
    return x;
  }
  template <class T>
  T number(const std::string& name) {
    const Tensor x = tensor(name);
    return typed<T>(name, x, 0)[0];
  }
  template <class T>
  std::vector<T> column(const std::string& name) {
    const Tensor x = tensor(name);
    const auto numbers = typed<T>(name, x, 1);
    return {numbers.begin(), numbers.end()};
  }
  /// All that is left, without the beginning that their names share.
  std::vector<std::pair<std::string, std::int64_t>> rest(std::string_view beginning) {
    std::vector<std::pair<std::string, std::int64_t>> out;
    for (const auto& [name, x] : entries_) {
      if (!name.starts_with(beginning)) refuse(fmt::format("{} is unknown", name));
      out.emplace_back(name.substr(beginning.size()), typed<std::int64_t>(name, x, 0)[0]);
    }
    entries_.clear();
    return out;
  }
  /// Throws: ValueError when an entry is left.
  void finish() const {
    if (!entries_.empty()) refuse(fmt::format("{} is unknown", entries_.begin()->first));
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw ValueError(fmt::format("[load_state] not a state of {}: {}", what_, why));
  }

 private:
  template <class T>
  std::span<const T> typed(const std::string& name, const Tensor& x, int rank) const {
    if (x.rank() != rank) {
      throw ShapeError(fmt::format("[load_state] {} of {} must have {} axes: its shape is {}", name,
                                   what_, rank, to_string(x.shape())));
    }
    if (x.dtype() != dtype_of<T>) {
      throw DtypeError(fmt::format("[load_state] {} of {} must be {}: it is {}", name, what_,
                                   to_string(dtype_of<T>), to_string(x.dtype())));
    }
    return x.data<T>();
  }

  std::string what_;
  std::unordered_map<std::string, Tensor> entries_;
};

}  // namespace softtape::detail

// Random streams as tensors.
#include "softtape/nn/state.hpp"

#include <fmt/format.h>

#include <bit>

#include "softtape/base/error.hpp"
#include "softtape/ops/create.hpp"

namespace softtape {

namespace {

// Eight fixed numbers, then two lists, each behind its length.
constexpr std::size_t kFixed = 8;

[[noreturn]] void refuse(const char* why) {
  throw ValueError(fmt::format("[rng_from_tensor] not the state of a generator: {}", why));
}

class Reader {
 public:
  explicit Reader(std::span<const std::int64_t> numbers) : numbers_(numbers) {}
  std::uint64_t next() {
    if (numbers_.empty()) refuse("it is too short");
    const std::int64_t number = numbers_.front();
    numbers_ = numbers_.subspan(1);
    return std::bit_cast<std::uint64_t>(number);
  }
  std::uint32_t next32() {
    const std::uint64_t number = next();
    if (number >> 32 != 0) refuse("a number exceeds 32 bits");
    return static_cast<std::uint32_t>(number);
  }
  std::size_t next_length() {
    const std::uint64_t length = next();
    if (length > numbers_.size()) refuse("a list is longer than the tensor");
    return static_cast<std::size_t>(length);
  }
  bool done() const { return numbers_.empty(); }

 private:
  std::span<const std::int64_t> numbers_;
};

}  // namespace

Tensor rng_to_tensor(const Rng& rng) {
  const RngState& s = rng.state();
  std::vector<std::int64_t> numbers;
  const auto put = [&](std::uint64_t number) {
    numbers.push_back(std::bit_cast<std::int64_t>(number));
  };
  for (const std::uint64_t number :
       {s.state_high, s.state_low, s.inc_high, s.inc_low, std::uint64_t{s.has_uint32},
        std::uint64_t{s.uinteger}, s.n_children_spawned, std::uint64_t{s.pool_size}}) {
    put(number);
  }
  put(s.entropy.size());
  for (const std::uint32_t word : s.entropy) put(word);
  put(s.spawn_key.size());
  for (const std::uint64_t index : s.spawn_key) put(index);
  return tensor(numbers);
}

Rng rng_from_tensor(const Tensor& state) {
  if (!state.defined() || state.dtype() != DType::int64) refuse("it must be an int64 tensor");
  if (state.rank() != 1) refuse("it must have one axis");
  if (state.numel() < static_cast<std::int64_t>(kFixed) + 2) refuse("it is too short");
  Reader in(state.data<std::int64_t>());
  RngState s;
  s.state_high = in.next();
  s.state_low = in.next();
  s.inc_high = in.next();
  s.inc_low = in.next();
  const std::uint64_t has_half = in.next();
  if (has_half > 1) refuse("the flag of the half word is neither 0 nor 1");
  s.has_uint32 = has_half == 1;
  s.uinteger = in.next32();
  s.n_children_spawned = in.next();
  s.pool_size = in.next32();
  s.entropy.resize(in.next_length());
  for (auto& word : s.entropy) word = in.next32();
  s.spawn_key.resize(in.next_length());
  for (auto& index : s.spawn_key) index = in.next();
  if (!in.done()) refuse("it is too long");
  Rng rng(0);
  rng.set_state(std::move(s));
  return rng;
}

}  // namespace softtape

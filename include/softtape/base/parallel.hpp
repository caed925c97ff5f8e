// Threads inside ops.
//
// Work is cut into chunks by problem size alone and every output element is summed in one fixed
// order, so results are bit-identical at any thread count. One parallel region runs at a time: when
// a user's own threads call ops side by side, the one that finds the workers busy runs its chunks
// itself instead of multiplying threads.
#pragma once

#include <cstdint>
#include <type_traits>

#include "softtape/base/export.hpp"

namespace softtape {

/// Threads an op may use: SOFTTAPE_NUM_THREADS if set, else as many as there are processors.
SOFTTAPE_API int num_threads();

/// Throws: ValueError when n < 1.
SOFTTAPE_API void set_num_threads(int n);

namespace detail {
SOFTTAPE_API void run_chunks(std::int64_t chunks, void (*body)(void*, std::int64_t), void* context);
}

/// Calls body(i) for i in [0, chunks), in any order, on up to num_threads() threads. The body must
/// not throw, must not call parallel_for's caller back, and must write to places of its own.
template <class Body>
void parallel_for(std::int64_t chunks, Body&& body) {
  if (chunks <= 1) {
    if (chunks == 1) body(std::int64_t{0});
    return;
  }
  detail::run_chunks(
      chunks,
      [](void* context, std::int64_t i) {
        (*static_cast<std::remove_reference_t<Body>*>(context))(i);
      },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace softtape

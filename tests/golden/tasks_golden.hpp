// Made by tasks_golden.py with NumPy 1.24.2
// clang-format off
#pragma once

#include <cstdint>
#include <vector>

namespace golden::tasks {

inline const std::vector<std::int64_t> recall_keys = {7, 0, 2, 1, 4, 4, 8, 6, 7, 3, 5, 2, 3, 1, 6, 6, 2, 0, 4, 3, 6, 8, 3, 5, 2};
inline const std::vector<std::int64_t> recall_values = {1, 1, 2, 1, 1, 1, 2, 2, 0, 2, 0, 3, 3, 1, 0, 1, 2, 2, 1, 1, 1, 1, 2, 1, 2};
inline const std::vector<std::int64_t> recall_slot = {0, 3, 1, 0, 3};
inline const std::vector<std::int64_t> recall_query = {7, 7, 2, 6, 5};
inline const std::vector<std::int64_t> recall_target = {1, 0, 3, 1, 1};
inline const std::vector<std::int64_t> copy_x = {3, 4, 4, 5, 3, 4, 2, 4, 4, 5, 2, 4};
inline const std::vector<std::int64_t> copy_y = {-1, -1, -1, 3, 4, 4, -1, -1, -1, 2, 4, 4};
inline const std::vector<std::int64_t> induction_x = {9, 11, 1, 9, 11, 11, 6, 9, 11, 6};
inline const std::vector<std::int64_t> induction_y = {-1, -1, -1, 11, 1, -1, -1, -1, 6, 9};

}  // namespace golden::tasks

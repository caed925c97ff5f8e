// Made by char_text_golden.py with NumPy 1.24.2
// clang-format off
#pragma once

#include <cstdint>
#include <vector>

namespace golden::char_text {

// αβγ abc, caba; αγ 😀 cab bca!, seven times, each line ending in a line feed.
inline constexpr std::int64_t size = 203, train_size = 182;
inline const std::vector<std::int64_t> batch_x = {5, 6, 5, 4, 1, 8, 0, 8, 9, 10, 1, 5, 5, 4, 1, 8, 10, 1, 0, 8, 9, 10, 1, 5};
inline const std::vector<std::int64_t> batch_y = {6, 5, 4, 1, 8, 10, 8, 9, 10, 1, 5, 6, 4, 1, 8, 10, 1, 11, 8, 9, 10, 1, 5, 6};
inline const std::vector<std::int64_t> validation_x = {1, 7, 5, 6, 5, 4, 5, 4, 1, 8, 10, 1, 1, 11, 1, 7, 5, 6, 6, 1, 6, 7, 5, 2};
inline const std::vector<std::int64_t> validation_y = {7, 5, 6, 5, 4, 1, 4, 1, 8, 10, 1, 11, 11, 1, 7, 5, 6, 1, 1, 6, 7, 5, 2, 0};
inline const std::vector<std::int64_t> counts = {6, 37, 6, 7, 6, 31, 25, 25, 13, 7, 13, 6};
inline constexpr double unigram = 2.262132733125975;
inline constexpr double bigram = 0.9765370769529053;

}  // namespace golden::char_text

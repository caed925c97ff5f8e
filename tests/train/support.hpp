// What the tests of training share: a small task with every source of randomness, stderr in a
// file, and the bits of a whole run.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "ops/support.hpp"
#include "softtape/io/file.hpp"
#include "softtape/nn/dropout.hpp"
#include "softtape/nn/linear.hpp"
#include "softtape/nn/sequential.hpp"
#include "softtape/ops/elementwise.hpp"
#include "softtape/ops/loss.hpp"
#include "softtape/optim/adam.hpp"
#include "softtape/train/batches.hpp"
#include "softtape/train/trainer.hpp"
#include "support/compare.hpp"
#include "support/folder.hpp"

namespace train_test {

/// While it lives, stderr goes to a file.
class CapturedStderr {
 public:
  explicit CapturedStderr(const std::string& path) : path_(path), before_(::dup(2)) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(file, 2);
    ::close(file);
  }
  ~CapturedStderr() { restore(); }
  CapturedStderr(const CapturedStderr&) = delete;
  CapturedStderr& operator=(const CapturedStderr&) = delete;
  std::string text() {
    restore();
    return softtape::read_file(path_);
  }

 private:
  void restore() {
    if (before_ < 0) return;
    std::fflush(stderr);
    ::dup2(before_, 2);
    ::close(before_);
    before_ = -1;
  }
  std::string path_;
  int before_;
};

/// A classifier with dropout on shuffled batches: weights, drops and batches all draw.
struct Run {
  softtape::Rng rng;
  softtape::Sequential model;
  softtape::Batches batches;
  softtape::Adam optimizer;

  explicit Run(std::uint64_t seed = 7)
      : rng(seed), batches(make_batches(rng)), optimizer(build(model, rng), {.lr = 0.01}) {}

  softtape::TrainerOptions options(softtape::TrainerOptions more = {}) {
    more.parts = {{"model", model}, {"batches", batches}};
    more.progress.enabled = false;
    return more;
  }
  softtape::LossFunction loss() {
    return [this](std::int64_t) {
      const auto [x, y] = batches.next();
      return softtape::cross_entropy(model(x), y);
    };
  }
  /// The mean loss over all rows, without dropout.
  softtape::Metrics measure() {
    const auto [x, y] = everything();
    return {{"val_loss", softtape::cross_entropy(model(x), y).item()}};
  }
  static softtape::Batch everything() {
    softtape::Rng data(99);
    const softtape::Tensor x = softtape::randn(data, {50, 3}, {.dtype = softtape::DType::float64});
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < 50; ++i) {
      const auto row = x[i].to_vector();
      labels.push_back(row[0] * row[1] > 0 ? 1 : 0);
    }
    return {x, softtape::tensor(labels)};
  }

 private:
  static softtape::Batches make_batches(softtape::Rng& rng) {
    const auto [x, y] = everything();
    return {x, y, {.size = 8}, rng};
  }
  static softtape::Sequential& build(softtape::Sequential& model, softtape::Rng& rng) {
    const softtape::DefaultDtype guard(softtape::DType::float64);
    model.emplace<softtape::Linear>(3, 16, rng);
    model.add(softtape::tanh);
    model.emplace<softtape::Dropout>(0.25, rng);
    model.emplace<softtape::Linear>(16, 2, rng);
    return model;
  }
};

/// f(x) = x^2 from x = 1.
struct Square {
  softtape::Tensor x = test_support::leaf(1.0).named("x");
  softtape::LossFunction loss() {
    return [this](std::int64_t) { return softtape::square(x); };
  }
};

const softtape::ProgressOptions kSilent{.enabled = false};

/// Whether two files hold the same bytes.
inline bool same_files(const std::string& a, const std::string& b) {
  return softtape::read_file(a) == softtape::read_file(b);
}

}  // namespace train_test

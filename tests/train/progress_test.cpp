// Progress where stderr is a file: what a line says, when there is one, and when there is none.
#include "softtape/train/progress.hpp"

#include <doctest/doctest.h>

#include <regex>
#include <stdexcept>
#include <string>

#include "train/support.hpp"

using namespace softtape;
using train_test::CapturedStderr;
using train_test::TemporaryFolder;

namespace {

bool matches(const std::string& text, const char* pattern) {
  return std::regex_match(text, std::regex(pattern));
}

}  // namespace

TEST_CASE("progress: lines in a file, without control characters") {
  const TemporaryFolder folder;
  CapturedStderr captured(folder.file("stderr"));
  {
    Progress progress(200, {.label = "fit", .interval = 0}, 100);
    progress.update(150, "loss 2.5");
    progress.update(160);
    progress.finish("loss 2.25");
    progress.update(200, "after the end");
    progress.finish("after the end");
  }
  const std::string text = captured.text();
  CAPTURE(text);
  CHECK(matches(text,
                "fit 150/200 \\(75 %\\), \\S+/s, \\d+ s left: loss 2\\.5\n"
                "fit 160/200 \\(80 %\\), \\S+/s, \\d+ s left\n"
                "fit 160/200 \\(80 %\\), \\S+/s, \\d+ s: loss 2\\.25\n"));
}

TEST_CASE("progress: silent between lines, when switched off, and when left by an exception") {
  const TemporaryFolder folder;
  CapturedStderr captured(folder.file("stderr"));
  {
    Progress later(10, {.interval = 3600});
    CHECK_FALSE(later.is_due());
    later.update(5, "too soon");
    Progress off(10, {.enabled = false, .interval = 0});
    CHECK_FALSE(off.is_due());
    off.update(5, "off");
    off.finish("off");
  }
  CHECK(captured.text().empty());
}

TEST_CASE("progress: nothing to do is done") {
  const TemporaryFolder folder;
  CapturedStderr captured(folder.file("stderr"));
  Progress(0, {.interval = 0}).finish();
  CHECK(matches(captured.text(), "train 0/0 \\(100 %\\), 1 s\n"));
}

TEST_CASE("progress: options that make no sense are refused") {
  CHECK_REFUSED(ValueError, "[Progress] done must lie in [0, total]: done = 3, total = 2",
                Progress(2, {}, 3));
  CHECK_REFUSED(ValueError, "[Progress] done must lie in [0, total]: done = 0, total = -1",
                Progress(-1));
  CHECK_REFUSED(ValueError, "[Progress] an interval must not be negative: interval = nan",
                Progress(2, {.interval = test_support::kNaN}));
}

// Progress where stderr is a file and where it is a terminal: what is shown, and when.
#include "softtape/train/progress.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <regex>
#include <string>

#include "train/support.hpp"

using namespace softtape;
using test_support::Folder;
using train_test::CapturedStderr;

namespace {

bool matches(const std::string& text, const char* pattern) {
  return std::regex_match(text, std::regex(pattern));
}

// While it lives, stderr is a terminal; text() is what it was sent so far.
class Terminal {
 public:
  Terminal() : master_(::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)), before_(::dup(2)) {
    REQUIRE(::grantpt(master_) == 0);
    REQUIRE(::unlockpt(master_) == 0);
    const int slave = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    REQUIRE(slave >= 0);
    ::dup2(slave, 2);
    ::close(slave);
    ::setenv("TERM", "xterm", 1);
  }
  ~Terminal() {
    ::dup2(before_, 2);
    ::close(before_);
    ::close(master_);
    ::unsetenv("NO_COLOR");
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  std::string text() const {
    std::string out;
    char block[4096];
    for (ssize_t n; (n = ::read(master_, block, sizeof block)) > 0;) {
      out.append(block, static_cast<std::size_t>(n));
    }
    return out;
  }

 private:
  int master_;
  int before_;
};

}  // namespace

TEST_CASE("progress: lines in a file, without control characters") {
  const Folder folder;
  CapturedStderr captured(folder / "stderr");
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
                "fit 150/200 \\(75 %\\), \\S+/s, .* left: loss 2\\.5\n"
                "fit 160/200 \\(80 %\\), \\S+/s, .* left\n"
                "fit 160/200 \\(80 %\\), \\S+/s, \\d+ s: loss 2\\.25\n"));
}

TEST_CASE("progress: silent between lines, and when switched off") {
  const Folder folder;
  CapturedStderr captured(folder / "stderr");
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

TEST_CASE("progress: a bar on a terminal, in place, closed at the end") {
  const Terminal terminal;
  ::unsetenv("NO_COLOR");
  {
    Progress progress(200, {}, 0);
    progress.update(50, "loss 2.5");
    progress.update(51, "too soon for another");
  }
  CHECK(matches(terminal.text(),
                "\rtrain \\[\033\\[32m#{6}\033\\[0m\\.{18}\\] 50/200 \\(25 %\\), \\S+/s, "
                ".* left: loss 2\\.5\033\\[K\r\n"));
  ::setenv("NO_COLOR", "1", 1);
  Progress(200, {}, 200)
      .finish("over, with more words than fit into one line of this terminal, so cut");
  const std::string plain = terminal.text();
  CAPTURE(plain);
  CHECK(matches(plain, "\rtrain \\[#{24}\\] 200/200 \\(100 %\\), .*\033\\[K\r\n"));
  CHECK(plain.find("\033[32m") == std::string::npos);
  CHECK(plain.size() < 80 + 6);
  ::setenv("TERM", "dumb", 1);
  Progress(1).finish();
  CHECK(matches(terminal.text(), "train 0/1 \\(0 %\\), \\d+ s\r\n"));
}

TEST_CASE("progress: nothing to do is done") {
  const Folder folder;
  CapturedStderr captured(folder / "stderr");
  Progress(0, {.interval = 0}).finish();
  CHECK(matches(captured.text(), "train 0/0 \\(100 %\\), \\d+ s\n"));
}

TEST_CASE("progress: options that make no sense are refused") {
  CHECK_REFUSED(ValueError, "[Progress] done must lie in [0, total]: done = 3, total = 2",
                Progress(2, {}, 3));
  CHECK_REFUSED(ValueError, "[Progress] done must lie in [0, total]: done = 0, total = -1",
                Progress(-1));
  CHECK_REFUSED(ValueError, "[Progress] an interval must not be negative: interval = nan",
                Progress(2, {.interval = test_support::kNaN}));
}

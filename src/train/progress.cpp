// One line of text, either redrawn in place or printed now and then.
#include "softtape/train/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "softtape/base/error.hpp"

namespace softtape {
namespace {

// Columns of the terminal; 80 where it does not say.
std::size_t columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value;
}

bool is_terminal() {
  const char* kind = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && std::string_view(kind ? kind : "") != "dumb";
}

// Losing a line of progress is no reason to lose a run.
void put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

std::string duration(double seconds) {
  const auto s = static_cast<std::int64_t>(std::min(std::ceil(seconds), 1e9));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02} min", s / 60, s % 60);
  return fmt::format("{}:{:02} h", s / 3600, s / 60 % 60);
}

std::string bar(std::int64_t done, std::int64_t total, bool colour) {
  constexpr std::int64_t kWidth = 24;
  const auto filled = static_cast<std::size_t>(
      total == 0 ? kWidth
                 : static_cast<std::int64_t>(static_cast<double>(done) /
                                             static_cast<double>(total) * kWidth));
  const std::string full(filled, '#');
  const std::string rest(static_cast<std::size_t>(kWidth) - filled, '.');
  return colour ? fmt::format("[\033[32m{}\033[0m{}]", full, rest)
                : fmt::format("[{}{}]", full, rest);
}

}  // namespace

Progress::Progress(std::int64_t total, ProgressOptions options, std::int64_t done)
    : options_(std::move(options)), total_(total), first_(done), done_(done) {
  if (done < 0 || done > total) {
    throw ValueError(
        fmt::format("[Progress] done must lie in [0, total]: done = {}, total = {}", done, total));
  }
  if (!(options_.interval >= 0)) {
    throw ValueError(fmt::format("[Progress] an interval must not be negative: interval = {}",
                                 options_.interval));
  }
  if (!options_.enabled) return;
  style_ = is_terminal() ? Style::bar : Style::lines;
  colour_ = style_ == Style::bar && !is_set("NO_COLOR");
  next_ = begun_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                       style_ == Style::bar ? 0 : std::min(options_.interval, 1e6)));
}

Progress::~Progress() {
  if (open_) put("\n");
}

bool Progress::is_due() const { return style_ != Style::none && Clock::now() >= next_; }

void Progress::update(std::int64_t done, std::string_view words) {
  done_ = std::clamp<std::int64_t>(done, 0, total_);
  if (is_due()) show(words, false);
}

void Progress::finish(std::string_view words) {
  if (style_ != Style::none) show(words, true);
  style_ = Style::none;
}

void Progress::show(std::string_view words, bool last) {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - begun_).count();
  const double rate = seconds > 0 ? static_cast<double>(done_ - first_) / seconds : 0;
  std::string text = fmt::format(
      "{}/{} ({:.0f} %)", done_, total_,
      total_ == 0 ? 100.0 : 100 * static_cast<double>(done_) / static_cast<double>(total_));
  if (rate > 0) text += fmt::format(", {:.3g}/s", rate);
  if (last) {
    text += ", " + duration(seconds);
  } else if (rate > 0) {
    text += ", " + duration(static_cast<double>(total_ - done_) / rate) + " left";
  }
  if (!words.empty()) text += fmt::format(": {}", words);

  if (style_ == Style::lines) {
    put(fmt::format("{} {}\n", options_.label, text));
  } else {
    // Cut to the line, or the terminal would wrap it and the next one could not replace it.
    const std::string start = options_.label + ' ' + std::string(26, ' ') + ' ';
    const std::size_t room = columns() > start.size() + 1 ? columns() - start.size() - 1 : 0;
    put(fmt::format("\r{} {} {}\033[K{}", options_.label, bar(done_, total_, colour_),
                    text.substr(0, room), last ? "\n" : ""));
    open_ = !last;
  }
  const double wait = style_ == Style::bar ? 0.1 : std::min(options_.interval, 1e6);
  next_ = now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(wait));
}

}  // namespace softtape

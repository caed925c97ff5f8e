// starvation: trains Wq, Wk and Wv with and without the scale and measures what starves.
//
// This file reads the command line and runs the parts (parts.hpp) in order. Results go to stdout
// and to files, progress to stderr. Exit codes: 0 all well, 1 a checked law failed, 2 usage,
// 3 files, 4 a headline run became non-finite, 130 interrupted.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <new>
#include <optional>
#include <string>
#include <thread>

#include "laws.hpp"
#include "output.hpp"
#include "parts.hpp"
#include "report.hpp"
#include "softtape/base/error.hpp"
#include "softtape/base/parallel.hpp"
#include "softtape/train/interrupt.hpp"
#include "softtape/version.hpp"

namespace starvation {

namespace {

enum Exit { kOk = 0, kLawFailed = 1, kUsage = 2, kFiles = 3, kNonFinite = 4, kInterrupted = 130 };

constexpr std::int64_t kLargest = 1 << 20;  // no size on the command line exceeds this

// A finite number above zero.
const CLI::Validator kPositive(
    [](std::string& text) {
      double x = 0;
      if (!CLI::detail::lexical_cast(text, x)) return "not a number: " + text;
      return std::isfinite(x) && x > 0 ? std::string() : "must be positive and finite: " + text;
    },
    "POSITIVE");

std::vector<std::string> wide_names(std::vector<std::string> scales) {
  for (std::string& name : scales) {
    if (name == "scaled") name = "inv_sqrt_dk";
    if (name == "unscaled") name = "none";
  }
  return scales;
}

// The command that gives this run again, quoted for a shell.
std::string command_of(int argc, char** argv) {
  std::string out = "starvation";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "0123456789_-./,=:+") == std::string::npos;
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
    out += ' ' + (plain ? word : quoted + "'");
  }
  return out;
}

struct Parsed {
  Options options;
  int exit = -1;  // -1: go on
};

Parsed parse(int argc, char** argv) {
  Parsed parsed;
  Options& o = parsed.options;
  CLI::App app(
      "Trains Wq, Wk and Wv with and without the scale 1/sqrt(dk) and measures what a "
      "saturated softmax starves.");
  std::vector<std::string> only;
  std::int64_t seed_count = 0;
  std::string dtype = "float64";
  bool no_progress = false, no_report = false;
  o.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));

  const auto size = CLI::Range(std::int64_t{1}, kLargest);
  const CLI::IsMember scale(
      {"scaled", "unscaled", "inv_sqrt_dk", "none", "inv_dk", "dk_quarter", "learned"});
  app.add_option("--only", only, "Parts to run: lesson, init, train, text")
      ->delimiter(',')
      ->check(CLI::IsMember({"lesson", "init", "train", "text"}));
  app.add_flag("--full", o.full, "The whole grid: more widths, rates and seeds (many minutes)");
  app.add_option("--dk", o.dk, "Head widths")->delimiter(',')->check(size);
  app.add_option("--seq", o.T, "Pairs in a sample, T")->delimiter(',')->check(size);
  app.add_option("--scales", o.scales, "Scales of the scores")->delimiter(',')->check(scale);
  app.add_option("--remedies", o.remedies, "Remedies to compare")
      ->delimiter(',')
      ->check(CLI::IsMember({"qk_norm", "soft_cap", "learned", "inv_dk", "small_init"}));
  app.add_option("--init-gain", o.init_gains, "Factor on Wq and Wk at the start")
      ->delimiter(',')
      ->check(kPositive);
  app.add_option("--lr", o.lr, "Learning rates")->delimiter(',')->check(kPositive);
  app.add_option("--lr-qk", o.lr_qk, "Learning rates of Wq and Wk; as --lr when not given")
      ->delimiter(',')
      ->check(kPositive);
  app.add_option("--optimizer", o.optimizers, "sgd, adam")
      ->delimiter(',')
      ->check(CLI::IsMember({"sgd", "adam"}));
  auto* seeds = app.add_option("--seeds", seed_count, "How many seeds: 0, 1, ...")
                    ->check(CLI::Range(std::int64_t{1}, std::int64_t{10000}));
  std::vector<std::int64_t> seed_list;
  app.add_option("--seed-list", seed_list, "The seeds themselves")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 53))
      ->excludes(seeds);
  app.add_option("--steps", o.steps, "Training steps")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  app.add_option("--eval-every", o.eval_every, "Steps between evaluations")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  app.add_option("--keys", o.keys, "Key symbols")->check(size)->capture_default_str();
  app.add_option("--values", o.values, "Value symbols")
      ->check(CLI::Range(std::int64_t{2}, kLargest))
      ->capture_default_str();
  app.add_option("--batch", o.batch, "Samples of a training step")
      ->check(size)
      ->capture_default_str();
  app.add_option("--text", o.text, "A UTF-8 file for the text part");
  app.add_option("--dtype", dtype, "float64 or float32")
      ->check(CLI::IsMember({"float64", "float32"}))
      ->capture_default_str();
  app.add_option("--threads", o.threads, "Runs side by side; results do not depend on it")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--out", o.out, "Folder for tables, figures and report")->capture_default_str();
  app.add_flag("--force", o.force, "Replace a run that is there");
  app.add_option("--format", o.format, "Of the table on stdout: text, csv, json")
      ->check(CLI::IsMember({"text", "csv", "json"}))
      ->capture_default_str();
  app.add_flag("--quiet", o.quiet, "Nothing on stdout, no progress");
  app.add_flag("--no-progress", no_progress, "No progress on stderr");
  app.add_flag("--no-report", no_report, "No figures and no report.html");
  app.set_version_flag("--version",
                       fmt::format("starvation (softtape {})", SOFTTAPE_VERSION_STRING));

  try {
    app.parse(argc, argv);
    o.scales = wide_names(o.scales);
    for (const std::int64_t T : o.T.empty() ? std::vector<std::int64_t>{16} : o.T) {
      if (T > o.keys) {
        throw CLI::ValidationError(fmt::format(
            "--seq {} must not be above --keys {}: keys of a sample differ", T, o.keys));
      }
    }
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help and --version
      parsed.exit = app.exit(error);
    } else {
      fmt::print(stderr, "starvation: {}; see --help\n", error.what());
      parsed.exit = kUsage;
    }
    return parsed;
  }
  o.only = {only.begin(), only.end()};
  o.dtype = dtype == "float64" ? softtape::DType::float64 : softtape::DType::float32;
  o.progress = !no_progress && !o.quiet;
  o.report = !no_report;
  for (std::int64_t seed = 0; seed < seed_count; ++seed) seed_list.push_back(seed);
  o.seeds = {seed_list.begin(), seed_list.end()};
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_lnames().empty() ? "" : option->get_lnames()[0];
    if (name.empty() || name == "help" || name == "version") continue;
    std::string value = fmt::format("{}", fmt::join(option->results(), ","));
    if (value.empty()) value = option->get_default_str();
    if (value.empty()) value = option->get_expected_max() == 0 ? "false" : "default";
    o.listed.emplace_back(name, value);
  }
  return parsed;
}

// Whether a run of the two-by-two diverged: its settings are those of P13.
bool headline_diverged(const Results& results) {
  const softtape::Table& t = results.curves;
  return std::ranges::any_of(t.rows(), [&](const auto& row) {
    const auto text = [&](const char* name) { return std::get<std::string>(row[t.column(name)]); };
    const auto whole = [&](const char* name) {
      return std::get<std::int64_t>(row[t.column(name)]);
    };
    const auto number = [&](const char* name) { return std::get<double>(row[t.column(name)]); };
    if (text("task") != "recall" || whole("dk") != 256 || whole("T") != 16 ||
        text("remedy") != "-" || text("optimizer") != "sgd" || number("lr") != 10 ||
        number("lr_qk") != 10) {
      return false;
    }
    const double gain = number("init_gain");
    const bool corner = (text("scale") == "inv_sqrt_dk" && (gain == 1 || gain == 4)) ||
                        (text("scale") == "none" && (gain == 1 || gain == 0.25));
    return corner && !std::isfinite(number("loss"));
  });
}

// What ran, for run.json: the different values of each column of the curves.
void add_grid(Results& results) {
  const softtape::Table& t = results.curves;
  for (const char* name :
       {"task", "dk", "T", "scale", "remedy", "init_gain", "optimizer", "lr", "lr_qk", "seed"}) {
    std::vector<std::string> values;
    for (const auto& row : t.rows()) {
      const std::string value = softtape::to_csv(row[t.column(name)]);
      if (std::ranges::find(values, value) == values.end()) values.push_back(value);
    }
    results.run.emplace_back(fmt::format("trained.{}", name),
                             fmt::format("{}", fmt::join(values, ",")));
  }
}

void say_laws(const Results& results) {
  say_heading("Stated results, checked on this run");
  for (const Law& law : results.laws) {
    fmt::print("{:<4} {}  {}\n              measured: {}\n", law.id,
               law.holds ? "holds " : "FAILS ", law.claim, law.measured);
  }
  const std::string rest = unchecked_laws(results);
  if (!rest.empty()) {
    fmt::print(
        "Not checked, because their settings did not run here: {}. (P12, the curves of an "
        "independent NumPy program,\nis held by the test suite.)\n",
        rest);
  }
}

// Runs the parts in order; false when a signal came.
bool run_parts(const Options& options, const std::optional<softtape::CharText>& text, bool say,
               Results& results) {
  if (options.runs("lesson") && !run_lesson(options, results, say)) return false;
  if (options.runs("init")) {
    if (!run_init(options, results, say)) return false;
    add_heat_maps(results);
    if (options.keys == 32 && options.values == 16) check_start_laws(results);
  }
  if (options.runs("train") && !run_train(options, results, say)) return false;
  return !text || run_text(options, *text, results, say);
}

int run(const Options& options, const std::string& command) {
  const auto begun = std::chrono::steady_clock::now();
  // A text that cannot be used is refused before anything is replaced or computed.
  std::optional<softtape::CharText> text;
  if (options.runs("text")) text = open_text(options.text);
  open_folder(options);
  softtape::set_num_threads(1);  // runs go side by side instead
  const softtape::InterruptGuard guard;
  const bool say = !options.quiet && options.format == "text";
  Results results;
  results.command = command;
  std::chrono::duration<double> wall{};
  const auto write = [&] {
    std::ranges::stable_sort(results.laws, {},
                             [](const Law& law) { return std::stoi(law.id.substr(1)); });
    wall = std::chrono::steady_clock::now() - begun;
    results.run = options.listed;
    add_grid(results);
    results.run.emplace_back("version", SOFTTAPE_VERSION_STRING);
    results.run.emplace_back("cpu_features", cpu_features());
    results.run.emplace_back("wall_seconds", fmt::format("{:.1f}", wall.count()));
    write_tables(results, options.out);
  };
  try {
    results.interrupted = !run_parts(options, text, say, results);
  } catch (...) {
    results.interrupted = true;
    write();  // what was finished stays
    throw;
  }
  write();
  if (options.report) write_report(results, options.out);
  if (!options.quiet && !say) fmt::print("{}", table_for_programs(results, options.format));
  if (say && !results.laws.empty()) say_laws(results);
  if (say) {
    fmt::print("\n{:.1f} s. Tables in {}{}\n", wall.count(), options.out,
               options.report ? "; open report.html there in a browser" : "");
  }
  // What a full disk or a closed pipe did not take is known only now.
  if (std::fflush(stdout) != 0) throw softtape::IoError("[starvation] stdout cannot be written");
  if (softtape::InterruptGuard::requested()) {
    fmt::print(stderr, "starvation: interrupted; what was finished is in {}\n", options.out);
    return kInterrupted;
  }
  if (headline_diverged(results)) {
    fmt::print(stderr, "starvation: a headline run became non-finite; see {}/curves.csv\n",
               options.out);
    return kNonFinite;
  }
  return std::ranges::all_of(results.laws, &Law::holds) ? kOk : kLawFailed;
}

}  // namespace
}  // namespace starvation

int main(int argc, char** argv) {
  try {
    const starvation::Parsed parsed = starvation::parse(argc, argv);
    if (parsed.exit >= 0) return parsed.exit;
    return starvation::run(parsed.options, starvation::command_of(argc, argv));
  } catch (const softtape::IoError& error) {
    fmt::print(stderr, "starvation: {}\n", error.what());
    return starvation::kFiles;
  } catch (const softtape::Error& error) {
    fmt::print(stderr, "starvation: {}\n", error.what());
    return starvation::kUsage;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "starvation: these sizes need more memory than there is\n");
    return starvation::kUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "starvation: {}\n", error.what());
    return starvation::kFiles;
  }
}

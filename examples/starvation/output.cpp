// Files of a run: the tables, then run.json, which says whether the run was interrupted.
#include "output.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "softtape/base/error.hpp"
#include "softtape/io/file.hpp"

namespace starvation {

using softtape::IoError;
using softtape::Table;

namespace {

struct Named {
  const char* file;
  const Table* table;
};

std::vector<Named> tables(const Results& r) {
  return {{"lesson.csv", &r.lesson},           {"init.csv", &r.init}, {"curves.csv", &r.curves},
          {"summary.csv", &r.summary},         {"keys.csv", &r.keys}, {"text.csv", &r.text},
          {"attribution.csv", &r.attribution}, {"ends.csv", &r.ends}};
}

std::string in(const std::string& folder, const char* file) {
  return (std::filesystem::path(folder) / file).string();
}

std::string run_json(const Results& results) {
  const auto text = [](const std::string& words) { return softtape::to_json(words); };
  std::string out = "{\n";
  for (const auto& [name, value] : results.run) {
    out += fmt::format("  {}: {},\n", text(name), text(value));
  }
  out += fmt::format("  \"command\": {},\n  \"interrupted\": {},\n  \"laws\": [",
                     text(results.command), results.interrupted);
  for (std::size_t i = 0; i < results.laws.size(); ++i) {
    const Law& law = results.laws[i];
    out += fmt::format("{}\n    {{\"id\": {}, \"claim\": {}, \"measured\": {}, \"holds\": {}}}",
                       i == 0 ? "" : ",", text(law.id), text(law.claim), text(law.measured),
                       law.holds);
  }
  return out + "\n  ]\n}\n";
}

// Only what a run leaves there: the folder may hold files of other hands.
void remove_figures(const std::string& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> ours;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string kind = entry.path().extension().string();
    const bool figure = kind == ".dat" || kind == ".gp" || kind == ".svg";
    if (figure && entry.is_regular_file(error)) ours.push_back(entry.path());
  }
  for (const auto& path : ours) std::filesystem::remove(path, error);
}

}  // namespace

void open_folder(const Options& options) {
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  if (error)
    throw IoError(fmt::format("[starvation] --out '{}': {}", options.out, error.message()));
  if (!options.force) {
    for (const auto& [file, table] : tables(Results{})) {
      for (const char* name : {file, "run.json", "report.html"}) {
        if (std::filesystem::exists(in(options.out, name), error)) {
          throw IoError(fmt::format(
              "[starvation] --out '{}' holds a run already ({}); pass --force to replace it",
              options.out, name));
        }
      }
    }
  } else {
    // A part that does not run this time leaves no file of last time's.
    for (const auto& [file, table] : tables(Results{})) {
      std::filesystem::remove(in(options.out, file), error);
    }
    for (const char* name : {"run.json", "report.html"}) {
      std::filesystem::remove(in(options.out, name), error);
    }
    remove_figures(in(options.out, "figures"));
  }
  // Better to know before the work than after it.
  const std::string probe = in(options.out, ".probe");
  softtape::write_file(probe, "");
  std::filesystem::remove(probe, error);
}

void write_tables(const Results& results, const std::string& folder) {
  for (const auto& [file, table] : tables(results)) {
    if (!table->rows().empty()) softtape::write_file(in(folder, file), table->csv());
  }
  softtape::write_file(in(folder, "run.json"), run_json(results));
}

std::string table_for_programs(const Results& results, const std::string& format) {
  const Table* shown = &results.lesson;
  if (!results.init.rows().empty()) shown = &results.init;
  if (!results.summary.rows().empty()) shown = &results.summary;
  return format == "csv" ? shown->csv() : shown->json();
}

void say_heading(const std::string& words) {
  fmt::print("\n{}\n{}\n", words, std::string(words.size(), '-'));
}

std::string cpu_features() {
  std::string out;
#if defined(__x86_64__)
  const auto add = [&](bool there, const char* name) {
    if (there) out += fmt::format("{}{}", out.empty() ? "" : " ", name);
  };
  add(__builtin_cpu_supports("sse4.2"), "sse4.2");
  add(__builtin_cpu_supports("avx"), "avx");
  add(__builtin_cpu_supports("avx2"), "avx2");
  add(__builtin_cpu_supports("fma"), "fma");
  add(__builtin_cpu_supports("avx512f"), "avx512f");
#elif defined(__aarch64__)
  out = "neon";
#endif
  return out.empty() ? "unknown" : out;
}

}  // namespace starvation

// Runs gnuplot as a child process. Its output goes to unnamed files, so that it never waits for us
// and we never for half of it.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "report/draw.hpp"

namespace softtape::detail {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File unnamed_file() { return {std::tmpfile(), &std::fclose}; }

std::string contents(std::FILE* file) {
  std::string out;
  std::rewind(file);
  char block[1 << 14];
  while (const std::size_t got = std::fread(block, 1, sizeof block, file)) out.append(block, got);
  return out;
}

std::string first_line_with_words(const std::string& text) {
  std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "no reason given";
  return text.substr(begin, text.find('\n', begin) - begin);
}

struct FileActions {
  posix_spawn_file_actions_t actions;
  FileActions() { posix_spawn_file_actions_init(&actions); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
};

}  // namespace

GnuplotRun run_gnuplot(const std::string& folder, const std::string& script) {
  const File output = unnamed_file();
  const File errors = unnamed_file();
  if (!output || !errors) {
    return {"", fmt::format("not drawn: no temporary file ({})", std::strerror(errno))};
  }
  FileActions setup;
  posix_spawn_file_actions_addopen(&setup.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&setup.actions, ::fileno(output.get()), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&setup.actions, ::fileno(errors.get()), STDERR_FILENO);
  posix_spawn_file_actions_addchdir_np(&setup.actions, folder.empty() ? "." : folder.c_str());
  // -d: no start-up file of the user's changes the drawing. A name may begin with a minus.
  std::string program = "gnuplot", option = "-d", argument = "./" + script;
  const std::array<char*, 4> arguments{program.data(), option.data(), argument.data(), nullptr};
  pid_t child = 0;
  const int failure =
      ::posix_spawnp(&child, program.c_str(), &setup.actions, nullptr, arguments.data(), environ);
  if (failure == ENOENT) {
    return {"", "not drawn: gnuplot is not installed (Debian: gnuplot-nox)"};
  }
  if (failure != 0) {
    return {"", fmt::format("not drawn: gnuplot did not start ({})", std::strerror(failure))};
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return {"", "not drawn: gnuplot was lost"};
  }
  std::string drawn = contents(output.get());
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || drawn.find("</svg>") == std::string::npos) {
    return {"", "not drawn: gnuplot failed: " + first_line_with_words(contents(errors.get()))};
  }
  return {std::move(drawn), ""};
}

}  // namespace softtape::detail

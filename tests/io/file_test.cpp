// write_file and read_file: the old file or the new one, whatever goes wrong.
#include "softtape/io/file.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <thread>
#include <vector>

#include "io/support.hpp"
#include "softtape/base/error.hpp"

using namespace softtape;
using io_test::bytes_of;
using test_support::Folder;
namespace fs = std::filesystem;

namespace {

unsigned mode_of(const std::string& path) {
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  return info.st_mode & 07777;
}

// Runs `call` in a child process as a user without rights, and returns whether it returned true.
template <class F>
bool as_nobody(F call) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(2);
    bool result = false;
    try {
      result = call();
    } catch (...) {
    }
    ::_exit(result ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Files of this process cannot grow beyond `bytes`, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &old_) == 0);
    const rlimit lower{bytes, old_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &lower) == 0);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_{};
  void (*handler_)(int);
};

}  // namespace

TEST_CASE("write_file: any bytes, new and over an old file") {
  const Folder folder;
  const std::string path = folder / "file";
  std::string bytes(200'000, 'x');
  for (std::size_t i = 0; i < bytes.size(); i += 7) bytes[i] = static_cast<char>(i);
  for (const std::string& content : {bytes, std::string(), std::string("short\0er", 8)}) {
    write_file(path, content);
    CHECK(read_file(path) == content);
  }
  CHECK(folder.entries() == 1);
}

TEST_CASE("write_file: a new file gets the usual rights, an old one keeps its own") {
  const Folder folder;
  const mode_t before = ::umask(022);
  write_file(folder / "new", "a");
  CHECK(mode_of(folder / "new") == 0644);
  REQUIRE(::chmod((folder / "new").c_str(), 0600) == 0);
  write_file(folder / "new", "b");
  CHECK(mode_of(folder / "new") == 0600);
  ::umask(before);
}

TEST_CASE("write_file: a link stays, and what it points to is replaced") {
  const Folder folder;
  write_file(folder / "real", "old");
  fs::create_symlink("real", folder / "link");
  write_file(folder / "link", "new");
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(bytes_of(folder / "real") == "new");
  CHECK(folder.entries() == 2);
}

TEST_CASE("write_file: a folder, a missing folder, a file as folder, no name, a name too long") {
  const Folder folder;
  write_file(folder / "file", "kept");
  fs::create_directory(folder / "inner");
  CHECK_THROWS_SAYING(IoError, "write_file", "directory", write_file(folder / "inner", "x"));
  CHECK_THROWS_SAYING(IoError, "write_file", "No such file", write_file(folder / "no/file", "x"));
  CHECK_THROWS_SAYING(IoError, "write_file", "file/x'", write_file(folder / "file/x", "x"));
  CHECK_THROWS_SAYING(IoError, "write_file", "''", write_file("", "x"));
  CHECK_THROWS_SAYING(IoError, "write_file", "too long",
                      write_file(folder / std::string(300, 'n'), "x"));
  CHECK(bytes_of(folder / "file") == "kept");
  CHECK(folder.entries() == 2);
}

TEST_CASE("write_file: a folder without rights") {
  const Folder folder;
  const std::string path = folder / "file";
  write_file(path, "kept");
  fs::permissions(folder.path(), fs::perms(0555));
  CHECK(as_nobody([&] {
    try {
      write_file(path, "new");
    } catch (const IoError& error) {
      return test_support::contains(error.what(), "Permission denied");
    }
    return false;
  }));
  fs::permissions(folder.path(), fs::perms(0755));
  CHECK(bytes_of(path) == "kept");
  CHECK(folder.entries() == 1);
}

TEST_CASE("write_file: a disk that fills up half-way keeps the old file and no temporary one") {
  const Folder folder;
  const std::string path = folder / "file";
  write_file(path, "kept");
  {
    const FileSizeLimit limit(4096);
    CHECK_THROWS_SAYING(IoError, "write_file", "large", write_file(path, std::string(10'000, 'x')));
    CHECK_THROWS_SAYING(IoError, "write_file", "large",
                        write_file(folder / "new", std::string(10'000, 'x')));
  }
  CHECK(bytes_of(path) == "kept");
  CHECK(folder.entries() == 1);
}

TEST_CASE("write_file: devices are written to, never replaced") {
  struct stat info {};
  if (::stat("/dev/full", &info) == 0 && S_ISCHR(info.st_mode)) {
    CHECK_THROWS_SAYING(IoError, "write_file", "No space left", write_file("/dev/full", "x"));
    REQUIRE(::stat("/dev/full", &info) == 0);
    CHECK(S_ISCHR(info.st_mode));
  }
  write_file("/dev/null", "gone");
  REQUIRE(::stat("/dev/null", &info) == 0);
  CHECK(S_ISCHR(info.st_mode));
}

TEST_CASE("write_file: [thread] a reader sees one whole file while threads write it") {
  const Folder folder;
  const std::string path = folder / "file";
  write_file(path, std::string(5000, '0'));
  std::vector<std::thread> writers;
  for (const char letter : {'1', '2', '3'}) {
    writers.emplace_back([&path, letter] {
      for (int i = 0; i < 20; ++i) write_file(path, std::string(5000, letter));
    });
  }
  bool whole = true;
  for (int i = 0; i < 200; ++i) {
    const std::string content = read_file(path);
    whole = whole && content.size() == 5000 && content == std::string(5000, content[0]);
  }
  for (std::thread& writer : writers) writer.join();
  CHECK(whole);
  CHECK(folder.entries() == 1);
}

TEST_CASE("read_file: a missing file, a folder, one that is too long") {
  const Folder folder;
  CHECK_THROWS_SAYING(IoError, "read_file", "No such file", read_file(folder / "none"));
  CHECK_THROWS_SAYING(IoError, "read_file", "Is a directory", read_file(folder.path()));
  io_test::put(folder / "long", "12345");
  CHECK(read_file(folder / "long", 5) == "12345");
  CHECK_THROWS_SAYING(IoError, "read_file", "longer than 4", read_file(folder / "long", 4));
  CHECK_THROWS_SAYING(IoError, "read_file", "longer than 1000", read_file("/dev/zero", 1000));
  CHECK(read_file("/dev/null") == "");
}

TEST_CASE("read_file: a file without end that claims to be huge is refused, not allocated") {
  const Folder folder;
  io_test::put(folder / "sparse", "x");
  fs::resize_file(folder / "sparse", std::uintmax_t{1} << 41);
  CHECK_THROWS_SAYING(IoError, "read_file", "longer than", read_file(folder / "sparse"));
}

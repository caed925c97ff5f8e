// Files through POSIX calls: the standard streams can neither sync nor say why they failed.
#include "softtape/io/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "softtape/base/error.hpp"

namespace softtape {
namespace {

[[noreturn]] void fail(const char* what, const std::string& path, int reason) {
  throw IoError(fmt::format("[{}] '{}': {}", what, path, std::strerror(reason)));
}

// Owns a descriptor.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int operator*() const { return number_; }
  // Some file systems report a full disk only here. Returns the reason, or 0.
  int close() {
    const int result = ::close(number_);
    number_ = -1;
    return result == 0 ? 0 : errno;
  }

 private:
  int number_;
};

// Returns the reason, or 0.
int write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

// Devices and pipes have no old content to keep: the bytes go straight in.
void write_through(const std::string& path, std::string_view bytes) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (*file < 0) fail("write_file", path, errno);
  int reason = write_all(*file, bytes);
  const int closing = file.close();
  if (reason == 0) reason = closing;
  if (reason != 0) fail("write_file", path, reason);
}

// A new file beside `path`. Its name is free even where threads, or processes on several machines,
// write the same path: whoever finds it taken goes on to the next.
int open_temporary(const std::string& path, std::string& temporary) {
  static std::atomic<unsigned> count{0};
  int descriptor = -1;
  do {
    temporary = fmt::format("{}.tmp-{}-{}", path, ::getpid(), count++);
    descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor < 0 && (errno == EEXIST || errno == EINTR));
  return descriptor;
}

// Makes the names in the folder of `path` survive a power failure. Where the file system cannot,
// the file is no less whole.
void sync_folder(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (*opened >= 0) ::fsync(*opened);
}

}  // namespace

void write_file(const std::string& given, std::string_view bytes) {
  std::string path = given;
  struct stat old {};
  const bool exists = ::stat(path.c_str(), &old) == 0;
  if (exists && S_ISDIR(old.st_mode)) fail("write_file", given, EISDIR);
  if (exists && !S_ISREG(old.st_mode)) return write_through(path, bytes);
  if (exists) {
    // What a link points to is replaced, not the link.
    const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                           &std::free);
    if (real) path = real.get();
  }

  std::string temporary;
  Descriptor file(open_temporary(path, temporary));
  if (*file < 0) fail("write_file", given, errno);
  int reason = write_all(*file, bytes);
  if (reason == 0 && exists && ::fchmod(*file, old.st_mode & 07777) != 0) reason = errno;
  if (reason == 0 && ::fsync(*file) != 0) reason = errno;
  const int closing = file.close();
  if (reason == 0) reason = closing;
  if (reason == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) reason = errno;
  if (reason != 0) {
    ::unlink(temporary.c_str());
    fail("write_file", given, reason);
  }
  sync_folder(path);
}

std::string read_file(const std::string& path, std::size_t most_bytes) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (*file < 0) fail("read_file", path, errno);
  struct stat info {};
  if (::fstat(*file, &info) != 0) fail("read_file", path, errno);
  if (S_ISDIR(info.st_mode)) fail("read_file", path, EISDIR);
  const auto refuse_length = [&] {
    throw IoError(fmt::format("[read_file] '{}': longer than {} bytes", path, most_bytes));
  };
  std::string out;
  if (S_ISREG(info.st_mode)) {
    if (static_cast<std::size_t>(info.st_size) > most_bytes) refuse_length();
    try {
      out.reserve(static_cast<std::size_t>(info.st_size));
    } catch (const std::bad_alloc&) {
      fail("read_file", path, ENOMEM);
    }
  }
  char block[1 << 16];
  for (;;) {
    const ssize_t got = ::read(*file, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read_file", path, errno);
    if (got == 0) return out;
    out.append(block, static_cast<std::size_t>(got));
    if (out.size() > most_bytes) refuse_length();
  }
}

}  // namespace softtape

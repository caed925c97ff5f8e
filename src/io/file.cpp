// Files through POSIX calls: the standard streams can neither sync nor say why they failed.
#include "softtape/io/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

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
  return ::fsync(descriptor) == 0 ? 0 : errno;
}

}  // namespace

void write_file(const std::string& path, std::string_view bytes) {
  std::string temporary = path + ".XXXXXX";
  Descriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (*file < 0) fail("write_file", path, errno);
  int reason = write_all(*file, bytes);
  if (reason == 0) {
    // mkostemp makes private files; this one gets the mode that any new file would have.
    const mode_t mask = ::umask(0);
    ::umask(mask);
    if (::fchmod(*file, 0666 & ~mask) != 0) reason = errno;
  }
  const int closing = file.close();
  if (reason == 0) reason = closing;
  if (reason == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) reason = errno;
  if (reason != 0) {
    ::unlink(temporary.c_str());
    fail("write_file", path, reason);
  }
  // The new name is safe only once the folder is.
  const std::size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (*opened >= 0) ::fsync(*opened);
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
    out.reserve(static_cast<std::size_t>(info.st_size));
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

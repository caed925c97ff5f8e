// Whole files, written so that a reader sees the old one or the new one and never a part.
#pragma once

#include <string>
#include <string_view>

#include "softtape/base/export.hpp"

namespace softtape {

/// Writes to a temporary name in the same folder ("PATH.tmp-PID-N"), syncs, and renames over
/// `path`. An old file's permissions are kept, and a link stays a link. A process that is killed
/// half-way leaves the temporary file behind. Edges: devices and pipes ("/dev/stdout") are written
/// to directly. Throws: IoError with the system's reason; the old file is then as it was, the
/// temporary gone.
SOFTTAPE_API void write_file(const std::string& path, std::string_view bytes);

/// Throws: IoError for a file that is missing, a folder, or longer than `most_bytes`.
SOFTTAPE_API std::string read_file(const std::string& path,
                                   std::size_t most_bytes = std::size_t{1} << 40);

}  // namespace softtape

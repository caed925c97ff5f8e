// Whole files, written so that a reader sees the old one or the new one and never a part.
#pragma once

#include <string>
#include <string_view>

#include "softtape/base/export.hpp"

namespace softtape {

/// Writes to a temporary name in the same folder, syncs, and renames over `path`.
/// Throws: IoError with the system's reason; the old file is then as it was.
SOFTTAPE_API void write_file(const std::string& path, std::string_view bytes);

/// Throws: IoError for a file that is missing, a folder, or longer than `most_bytes`.
SOFTTAPE_API std::string read_file(const std::string& path,
                                   std::size_t most_bytes = std::size_t{1} << 40);

}  // namespace softtape

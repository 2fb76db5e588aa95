// What the system keeps of files in memory.
#pragma once

#include <filesystem>

namespace lockstep::apps {

/// Asks the system to forget the pages of `file`, after writing them where they are new. Returns the share of its bytes
/// that are in memory all the same, 0 to 1: other readers, and file systems that live in memory, keep theirs. Throws
/// Error (data) where it cannot be read.
double drop_from_page_cache(const std::filesystem::path& file);

}  // namespace lockstep::apps

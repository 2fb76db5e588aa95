// The files in a folder and below it.
#pragma once

#include <filesystem>
#include <functional>

namespace lockstep::inline v0::data {

/// Calls use(file) for the files in `folder` and its subfolders, in no order, until it returns
/// false. Names that begin with a dot are skipped. Links to folders are followed, but each folder
/// is entered once, by its own path if it is below `folder`. Calls skipped(link), unless null, for
/// a link to a folder that is entered by another path, or that contains `folder`. Throws Error
/// (data) for a folder that cannot be read.
void for_files_below(const std::filesystem::path& folder,
                     const std::function<bool(const std::filesystem::path&)>& use,
                     const std::function<void(const std::filesystem::path&)>& skipped = {});

/// Whether the name begins with a dot.
bool is_hidden(const std::filesystem::path& path);

}  // namespace lockstep::inline v0::data

// lockstep data verify and index.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::apps {

/// The TFRecord files meant by `arguments`: files, globs, and directories, of which dataset.json names the files.
/// Throws Error (data) where one means nothing.
std::vector<std::filesystem::path> files_of(const std::vector<std::string>& arguments);

/// Reads every record of every file; a line for each file and for each damaged record on standard output. Throws Error
/// (data) at the end where anything was wrong. Behind a record whose data are damaged it goes on; behind a damaged
/// length nothing can be found. With `decode_images` every JPEG and PNG image is decoded as well.
void verify_data(const std::vector<std::string>& arguments, bool decode_images = false);

/// Makes the index of each file that has no valid one, and says where it is. Throws Error (data), also where it cannot
/// be written.
void index_data(const std::vector<std::string>& arguments, const std::filesystem::path& index_dir);

}  // namespace lockstep::apps

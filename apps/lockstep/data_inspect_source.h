// lockstep data inspect of what is no TFRecord file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lockstep::apps {

/// Whether `argument` of `data inspect` is a data set as --data takes it, rather than TFRecord files: a table, images
/// in folders, IDX files, or one that is made up.
bool is_inspected_by_source(const std::string& argument);

/// Reads the data set called `argument`, at most `records` of it (0: all), and prints its features, or what its images
/// are like, and the number of records of each class. Throws Error.
void inspect_source(const std::string& argument, std::int64_t records);

/// Prints the number of records of each label, with the names of classes where they are known.
void print_label_counts(const std::string& label, const std::map<std::int64_t, std::int64_t>& counts,
                        const std::map<std::int64_t, std::string>& names);

}  // namespace lockstep::apps

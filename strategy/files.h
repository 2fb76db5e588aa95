// What checkpoints need of files: a checksum computed on the way, and the certainty that the bytes are on the disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "data/record/atomic_file.h"

namespace lockstep::strategy {

/// What a file holds, short enough to compare over ranks and to keep in a manifest.
struct FileDigest {
  std::string name;         ///< within its directory
  std::uint64_t bytes = 0;  ///< its size
  std::uint64_t xxh3 = 0;   ///< xxh3-64 of all bytes
  bool operator==(const FileDigest&) const = default;
};

/// A hash as 16 lower-case hexadecimal digits, as all files and events show it.
std::string hex16(std::uint64_t hash);
/// The reverse; nullopt for anything else.
std::optional<std::uint64_t> parse_hex16(std::string_view text);

/// xxh3-64 of bytes that arrive in pieces.
class Hasher {
 public:
  Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  ~Hasher();
  void add(std::string_view bytes);  ///< goes on with these bytes
  std::uint64_t value() const;       ///< xxh3-64 of all bytes added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A new file that counts and hashes what is written. It appears under its name at finish(), or not at all.
/// All errors are Error (checkpoint) with the path and the system's reason.
class HashedFile {
 public:
  /// Begins the file, under another name until it is complete. Throws Error (checkpoint).
  explicit HashedFile(std::filesystem::path path, data::Durability durability = data::Durability::synced);
  void write(std::string_view bytes);  ///< writes and hashes. Throws Error (checkpoint).
  /// Nothing can be written afterwards.
  FileDigest finish();

 private:
  void flush();

  data::AtomicFile file_;
  std::string pending_;
  Hasher hasher_;
  std::uint64_t bytes_ = 0;
};

/// Reads a file once and says what it holds. Throws Error (checkpoint).
FileDigest digest_file(const std::filesystem::path& path);

/// All bytes of a small file. Throws Error (checkpoint), also where it is longer than 64 MiB: then it is not one of
/// ours.
std::string read_small_file(const std::filesystem::path& path);

/// Makes names that appeared in, or left, a directory durable. Throws Error (checkpoint).
void sync_directory(const std::filesystem::path& directory);

/// Gives the directory `from` the name `to` in the same parent, on the disk when the call returns. A directory that
/// stands there already is replaced in one step and removed. Throws Error (checkpoint).
void replace_directory(const std::filesystem::path& from, const std::filesystem::path& to);

/// Bytes that this process may still write under `directory`. Throws Error (checkpoint).
std::uint64_t free_bytes(const std::filesystem::path& directory);

/// Removes a directory and all in it at the end of its life, unless released. Errors of removal are left to
/// clean_leftovers().
class TemporaryDirectory {
 public:
  /// Creates `path`, removing what an earlier attempt of this process left there. Throws Error (checkpoint).
  explicit TemporaryDirectory(std::filesystem::path path);
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();

  const std::filesystem::path& path() const { return path_; }  ///< as it was opened
  /// The directory got another owner or name.
  void release() { path_.clear(); }

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep::strategy

// A disk that can lose power. Its names and contents are those of a folder in memory; what of them
// has been synced is known here. The functions of the system that change files ask it, in the whole
// program (disk.cpp).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::inline v0::simulator {

/// What happens instead of a change: the call fails, or the process that makes it ends, or the
/// whole computer does.
enum class DiskFault { none, error, process_ends, power_fails };

/// One exists at a time.
class Disk {
 public:
  Disk();  ///< empty
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;
  ~Disk();

  const std::filesystem::path& folder() const { return folder_; }

  /// `fault` happens at the change number `change` from now on; an error has this number.
  void plan(DiskFault fault, int change, int error);
  /// The process that makes the following changes.
  void set_process(int process) { process_ = process; }
  bool has_power() const { return has_power_; }
  bool has_ended(int process) const { return !has_power_ || ended_.contains(process); }

  /// New processes start. If the power had failed, they find what was synced, and of the rest what
  /// chance kept: in each directory the first changes of its names, and of a file anything.
  void restart(std::mt19937_64& random);

  // For the functions of the system: whether a change happens (otherwise, errno says why not), and
  // what has happened. The directory is that of the path or, if that is relative, of a descriptor.
  bool permits();
  bool is_mine(int descriptor) const;
  bool is_mine(int directory, const char* path) const { return place(directory, path).has_value(); }
  void created(int directory, const char* path);
  void removed(int directory, const char* path);
  void renamed(const char* from, const char* to, bool are_exchanged);
  void synced(int descriptor);

 private:
  /// A name gets another file, or none (0).
  using Assignment = std::pair<std::string, ino_t>;
  struct Directory {
    std::map<std::string, ino_t> synced;
    std::vector<std::vector<Assignment>> pending;  // what one operation changes stays together
  };
  /// What a path names: its directory, and the name in it.
  struct Place {
    ino_t directory;
    std::string name;
  };
  struct Tree {
    std::string content = {};
    bool is_directory = false;
    std::map<std::string, Tree> entries = {};
  };

  std::optional<Place> place(int directory, const char* path) const;
  ino_t inode_of(int directory, const char* path) const;
  void make_folder();
  Tree remains_of(ino_t inode, const std::map<ino_t, std::string>& live, std::mt19937_64& random);
  void make(const std::filesystem::path& path, const Tree& tree);

  std::filesystem::path folder_;
  std::map<ino_t, Directory> directories_;
  std::map<ino_t, std::optional<std::string>> files_;  // the content that was synced
  DiskFault fault_ = DiskFault::none;
  int changes_left_ = 0;
  int error_ = 0;
  int process_ = 0;
  bool has_power_ = true;
  std::set<int> ended_;
};

}  // namespace lockstep::inline v0::simulator

// How the ranks of a job share the reading of files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/system/shared_segment.h"
#include "lockstep/data/record/compression.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/data/record/record_index.h"
#include "lockstep/data/source/file_options.h"

namespace lockstep::inline v0::data {

/// Whether this member reads file number `file` of a data set.
bool reads_file(const IndexExchange& exchange, std::size_t file);

/// Runs `work` on every member and returns every result, in member order. An Error of `work` is
/// thrown on all members, that of the first member if there are several. A single member just runs
/// `work`.
std::vector<std::string> gather_work(const IndexExchange& exchange,
                                     const std::function<std::string()>& work);

/// The members on the node of this one, in order. Collective. Throws Error (input) unless all pass
/// the same `kind` of data.
std::vector<std::size_t> members_of_node(const IndexExchange& exchange, const std::string& kind);

/// Data that exist once per node.
struct NodeData {
  std::string description;                         ///< everything but the arrays
  std::vector<std::span<const std::byte>> arrays;  ///< each aligned for any number

  /// Array `number` as values of T.
  template <typename T>
  std::span<const T> array(std::size_t number) const {
    const std::span<const std::byte> bytes = arrays.at(number);
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

/// Runs read() on the first member of each node, whose arrays must stay valid until the return, and
/// use(data, memory) on all members of a node with several: the arrays are then in `memory`, which
/// they share. A member that cannot map it, or whose use() throws an Error, runs read() as well, or
/// keeps its own data. An Error of read() is thrown on all members, and Error (data) with the
/// `kind` if nodes have read different data. Collective; a single member just runs `read`.
void read_on_node(const IndexExchange& exchange, const std::string& kind,
                  const std::function<NodeData()>& read,
                  const std::function<void(const NodeData& data, SharedSegment memory)>& use);

/// The result of one member's scan of a file.
struct ScannedFile {
  std::size_t number = 0;                       ///< number of the file in the data set
  Compression compression = Compression::none;  ///< compression of the file
  std::uint64_t size = 0;                       ///< bytes after decompression
  bool is_loaded = false;                       ///< the index was on disk
  RecordIndex index = {};                       ///< positions of its records
  std::optional<DamagedFile> damage = {};       ///< the skipped part
};

/// Serializes scans for unpack_scans(). `identities` has a number for each file of the data set, as
/// this member sees it.
std::string pack_scan(const std::vector<std::uint64_t>& identities,
                      const std::vector<ScannedFile>& scanned);

/// The scans of all members, by file number. Throws Error (data), the same on all members, unless
/// all see the same `files`.
std::vector<ScannedFile> unpack_scans(const std::vector<std::string>& packed,
                                      const std::vector<std::filesystem::path>& files);

}  // namespace lockstep::inline v0::data

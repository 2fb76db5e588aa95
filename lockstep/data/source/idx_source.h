// IDX files, the format of MNIST and similar data sets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/data/source/index_exchange.h"

namespace lockstep::inline v0::data {

/// One IDX file of unsigned bytes.
struct IdxArray {
  std::vector<std::int64_t> shape = {};
  std::string file = {};  ///< all bytes, including the header; empty: the elements are in `shared`
  std::size_t header_bytes = 0;
  std::span<const std::uint8_t> shared = {};  ///< elements in the node's shared memory

  /// The elements, row-major.
  std::span<const std::uint8_t> elements() const;
};

/// Reads a whole IDX file, plain or gzip (detected by content). Throws Error (data) with the file
/// name for a wrong magic number, an element type other than unsigned byte, and a file that is
/// shorter or longer than its header states.
IdxArray read_idx(const std::filesystem::path& file);

/// The image and label files of one part ("train" or "test") of an IDX data set, or nullopt if
/// `directory` does not have them.
struct IdxFiles {
  std::filesystem::path images;
  std::filesystem::path labels;
};
std::optional<IdxFiles> find_idx_files(const std::filesystem::path& directory,
                                       const std::string& part);
/// The image file of one part; `path` itself if it is a file. Throws Error (data) if there is none.
std::filesystem::path find_idx_images(const std::filesystem::path& path, const std::string& part);

/// Images [N, H, W] or [N, H, W, C] and labels [N] of one part, kept in memory as bytes, once per
/// node if the members of an exchange open them together. The number of classes is taken from the
/// labels of both parts if both exist, so that train and test agree.
class IdxSource final : public RecordSource {
 public:
  /// `part` is "train" (files train-images-idx3-ubyte, train-labels-idx1-ubyte) or "test"
  /// (t10k-...), each with or without ".gz". `name` is SourceInfo::description. Throws Error (data)
  /// if a file is missing or damaged, or if the label count is not the image count; Error (input)
  /// for another part.
  IdxSource(const std::filesystem::path& directory, const std::string& part, std::string name = "",
            const IndexExchange& exchange = {});
  /// The images of one file, without labels. Throws Error (data) for a damaged file.
  explicit IdxSource(const std::filesystem::path& images, const IndexExchange& exchange = {});

  void read(std::int64_t record_id, Sample& sample) const override;

 private:
  /// Calls read() on one member of each node.
  void open(const IndexExchange& exchange, const std::function<void()>& read);
  void use(const NodeData& data, SharedSegment memory);
  /// Checks the shape of the images of `file`, and sets the facts about them.
  void describe(const std::filesystem::path& file, std::int64_t classes);

  IdxArray images_;
  IdxArray labels_;  // empty if there are none
  SharedSegment memory_;
};

}  // namespace lockstep::inline v0::data

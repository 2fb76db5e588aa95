// Samples: the named tensors of one record, and arrays of those of all records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/element_type.h"
#include "lockstep/base/pixels.h"
#include "lockstep/data/sample/sample_spec.h"

namespace lockstep::data {

/// Throws Error (input) for the access to the tensor `name` of `type` as `requested`.
[[noreturn]] void throw_wrong_type(std::string_view name, ElementType requested, ElementType type);
/// Throws Error (input) that lists the `known` names of `what`, such as "inputs".
[[noreturn]] void throw_no_tensor(std::string_view what, std::string_view name,
                                  const std::vector<std::string_view>& known);

/// The one of `tensors` that is called `name`; throws throw_no_tensor() if there is none.
template <typename Tensor>
Tensor& find_tensor(std::span<Tensor> tensors, std::string_view what, std::string_view name) {
  std::vector<std::string_view> known;
  for (Tensor& tensor : tensors)
    if (tensor.name == name) return tensor;
  for (const Tensor& tensor : tensors) known.push_back(tensor.name);
  throw_no_tensor(what, name, known);
}

class RecordSource;

/// The first input of a record as it is stored, for a caller of RecordSource::read() that decodes
/// it itself.
struct StoredImage {
  std::span<const std::uint8_t> bytes = {};  ///< valid until this thread reads another record
  bool is_encoded = false;                   ///< a JPEG or PNG file; otherwise pixels [shape...]
  std::string memory = {};                   ///< of `bytes`, if the source does not hold them
  const RecordSource* source = nullptr;      ///< knows the file of the image; null: nothing to add
  std::int64_t record_id = 0;                ///< in `source`
  bool is_mapped = false;                    ///< the bytes can be lost: RecordSource::keeps_image()

  /// `count` pixels in `memory`, to be written.
  std::span<std::uint8_t> allocate(std::size_t count);
};

/// The bytes of what follows a short sample in numbers that are padded: zeros, or kMasked.
constexpr std::byte padding_of(bool masked) {
  static_assert(kMasked == -1);  // two's complement: all bytes are 255
  return masked ? std::byte{255} : std::byte{0};
}

/// The values of one sample of a ragged tensor, before its batch is padded.
struct RaggedRow {
  std::vector<std::byte> bytes = {};      ///< of numbers
  std::vector<std::string> strings = {};  ///< of ElementType::bytes

  bool operator==(const RaggedRow&) const = default;
};

/// One tensor of a sample: a view of the memory of its batch.
struct TensorView {
  std::string_view name;                    ///< as in the spec
  ElementType type = ElementType::float32;  ///< uint8 for images whose pixels are requested
  std::byte* data = nullptr;                ///< of the first element
  std::size_t elements = 0;                 ///< number of elements
  std::size_t unit = 0;      ///< of a ragged tensor: elements per step of its first extent
  RaggedRow* row = nullptr;  ///< of a ragged tensor: its memory

  /// Gives a ragged tensor this first extent; its elements are then to be written. Throws Error
  /// (input) for any other tensor, Error (data) for more than kMaxElements elements.
  void set_length(std::size_t length);
  /// Views a row of a ragged tensor.
  void attach(RaggedRow& to);

  /// The elements, row-major; std::string for ElementType::bytes. Throws Error (input) for another
  /// type than that of the tensor.
  template <typename T>
  std::span<T> as() const {
    if (type != element_type_of<T>()) throw_wrong_type(name, element_type_of<T>(), type);
    return elements_as<T>();
  }

 private:
  friend struct Sample;
  template <typename T>
  std::span<T> elements_as() const {
    return {reinterpret_cast<T*>(data), elements};
  }
};

/// One decoded record, as views of the memory of its batch (Batch::sample). Images are float32,
/// value / 255, or uint8 if pixels are requested.
struct Sample {
  std::vector<TensorView> inputs = {};   ///< as in the spec
  std::vector<TensorView> targets = {};  ///< as in the spec
  float weight = 1;                      ///< in the loss, if the spec is weighted
  StoredImage* image = nullptr;  ///< receives the first input as stored; null: it is decoded
  std::uint64_t seed = 0;        ///< seed and epoch of the pass; sources with maps or recipes
  std::int64_t epoch = 0;        ///< build a SampleKey from them and the record id

  /// The input called `name`. Throws Error (input) that lists the names if there is none.
  const TensorView& input(std::string_view name) const;
  TensorView& input(std::string_view name);               ///< the same
  const TensorView& target(std::string_view name) const;  ///< likewise
  TensorView& target(std::string_view name);              ///< the same

  std::span<float> features() const { return first_of<float>(inputs); }  ///< of the first input
  /// The elements of the first input if it is uint8; features() is then empty.
  std::span<std::uint8_t> pixels() const { return first_of<std::uint8_t>(inputs); }
  std::span<float> values() const { return first_of<float>(targets); }  ///< of the first target
  /// The class number in the first target. Throws Error (input) if it is not one class number.
  std::int32_t& label() const {
    if (targets.empty() || targets.front().type != ElementType::int32 ||
        targets.front().elements != 1)
      throw_no_label();
    return *reinterpret_cast<std::int32_t*>(targets.front().data);
  }

  /// Stores a uint8 image; `normalization` applies to features only.
  void set_image(std::span<const std::uint8_t> pixels_of_image,
                 const ChannelNormalization& normalization = {});
  /// Like set_image(), without a copy for a StoredImage: it must stay until this thread reads
  /// another record.
  void set_image_view(std::span<const std::uint8_t> pixels_of_image,
                      const ChannelNormalization& normalization = {});

 private:
  template <typename T>
  static std::span<T> first_of(const std::vector<TensorView>& tensors) {
    if (tensors.empty() || tensors.front().type != element_type_of<T>()) return {};
    return tensors.front().elements_as<T>();
  }
  [[noreturn]] static void throw_no_label();
};

/// The values that a map may depend on, so that its result is the same on every rank and after a
/// resume.
struct SampleKey {
  std::uint64_t seed = 0;      ///< seed of the run
  std::int64_t epoch = 0;      ///< counted from 0
  std::int64_t record_id = 0;  ///< id of the record, the same for every world size
};

/// Modifies one sample in place. Called from several threads concurrently.
using SampleMap = std::function<void(Sample&, const SampleKey&)>;

/// Returns whether to keep a sample. Called from several threads concurrently.
using SamplePredicate = std::function<bool(const Sample&)>;

/// Writes the whole record `record_id` to the sample's inputs and targets. Called from several
/// threads concurrently, in any order, possibly more than once per record. It must be a pure
/// function of the record id.
using SampleGenerator = std::function<void(std::int64_t record_id, Sample& sample)>;

/// The features of all records, consecutive: floats or uint8 images.
using MemoryFeatures = std::variant<std::vector<float>, std::vector<std::uint8_t>>;
/// Class numbers [N], or targets [N, targets].
using MemoryLabels = std::variant<std::vector<std::int32_t>, std::vector<float>>;
/// The values of one tensor of all records, consecutive.
using MemoryArray =
    std::variant<std::vector<float>, std::vector<std::uint8_t>, std::vector<std::int32_t>,
                 std::vector<std::int64_t>, std::vector<std::string>>;
/// One tensor of all records: [N, shape...]; of a ragged tensor also the length of each, [N].
struct MemoryTensor {
  /// The two members below.
  template <typename T>
  MemoryTensor(std::vector<T> all, std::vector<std::int32_t> length_of_each = {})
      : values(std::move(all)), lengths(std::move(length_of_each)) {}

  MemoryArray values;                 ///< [N, shape...], without padding
  std::vector<std::int32_t> lengths;  ///< first extents of a ragged tensor
};

}  // namespace lockstep::data

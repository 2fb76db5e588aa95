#include "lockstep/data/source/split_source.h"

#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/sample/batch.h"
#include "lockstep/data/source/image_folder_source.h"
#include "lockstep/data/source/tfrecord/tfrecord_source.h"

namespace lockstep::inline v0::data {
namespace {

bool has_classes(const SampleSpec& spec) {
  return spec.classes() > 0 && spec.targets.front().shape.empty();
}

/// The class of each record; the same number for all if they have none.
std::vector<std::int32_t> classes_of(const RecordSource& source) {
  std::vector<std::int32_t> classes(static_cast<std::size_t>(source.size()));
  if (!has_classes(source.spec())) return classes;
  const auto* const folders = dynamic_cast<const ImageFolderSource*>(&source);
  Batch one(source.spec());
  Sample sample = one.sample();
  for (std::int64_t record = 0; record < source.size(); ++record) {
    if (folders == nullptr) source.read(record, sample);
    classes[static_cast<std::size_t>(record)] =
        folders != nullptr ? folders->class_of(record) : sample.label();
  }
  return classes;
}

}  // namespace

SplitSource::SplitSource(std::shared_ptr<const RecordSource> source,
                         const SplitSelection& selection)
    : WrappedSource(std::move(source)) {
  const auto& [split, part] = selection;
  split.check();
  const std::string where = info_.description;
  if (dynamic_cast<const TFRecordSource*>(&this->source()) != nullptr)
    throw Error(ErrorCategory::input, where,
                "expected a table, images in folders, IDX files or text with --validation-split "
                "and --test-split; lockstep data convert --part writes the parts of TFRecord files",
                "got TFRecord files");
  const std::vector<SplitPart> parts = split_records(split, classes_of(this->source()));
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i] == part) ids_.push_back(static_cast<std::int64_t>(i));
  const std::string label = has_classes(spec()) ? spec().targets.front().name : "";
  info_.split = std::make_shared<const SplitInfo>(count_parts(split, parts, label, where));
  info_.size = std::ssize(ids_);
  describe(split.preparation(part));
  info_.files.clear();
}

}  // namespace lockstep::inline v0::data

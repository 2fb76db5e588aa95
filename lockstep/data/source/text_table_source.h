// Texts in columns of tables, for networks that classify texts or generate one from another.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/system/shared_segment.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/data/source/index_exchange.h"
#include "lockstep/data/source/text_source.h"
#include "lockstep/data/text/target_text.h"

namespace lockstep::inline v0::data {

/// A sample is the text of a row, in the column TextOptions::column: the int32 input "tokens" [T],
/// and "segments" [T], 1 for tokens and 0 for the padding at the end. If the tokenizer has a begin
/// token ([CLS]), it precedes each text, and the end token follows. A longer text loses its last
/// tokens; SourceInfo::preparation counts such texts. With TextOptions::label, the target "label"
/// is the class in this column, whose words are the names of the classes, in alphabetical order, or
/// by value if all are whole numbers.
///
/// With TextOptions::source and target, a sample is the pair of texts of a row: the inputs "source"
/// [S] and "source_segments" [S], as above, and "tokens" [T], the text of the target after a begin
/// token (TargetVocabulary); the target "next" [T] is this text and its end token, then -1. Neither
/// text may be empty.
///
/// The files are tables in UTF-8 whose first line has the names of the columns, separated as in
/// that line. All tokens are in memory, with 4 bytes each, once per node if ranks open the files
/// together (TextOptions::exchange).
class TextTableSource final : public RecordSource {
 public:
  /// Throws Error (data) with file, line and column for an invalid table or text, for a row whose
  /// class is missing (is_missing) and not among the label words, for more than 10,000 classes, and
  /// without rows. Throws Error (input) for invalid options, for a column that a table lacks or has
  /// twice, and for another tokenizer than that of the schema.
  explicit TextTableSource(const std::vector<std::filesystem::path>& files,
                           TextOptions options = {});

  void read(std::int64_t record_id, Sample& sample) const override;

 private:
  void read_files();
  bool is_pairs() const { return !schema_->source.empty(); }
  void add_text(const TextTokens& text);
  std::span<const std::int32_t> text(std::size_t number) const;
  void number_classes(const std::vector<std::string>& words);
  NodeData data() const;
  void use(const NodeData& data, SharedSegment memory);
  void set_info();

  std::vector<std::filesystem::path> files_;
  TextOptions options_;
  std::int64_t vocabulary_size_ = 0;
  TargetVocabulary targets_;
  std::int64_t cut_ = 0;      // texts that were too long
  std::int64_t missing_ = 0;  // texts that are a spelling of a missing value
  std::shared_ptr<const TextSchema> schema_;

  // The texts that this process has read.
  std::vector<std::int32_t> own_tokens_;
  std::vector<std::uint64_t> own_ends_;
  std::vector<std::int32_t> own_labels_;
  // Views of these or of the node's shared memory.
  std::span<const std::int32_t> tokens_;
  std::span<const std::uint64_t> ends_;  // one past the last token of each text; two per pair
  std::span<const std::int32_t> labels_;
  SharedSegment memory_;
};

}  // namespace lockstep::inline v0::data

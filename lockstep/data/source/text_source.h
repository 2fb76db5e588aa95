// Text files as sequences of tokens, for networks that predict the next one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/system/shared_segment.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/data/source/index_exchange.h"
#include "lockstep/data/text/text_schema.h"

namespace lockstep::inline v0::data {

/// The independent parts of a text.
enum class TextDocuments { files, lines };

/// How to read text files. Unset fields come from the schema, or are the defaults.
struct TextOptions {
  /// "chars" (the default), "bytes", or the path of a tokenizer.json, vocab.txt or FILE.model.
  std::string tokenizer = {};
  std::int64_t length = 0;  ///< tokens of a sample, T; default: kDefaultLength
  std::int64_t stride = 0;  ///< tokens between the beginnings of two samples; default: the length
  std::optional<TextDocuments> documents = {};  ///< default: files
  std::string column = {};                      ///< column of texts in a table (TextTableSource)
  std::string label = {};                       ///< column of classes in a table
  std::string image = {};  ///< column of image files in a table (CaptionSource)
  /// Names of classes that mean a missing label in other tables, such as NA.
  std::vector<std::string> label_words = {};
  bool without_labels = false;     ///< the classes of a table are not read
  std::string source = {};         ///< column of input texts in a table of pairs
  std::string target = {};         ///< column of texts to generate, for pairs and captions
  std::int64_t target_length = 0;  ///< tokens of a target; default: the length
  std::shared_ptr<const TextSchema> schema = {};  ///< schema of the training text
  IndexExchange exchange = {};                    ///< the ranks that open the files together

  static constexpr std::int64_t kDefaultLength = 128;  ///< tokens

  /// The tokenizer and the length of the texts in `file`. `characters` returns the vocabulary of a
  /// tokenizer of their characters. Throws Error (input) for another tokenizer than that of the
  /// schema, Error (data) as TextSchema::for_tokenizer().
  TextSchema describe(const std::string& file,
                      const std::function<std::string()>& characters) const;
  /// Whether the texts are captions of images.
  bool has_images() const { return !image.empty() || (schema && !schema->image.empty()); }
  /// Whether the texts are in a column of a table.
  bool is_table() const {
    return !column.empty() || (schema && !schema->column.empty()) || is_pairs();
  }
  /// Whether the texts are pairs in two columns.
  bool is_pairs() const {
    return !source.empty() || (!target.empty() && !has_images()) ||
           (schema && !schema->source.empty());
  }
};

/// Files and their options.
struct TextSpec {
  std::string files;         ///< a path or a glob
  TextOptions options = {};  ///< how to read them

  /// Parses "FILES" or "FILES:tokenizer=bytes,length=64,label-words=NA+None". Throws Error (input)
  /// at `where`.
  static TextSpec parse(std::string_view text, const std::string& where);
};

/// The tokens of all files in memory, 2 bytes each (4 with more than 65536 kinds), once per node if
/// ranks open them together (TextOptions::exchange). A sample has the int32 input "tokens" [T] and
/// the int32 target "next" [T], the token that follows each. Past the end, the token is 0 and the
/// target -1, which the loss ignores.
///
/// With documents that are files, the tokens are one sequence, in which the tokenizer's end token,
/// if it has one, follows each file. Sample i begins at token i * stride; the last one may be
/// shorter.
///
/// With documents that are lines, a sample has as many whole documents as fit, in their order; a
/// longer one is continued in the next samples. The int32 input "segments" [T] numbers the
/// documents of the sample from 1; 0 is padding. The last token of a document is followed by the
/// end token, or -1 if the tokenizer has none. Empty lines are skipped.
class TextSource final : public RecordSource {
 public:
  /// Throws Error (data) with file and offset for text that is not UTF-8 (except with bytes), and
  /// for characters that the training text does not have; for files without two tokens in a
  /// document. Throws Error (input) for invalid options, and for another tokenizer than that of
  /// the schema.
  explicit TextSource(const std::vector<std::filesystem::path>& files, TextOptions options = {});

  void read(std::int64_t record_id, Sample& sample) const override;

 private:
  /// Positions in the sequence of tokens.
  struct Window {
    std::uint64_t begin;
    std::uint64_t document;  ///< number of the first token's document
  };

  void read_files();
  void append(std::span<const std::int32_t> tokens);
  void pack_documents();
  NodeData data() const;
  void use(const NodeData& data, SharedSegment memory);
  void set_info();
  std::int32_t token(std::uint64_t index) const {
    return wide_.empty() ? narrow_[index] : wide_[index];
  }

  std::vector<std::filesystem::path> files_;
  TextOptions options_;
  std::int64_t stride_ = 0;
  std::int64_t vocabulary_size_ = 0;
  std::int32_t end_label_ = -1;  // label of the last token of a line
  std::shared_ptr<const TextSchema> schema_;

  // The tokens that this process has read.
  std::vector<std::uint16_t> own_narrow_;
  std::vector<std::int32_t> own_wide_;
  std::vector<std::uint64_t> own_ends_;
  std::vector<Window> own_windows_;
  // Views of these or of the node's shared memory; the tokens are narrow or wide.
  std::span<const std::uint16_t> narrow_;
  std::span<const std::int32_t> wide_;
  std::span<const std::uint64_t> ends_;  // one past the last token of each line
  std::span<const Window> windows_;      // with lines: one per sample, and the end
  SharedSegment memory_;
};

}  // namespace lockstep::inline v0::data

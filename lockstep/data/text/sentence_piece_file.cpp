#include "lockstep/data/text/sentence_piece_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <protozero/pbf_reader.hpp>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/text/sentence_piece.h"
#include "lockstep/data/text/unicode/unicode.h"

namespace lockstep::inline v0::data {
namespace {

using protozero::pbf_reader;
using protozero::tag_and_type;
using PieceKind = SentencePiece::Kind;

// Debian's libsentencepiece is not used: it contains libprotobuf 3.14 and exports its symbols, so a
// program that also loads Debian's libprotobuf, as LibTorch does, aborts at startup.

constexpr auto kBytesField = protozero::pbf_wire_type::length_delimited;
constexpr auto kFloatField = protozero::pbf_wire_type::fixed32;
constexpr auto kNumberField = protozero::pbf_wire_type::varint;
constexpr std::size_t kMaxPieces = 1 << 20;
constexpr std::size_t kMaxPieceBytes = 4096;

[[noreturn]] void refuse_model(const std::string& what) { throw std::invalid_argument(what); }

std::string_view view_of(protozero::data_view view) { return {view.data(), view.size()}; }

/// Settings apart from the pieces: the texts of the special ones.
struct Settings {
  std::int32_t method = 1;
  bool has_bytes = false;
  std::string begin = "<s>";
  std::string end = "</s>";
};

SentencePiece::Piece read_piece(pbf_reader message) {
  SentencePiece::Piece piece;
  std::int32_t kind = 1;
  while (message.next()) switch (message.tag_and_type()) {
      case tag_and_type(1, kBytesField):
        piece.text = view_of(message.get_view());
        break;
      case tag_and_type(2, kFloatField):
        piece.score = message.get_float();
        break;
      case tag_and_type(3, kNumberField):
        kind = message.get_enum();
        break;
      default:
        message.skip();
    }
  if (piece.text.empty() || piece.text.size() > kMaxPieceBytes)
    refuse_model(fmt::format("a piece has {} bytes", piece.text.size()));
  try {
    check_utf8(piece.text);
  } catch (const Error& error) {
    refuse_model("of a piece, " + error.message().actual);
  }
  if (!std::isfinite(piece.score)) refuse_model(fmt::format("a score is {}", piece.score));
  if (kind < 1 || kind > 6) refuse_model(fmt::format("\"{}\" is of the type {}", piece.text, kind));
  piece.kind = static_cast<PieceKind>(kind - 1);
  return piece;
}

void read_training(pbf_reader message, Settings& settings, SentencePiece::Definition& definition) {
  while (message.next()) switch (message.tag_and_type()) {
      case tag_and_type(3, kNumberField):
        settings.method = message.get_enum();
        break;
      case tag_and_type(24, kNumberField):
        definition.space_is_suffix = message.get_bool();
        break;
      case tag_and_type(35, kNumberField):
        settings.has_bytes = message.get_bool();
        break;
      case tag_and_type(44, kBytesField):
        definition.unknown_text = view_of(message.get_view());
        break;
      case tag_and_type(46, kBytesField):
        settings.begin = view_of(message.get_view());
        break;
      case tag_and_type(47, kBytesField):
        settings.end = view_of(message.get_view());
        break;
      default:
        message.skip();
    }
  if (definition.unknown_text.size() > kMaxPieceBytes)
    refuse_model(fmt::format("its \"unk_surface\" has {} bytes", definition.unknown_text.size()));
}

void read_normalizer(pbf_reader message, SentencePiece::Definition& definition) {
  while (message.next()) switch (message.tag_and_type()) {
      case tag_and_type(2, kBytesField):
        definition.map = CharacterMap(view_of(message.get_view()));
        break;
      case tag_and_type(3, kNumberField):
        definition.has_added_space = message.get_bool();
        break;
      case tag_and_type(4, kNumberField):
        definition.removes_spaces = message.get_bool();
        break;
      case tag_and_type(5, kNumberField):
        definition.escapes_spaces = message.get_bool();
        break;
      default:
        message.skip();
    }
}

void refuse_denormalizer(pbf_reader message) {
  while (message.next(2, kBytesField))
    if (message.get_view().size() > 0)
      refuse_model("it has a denormalizer, which is not supported");
}

void number_special(const Settings& settings, SentencePiece::Definition& definition) {
  std::unordered_map<std::string_view, std::int32_t> numbers;
  std::int64_t unknown = 0;  // number of unknown pieces
  for (std::size_t i = 0; i < definition.pieces.size(); ++i) {
    const SentencePiece::Piece& piece = definition.pieces[i];
    const auto number = static_cast<std::int32_t>(i);
    if (!numbers.try_emplace(piece.text, number).second)
      refuse_model(fmt::format("\"{}\" is two pieces", piece.text));
    if (piece.kind == PieceKind::unknown && unknown++ == 0) definition.unknown = number;
    if (piece.kind == PieceKind::byte && !settings.has_bytes)
      refuse_model(fmt::format("\"{}\" is a byte without \"byte_fallback\"", piece.text));
    if (piece.kind == PieceKind::unused && definition.method == SentencePiece::Method::byte_pairs)
      refuse_model(fmt::format("\"{}\" is unused, which is not supported with BPE", piece.text));
  }
  if (unknown != 1) refuse_model(fmt::format("it has {} unknown pieces", unknown));
  const auto find = [&](const std::string& text, PieceKind kind) -> std::optional<std::int32_t> {
    const auto found = numbers.find(text);
    const bool is_one = found != numbers.end() &&
                        definition.pieces[static_cast<std::size_t>(found->second)].kind == kind;
    return is_one ? std::optional(found->second) : std::nullopt;
  };
  definition.begin = find(settings.begin, PieceKind::control);
  definition.end = find(settings.end, PieceKind::control);
  if (!settings.has_bytes) return;
  auto& byte_tokens = definition.byte_tokens.emplace();
  std::int64_t bytes = 0;
  for (std::size_t byte = 0; byte < byte_tokens.size(); ++byte)
    if (const auto number = find(fmt::format("<0x{:02X}>", byte), PieceKind::byte)) {
      byte_tokens[byte] = *number;
      ++bytes;
    }
  const auto all =
      std::ranges::count(definition.pieces, PieceKind::byte, &SentencePiece::Piece::kind);
  if (bytes != 256 || all != 256)
    refuse_model(fmt::format("it has {} pieces of bytes, {} of them valid", all, bytes));
}

std::shared_ptr<const Tokenizer> read_model(std::string_view bytes) {
  SentencePiece::Definition definition;
  Settings settings;
  pbf_reader message(protozero::data_view(bytes.data(), bytes.size()));
  while (message.next()) switch (message.tag_and_type()) {
      case tag_and_type(1, kBytesField):
        if (definition.pieces.size() == kMaxPieces)
          refuse_model(fmt::format("it has more than {} pieces", kMaxPieces));
        definition.pieces.push_back(read_piece(message.get_message()));
        break;
      case tag_and_type(2, kBytesField):
        read_training(message.get_message(), settings, definition);
        break;
      case tag_and_type(3, kBytesField):
        read_normalizer(message.get_message(), definition);
        break;
      case tag_and_type(5, kBytesField):
        refuse_denormalizer(message.get_message());
        break;
      default:
        message.skip();
    }
  if (definition.pieces.empty()) refuse_model("it has no pieces");
  if (settings.method != 1 && settings.method != 2)
    refuse_model(
        fmt::format("its \"model_type\" is {}, neither 1 (unigram) nor 2 (BPE)", settings.method));
  definition.method =
      settings.method == 1 ? SentencePiece::Method::unigram : SentencePiece::Method::byte_pairs;
  number_special(settings, definition);
  return std::make_shared<SentencePiece>(std::move(definition));
}

}  // namespace

std::shared_ptr<const Tokenizer> parse_sentence_piece(std::string_view bytes) {
  try {
    return read_model(bytes);
  } catch (const protozero::exception& error) {
    refuse_model(fmt::format("it is no protobuf message of SentencePiece ({})", error.what()));
  }
}

}  // namespace lockstep::inline v0::data

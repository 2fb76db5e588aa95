#include "lockstep/data/text/text_schema.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/json/json.h"
#include "lockstep/data/text/tokenizer_file.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {

void read_untrusted(Bytes bytes) {
  const std::string text = "Caf\xc3\xa9, it's 42  h\xe6\xbc\xa2[SEP]\n<|endoftext|>hello";
  tolerate(ErrorCategory::data, [&] {  // the bytes as text
    for (const bool are_chars : {false, true}) {
      data::CharacterSet characters;
      if (are_chars) characters.add(text_of(bytes));
      const auto schema =
          data::TextSchema::for_tokenizer(are_chars ? "chars" : "bytes", characters.vocabulary());
      const auto tokenizer = schema.open();
      tokenizer->decode(tokenizer->encode(text_of(bytes)));
    }
  });
  tolerate(ErrorCategory::checkpoint, [&] {  // as a description in a checkpoint
    data::TextSchema::from_checkpoint(
        parse_json(text_of(bytes), ErrorCategory::checkpoint, "state.json"), "state.json");
  });
  const auto tokenizer = data::parse_tokenizer_file(text_of(bytes), "tokenizer.json");
  tokenizer->decode(tokenizer->encode(text));
  tokenizer->encode(text_of(bytes));
}

}  // namespace lockstep::inline v0::fuzz

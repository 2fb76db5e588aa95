#include "lockstep/train/tensorboard/hyperparameters.h"

#include <cstdint>
#include <protozero/pbf_builder.hpp>
#include <variant>

#include "lockstep/base/text.h"

namespace lockstep::inline v0::train {
namespace {

// Field numbers of tensorboard/plugins/hparams/plugin_data.proto and google/protobuf/struct.proto.
using SessionTag = protozero::pbf_tag_type;
enum class PluginData : SessionTag { version = 1, session_start = 3, session_end = 4 };
enum class SessionStart : SessionTag { hyperparameters = 1, start_time = 5 };
enum class SessionEnd : SessionTag { status = 1, end_time = 2 };
enum class SessionEntry : SessionTag { key = 1, value = 2 };
enum class SessionValue : SessionTag { number = 2, text = 3, boolean = 4 };

constexpr std::int32_t kPluginVersion = 0;
constexpr std::int32_t kSuccess = 1;  // STATUS_SUCCESS of api.proto

}  // namespace

std::string session_start(std::span<const Hyperparameter> values, double time) {
  std::string bytes;
  {
    protozero::pbf_builder<PluginData> data(bytes);
    data.add_int32(PluginData::version, kPluginVersion);
    protozero::pbf_builder<SessionStart> start(data, PluginData::session_start);
    for (const Hyperparameter& one : values) {
      protozero::pbf_builder<SessionEntry> entry(start, SessionStart::hyperparameters);
      entry.add_string(SessionEntry::key, encode_bytes(one.name));
      protozero::pbf_builder<SessionValue> value(entry, SessionEntry::value);
      if (const auto* const number = std::get_if<double>(&one.value))
        value.add_double(SessionValue::number, *number);
      else if (const auto* const boolean = std::get_if<bool>(&one.value))
        value.add_bool(SessionValue::boolean, *boolean);
      else
        value.add_string(SessionValue::text, encode_bytes(std::get<std::string>(one.value)));
    }
    start.add_double(SessionStart::start_time, time);
  }
  return bytes;
}

std::string session_end(double time) {
  std::string bytes;
  {
    protozero::pbf_builder<PluginData> data(bytes);
    data.add_int32(PluginData::version, kPluginVersion);
    protozero::pbf_builder<SessionEnd> end(data, PluginData::session_end);
    end.add_enum(SessionEnd::status, kSuccess);
    end.add_double(SessionEnd::end_time, time);
  }
  return bytes;
}

}  // namespace lockstep::inline v0::train

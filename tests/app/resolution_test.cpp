// Every key that is given arrives: none is ignored, none is overwritten by a default.
#include <catch2/catch.hpp>

#include "app/experiment_toml.h"
#include "app/schema.h"
#include "tests/temporary_folder.h"

namespace motley::app {
namespace {

Experiment loaded(const std::string& text) {
  const TemporaryFolder folder;
  return load_experiment({folder.write("x.toml", text), {}, ""});
}

const std::string kBase =
    "[run]\nasync = false\n[[tasks]]\nenv = \"arithmetic\"\n[algo]\ncorrection = \"sc+mis\"\n[[samplers]]\nname = "
    "\"a\"\n";

/// Another value of the same type; the text itself if there is none to be had without knowing the key.
std::string another(const std::string& value) {
  if (value == "true") return "false";
  if (value == "false") return "true";
  if (value.find_first_not_of("0123456789") == std::string::npos) return std::to_string(std::stoll(value) * 2 + 2);
  if (value.find_first_not_of("0123456789.e-") == std::string::npos) return toml_number(std::stod(value) * 0.5);
  return value;
}

}  // namespace

TEST_CASE("a value that is given stands in the resolved experiment, for every key") {
  const std::string resolved = experiment_to_toml(loaded(kBase));
  size_t changed = 0;
  std::vector<std::string> refused;
  for (size_t at = 0; at < resolved.size();) {
    const size_t end = resolved.find('\n', at), equals = resolved.find(" = ", at);
    if (equals < end) {
      const std::string key = resolved.substr(at, equals - at), value = resolved.substr(equals + 3, end - equals - 3);
      std::string text = resolved;
      text.replace(equals + 3, value.size(), another(value));
      INFO(key << " = " << value);
      if (text != resolved) {
        try {
          const std::string again = experiment_to_toml(loaded(text));
          CHECK(again == text);
          ++changed;
        } catch (const InputError&) {
          refused.push_back(key);  // the new value is impossible together with others
        }
      }
    }
    at = end + 1;
  }
  CAPTURE(refused);
  CHECK(changed >= 40);
  CHECK(refused.size() <= 8);
}

TEST_CASE("a warm-up that a falling schedule has no room for is refused") {
  const std::string toml = kBase + "[trainer]\nschedule = \"cosine\"\nwarmup_updates = 100\n";  // and 100 updates
  CHECK_THROWS_WITH(loaded(toml), Catch::Contains("x.toml:11:18: error: ") && Catch::Contains("below run.updates"));
  CHECK(loaded(kBase + "[trainer]\nschedule = \"cosine\"\nwarmup_updates = 99\n").trainer.warmup_updates == 99);
  CHECK(loaded(kBase + "[trainer]\nwarmup_updates = 100\n").trainer.warmup_updates == 100);
}

}  // namespace motley::app

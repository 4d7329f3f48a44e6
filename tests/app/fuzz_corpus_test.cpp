// The corpora of `make fuzz`, once through the decoders as they are built here: what crashed one once stays mended, and
// no seed grows stale.
#include <catch2/catch.hpp>
#include <fstream>
#include <set>

#include "tests/fuzz/targets.h"
#include "tests/temporary_folder.h"

namespace motley::fuzz {
namespace {

namespace fs = std::filesystem;

const fs::path kCorpus = fs::path(MOTLEY_SOURCE_DIR) / "tests/fuzz/corpus";

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("no input of the fuzzers' corpora harms a decoder") {
  std::set<std::string> folders;
  for (const auto& entry : fs::directory_iterator(kCorpus)) folders.insert(entry.path().filename());
  for (const auto& [name, target] : targets()) {
    size_t files = 0;
    for (const auto& entry : fs::directory_iterator(kCorpus / name)) {
      CAPTURE(name, entry.path().filename().string());
      CHECK_NOTHROW(target.decode(bytes_of(entry.path())));
      ++files;
    }
    CAPTURE(name);
    CHECK(files >= 2);
    folders.erase(name);
  }
  CHECK(folders.empty());  // of targets that are no longer there
}

TEST_CASE("the fuzzers begin with what our own encoders make") {
  for (const auto& [name, target] : targets()) {
    for (const auto& [seed, bytes] : target.seeds()) {
      CAPTURE(name, seed);
      CHECK(target.decode(bytes));
      // `make fuzz-seeds` writes it; an old one would leave the fuzzer outside of what is taken today.
      CHECK(target.decode(bytes_of(kCorpus / name / ("seed-" + seed))));
    }
  }
}

TEST_CASE("the fuzzers' seeds are written", "[.write-fuzz-seeds]") {
  for (const auto& [name, target] : targets()) {
    fs::create_directories(kCorpus / name);
    for (const auto& [seed, bytes] : target.seeds()) {
      std::ofstream(kCorpus / name / ("seed-" + seed), std::ios::binary) << bytes;
    }
  }
}

}  // namespace motley::fuzz

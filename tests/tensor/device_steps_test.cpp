// Steps of an engine on another device: how often the host waits, and decode steps as graphs.
#include <catch2/catch.hpp>
#include <set>

#include "kernels/device_memory.h"
#include "kernels/device_stream.h"
#include "tensor/engine_graphs.h"
#include "tests/tensor/engine_fixture.h"

namespace motley {
namespace {

using namespace test;

const Device kEmulated{kernels::DeviceKind::emulated, 0};

std::shared_ptr<const SamplerWeights> bf16_weights(const Model& model, const Device& device, uint64_t version = 1) {
  return sampler_weights(model, plain_profile("bf16"), version, device);
}

}  // namespace

TEST_CASE("a step on a device waits once, and once more for what its records list", "[device]") {
  const Model model = make_model(smallest(), 8);
  int done = 0;
  for (const int64_t max_graphs : {16, 0}) {
    for (const bool listed : {false, true}) {
      if (enough(done++)) continue;
      INFO(max_graphs << " graphs, " << (listed ? "candidates" : "tokens alone"));
      Engine engine(bf16_weights(model, kEmulated), {.max_sequences = 8, .page_size = 2, .max_graphs = max_graphs});
      for (int64_t i = 1; i <= 3; ++i)
        engine.submit(make_request(static_cast<uint64_t>(i), i, 20, 11, {1.0, listed ? 0.9 : 1.0, 0}));
      engine.step();  // the prompts
      for (int step = 0; step < 3; ++step) {
        const uint64_t before = kernels::emulated::waits();
        CHECK(engine.step().size() == 3);
        CHECK(kernels::emulated::waits() - before == (listed ? 2 : 1));
      }
    }
  }
}

TEST_CASE("decode steps as graphs have the bits of steps without: sequences end, weights change, the cache grows",
          "[device]") {
  const Device there = other_device();
  const Model model = make_model(smallest(), 4), other = make_model(smallest(), 5);
  const auto run = [&](const Device& device, int64_t max_graphs) {
    Engine engine(bf16_weights(model, device), {.max_sequences = 3, .page_size = 2, .max_graphs = max_graphs});
    std::map<uint64_t, Finished> finished;
    for (uint64_t i = 1; i <= 3; ++i)
      engine.submit(make_request(i, 3, 4 * static_cast<int64_t>(i), 11, {1.0, i == 2 ? 0.9 : 1.0, 0}));
    for (int step = 0; step < 6; ++step) collect(engine.step(), finished);
    engine.set_weights(bf16_weights(other, device, 2));
    engine.submit(make_request(4, 2, 30, 11, {1.0, 1.0, 0}));
    for (int step = 0; step < 3; ++step) collect(engine.step(), finished);
    engine.cancel(3);
    engine.submit(make_request(5, 30, 2, 11, {0.0, 1.0, 0}));  // 15 pages more than the cache begins with
    for (int step = 0; step < 6; ++step) collect(engine.step(), finished);
    return std::pair(finished, engine.stats());
  };
  const auto [want, here] = run({}, 16);
  CHECK(here.graph_steps == 0);
  const auto [with, many] = run(there, 16);
  CHECK(with == want);
  CHECK(many.graphs_refused.empty());
  CHECK(many.graphs >= 3);
  CHECK(many.graph_steps > many.graphs);
  CHECK(many.allocated_pages > 16);
  if (enough(1)) return;
  const auto [without, none] = run(there, 0);
  CHECK(without == want);
  CHECK(none.graph_steps == 0);
}

TEST_CASE("an engine whose device has no memory left says so, loses nothing, and goes on when there is some") {
  const Model model = make_model(smallest(), 4);
  const std::vector<GenerateRequest> requests = three_requests({1.0, 1.0, 0});
  const EngineLimits limits{.max_sequences = 3, .page_size = 2};
  Engine engine(bf16_weights(model, kEmulated), limits);
  for (const GenerateRequest& request : requests) engine.submit(request);
  std::map<uint64_t, Finished> finished;
  collect(engine.step(), finished);
  const kernels::MemoryUse use = kernels::emulated::memory_use();
  kernels::emulated::set_total_memory(use.in_use + 8);
  for (int i = 0; i < 2; ++i)
    CHECK_THROWS_WITH(engine.step(), Catch::Contains("emulated: out of memory: ") &&
                                         Catch::Contains(" bytes asked for; ") && Catch::Contains(" free of "));
  kernels::emulated::set_total_memory(use.total);
  CHECK(engine.running() == 3);
  while (!engine.idle()) collect(engine.step(), finished);
  engine.check_pages();
  CHECK(finished == generate(bf16_weights(model, {}), limits, requests));
}

TEST_CASE("graphs are captured anew when the cache has grown, and when lists, draws or logits of a step have moved",
          "[device]") {
  const Model model = make_model(smallest(), 4);
  // `joining`: for how many tokens each a second request joins the first, which has the time between for a graph.
  const auto run = [&](const Device& device, int64_t page_size, int64_t prompt, int64_t max_new,
                       const std::vector<int64_t>& joining) {
    Engine engine(bf16_weights(model, device), {.max_sequences = 2, .page_size = page_size});
    std::map<uint64_t, Finished> finished;
    engine.submit(make_request(1, prompt, max_new, 11, {1.0, 1.0, 0}));
    uint64_t id = 1;
    for (const int64_t tokens : joining) {
      for (int step = 0; step < 4; ++step) collect(engine.step(), finished);
      engine.submit(make_request(++id, 2, tokens, 11, {1.0, 1.0, 0}));
    }
    while (!engine.idle()) collect(engine.step(), finished);
    return finished;
  };
  const auto same = [&](int64_t page_size, int64_t prompt, int64_t max_new, const std::vector<int64_t>& joining) {
    INFO(prompt << " + " << max_new);
    const auto want = run({}, page_size, prompt, max_new, joining);
    CHECK(run(other_device(), page_size, prompt, max_new, joining) == want);
  };
  same(1, 4, 16, {});      // the cache grows at the 17th page
  same(1, 3, 30, {});      // the lists at a context of 27, for which a prompt of 3 left no room
  same(4, 8, 8, {1});      // the draws where a prompt's and the first's are two
  same(4, 8, 16, {1, 3});  // then, with no other, the logits in steps of two
}

TEST_CASE("what a step or a score left undone when memory ran out is over before its memory and weights go") {
  const Model model = make_model(smallest(), 4);
  kernels::emulated::synchronize();
  const kernels::MemoryUse use = kernels::emulated::memory_use();
  for (const bool scores : {false, true}) {
    Engine engine(bf16_weights(model, kEmulated), {.max_sequences = 1, .page_size = 2});
    engine.submit(make_request(1, 4, 3, 11, {1.0, 1.0, 0}));
    // Room for 1024 bytes of cache and the lists of the pass, and not for all of it.
    kernels::emulated::set_total_memory(kernels::emulated::memory_use().in_use + 1500);
    if (scores)
      CHECK_THROWS_WITH(engine.score({{1, 2, 3}}, 1.0), Catch::Contains("out of memory"));
    else
      CHECK_THROWS_WITH(engine.step(), Catch::Contains("out of memory"));
    kernels::emulated::set_total_memory(use.total);
    engine.set_weights(bf16_weights(model, kEmulated, 2));
  }
  CHECK_NOTHROW(kernels::emulated::synchronize());
  CHECK(kernels::emulated::memory_use().in_use == use.in_use);
}

TEST_CASE("at most so many graphs are kept, those that were used last", "[device]") {
  const Device there = other_device();
  int done = 0;
  const auto count = [&] { ++done; };
  DecodeGraphs none(there, 0);
  for (int i = 0; i < 3; ++i) none.run({1, 4096}, {}, count);
  CHECK((done == 3 && none.launched() == 0));
  if (there.kind == kernels::DeviceKind::cpu) return;
  const kernels::Stream stream(there);
  const kernels::StreamScope scope(stream);
  DecodeGraphs graphs(there, 2);
  const DecodeGraphs::Places places{};
  const auto run = [&](int64_t rows, const DecodeGraphs::Places& at) {
    const int64_t captured = graphs.captured(), launched = graphs.launched();
    const int before = done;
    graphs.run({rows, 4096}, at, count);
    const bool launches = graphs.launched() > launched;
    return std::string(done == before ? "" : "done ") + (graphs.captured() > captured ? "captured " : "") +
           (launches ? "launched" : "");
  };
  CHECK(run(1, places) == "done ");
  CHECK(run(1, places) == "done captured launched");
  CHECK(run(1, places) == "launched");
  CHECK(run(2, places) == "done ");
  CHECK(run(2, places) == "done captured launched");
  CHECK(run(1, places) == "launched");
  CHECK(run(3, places) == "done ");  // takes the place of 2
  CHECK(run(1, places) == "launched");
  CHECK(run(2, places) == "done ");
  DecodeGraphs::Places moved;
  moved.list_moves = 1;
  CHECK(run(1, moved) == "done ");
  CHECK(run(1, moved) == "done captured launched");
  graphs.clear();
  CHECK(run(1, moved) == "done ");
  // What cannot be captured is done as it is, again and again, and says why.
  const auto waiting = [&] { kernels::finish_stream(there), ++done; };
  const int before = done;
  for (int i = 0; i < 3; ++i) graphs.run({9, 4096}, moved, waiting);
  CHECK(done >= before + 3);
  CHECK(graphs.refusal() != "");
  CHECK(run(1, moved) == "done ");
}

TEST_CASE("every profile of a device has decode steps that can be captured", "[device]") {
  const Device there = other_device();
  const Model model = make_model(smallest(), 3);
  std::set<std::string> known;
  int done = 0;
  for (const kernels::NumericProfile& profile : kernels::profiles()) {
    if (!known.insert(describe(profile)).second || enough(done)) continue;
    INFO(profile.name);
    ++done;
    Engine engine(sampler_weights(model, profile, 1, there), {.max_sequences = 1});
    engine.submit(make_request(1, 2, 4, 11, {1.0, 1.0, 0}));
    drain(engine);
    CHECK(engine.stats().graphs_refused.empty());
    CHECK(engine.stats().graph_steps == 2);
  }
}

TEST_CASE("numbers of rows and lengths of contexts that decode steps are filled up to") {
  const std::pair<int64_t, int64_t> rows[] = {{1, 1},   {2, 2},   {3, 4},   {5, 8},     {8, 8},     {9, 16},
                                              {17, 24}, {64, 64}, {65, 80}, {129, 160}, {256, 256}, {4000, 4096}};
  for (const auto& [count, bucket] : rows) CHECK(decode_bucket(count) == bucket);
  for (int64_t count = 1; count < 5000; ++count) {
    if (decode_bucket(count) < count) FAIL(count);
    if (decode_bucket(decode_bucket(count)) != decode_bucket(count)) FAIL(count);
  }
  const std::pair<int64_t, int64_t> lengths[] = {{1, 4096}, {4096, 4096}, {4097, 8192}, {8193, 16384}, {20000, 32768}};
  for (const auto& [longest, bucket] : lengths) CHECK(longest_bucket(longest) == bucket);
}

}  // namespace motley

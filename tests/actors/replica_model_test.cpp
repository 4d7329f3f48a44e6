// The engine in simulated time against one that is stepped, and the learner's numbers by hand.
#include "actors/simulation/replica_model.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "kernels/philox.h"

namespace motley::simulation {
namespace {

struct Request {
  double at = 0.0;
  int64_t tokens = 1;
};

/// When each reply ends, from the model alone.
std::vector<double> ends_of(const EngineSpeed& speed, const std::vector<Request>& requests) {
  ReplicaModel model(speed, 0.0, 0);
  std::vector<double> ends(requests.size(), -1.0);
  std::vector<ReplicaModel::Reply> ended;
  size_t next = 0;
  while (next < requests.size() || model.sessions() > 0) {
    const auto event = model.next();
    if (next < requests.size() && (!event || requests[next].at < *event)) {
      model.submit(requests[next].at, static_cast<uint32_t>(next), requests[next].tokens, 0.0);
      ++next;
      continue;
    }
    ended.clear();
    model.take_ended(event.value(), ended);
    for (const ReplicaModel::Reply& reply : ended) {
      ends[reply.session] = *event;
      CHECK(reply.tokens == requests[reply.session].tokens);
    }
  }
  return ends;
}

/// The same, one decode step after another: who has come joins when a step begins, if there is a slot.
std::vector<double> stepped(const EngineSpeed& speed, const std::vector<Request>& requests) {
  std::vector<double> ends(requests.size(), -1.0);
  std::map<size_t, int64_t> running;
  double now = 0.0;
  size_t next = 0;
  while (next < requests.size() || !running.empty()) {
    if (running.empty()) now = std::max(now, requests[next].at);
    while (next < requests.size() && requests[next].at <= now && static_cast<int64_t>(running.size()) < speed.slots) {
      running.emplace(next, requests[next].tokens);
      ++next;
    }
    now += speed.step(static_cast<int64_t>(running.size()));
    for (auto entry = running.begin(); entry != running.end();) {
      if (--entry->second > 0) {
        ++entry;
        continue;
      }
      ends[entry->first] = now;
      entry = running.erase(entry);
    }
  }
  return ends;
}

}  // namespace

TEST_CASE("one sequence alone, several at once, and one that waits for a slot") {
  const EngineSpeed speed{.step_seconds = 1.0, .sequence_seconds = 0.5, .slots = 2};
  CHECK(ends_of(speed, {{0, 4}})[0] == Approx(6.0));
  const std::vector<double> ends = ends_of(speed, {{0, 4}, {0, 2}, {0, 1}});
  CHECK(ends[1] == Approx(4.0));        // two steps of two
  CHECK(ends[2] == Approx(4.0 + 2.0));  // then beside the first
  CHECK(ends[0] == Approx(6.0 + 1.5));
  CHECK(speed.capacity() == Approx(1.0));
}

TEST_CASE("random arrivals end when those of an engine do that is stepped") {
  const EngineSpeed speed{.step_seconds = 0.02, .sequence_seconds = 0.01, .slots = 6};
  kernels::RandomStream random({.seed = 2, .purpose = kernels::Purpose::data});
  std::vector<Request> requests;
  double at = 0.0;
  for (int i = 0; i < 400; ++i)
    requests.push_back({at += random.uniform() * 0.9, 1 + static_cast<int64_t>(random.below(60))});
  const std::vector<double> model = ends_of(speed, requests), engine = stepped(speed, requests);
  for (size_t i = 0; i < requests.size(); ++i) CHECK(model[i] == Approx(engine[i]).epsilon(1e-9));
}

TEST_CASE("reading a prompt stops the whole batch; so does a swap, after which tokens have the new version") {
  ReplicaModel model({.step_seconds = 1.0, .prefill_seconds = 0.1, .slots = 4}, 0.0, 5);
  model.submit(0.0, 0, 10, 0.0);
  model.submit(4.0, 1, 2, 20.0);  // two seconds; it joins after the step that begins then
  CHECK(model.next().value() == Approx(9.0));
  std::vector<ReplicaModel::Reply> ended;
  model.take_ended(9.0, ended);
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].session == 1);
  CHECK(ended[0].version_sum == Approx(10.0));
  model.swap(9.0, 6, 3.0);
  CHECK(model.next().value() == Approx(15.0));
  ended.clear();
  model.take_ended(15.0, ended);
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].first_version == 5);
  CHECK(ended[0].version_sum == Approx(7 * 5 + 3 * 6));
  CHECK(model.busy_seconds() == Approx(15.0));
  CHECK(model.tokens() == Approx(12.0));
  CHECK_FALSE(model.next());
  model.advance(100.0);
  CHECK(model.busy_seconds() == Approx(15.0));
}

TEST_CASE("what joins after the step that is under way has the weights that come in between") {
  ReplicaModel model({.step_seconds = 1.0, .slots = 4}, 0.0, 7);
  model.submit(0.0, 0, 4, 0.0);
  model.submit(0.5, 1, 2, 0.0);
  model.swap(0.75, 8, 0.0);
  std::vector<ReplicaModel::Reply> ended;
  model.take_ended(4.0, ended);
  REQUIRE(ended.size() == 2);
  for (const ReplicaModel::Reply& reply : ended) CHECK(reply.first_version == (reply.session == 0 ? 7 : 8));
}

TEST_CASE("what comes at the very end of a step joins after the one that begins there") {
  ReplicaModel model({.step_seconds = 1.0, .slots = 4}, 0.0, 7);
  model.submit(0.0, 0, 4, 0.0);
  model.submit(2.0, 1, 1, 0.0);
  std::vector<ReplicaModel::Reply> ended;
  model.take_ended(3.5, ended);
  CHECK(ended.empty());
  CHECK(model.next().value() == Approx(4.0));
}

TEST_CASE("what is interrupted gives the tokens that were drawn") {
  ReplicaModel model({.step_seconds = 1.0, .slots = 2}, 0.0, 1);
  model.submit(0.0, 0, 10, 0.0);
  model.submit(2.5, 1, 10, 0.0);  // joins at 3
  model.submit(2.5, 2, 10, 0.0);  // waits
  CHECK(model.waiting() == 1);
  std::vector<int64_t> drawn(3, -1);
  for (const ReplicaModel::Reply& reply : model.interrupt(7.2)) drawn[reply.session] = reply.tokens;
  CHECK(drawn == std::vector<int64_t>{7, 4, 0});
  CHECK(model.sessions() == 0);
}

}  // namespace motley::simulation

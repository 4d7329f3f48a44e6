#include "actors/remote/join.h"

#include <algorithm>

#include "actors/remote/join_loop.h"
#include "actors/remote/membership.h"
#include "tensor/config_json.h"

namespace motley::actors {
namespace {

MembershipOptions membership_options(const JoinRequest& request, const Welcome& welcome, const Links& links) {
  MembershipOptions options;
  options.weights = welcome.weights;
  options.model = config_from_json("the run's model", welcome.model).resolved();
  Experiment experiment;
  SamplerGroupOptions group;
  group.profile = welcome.profile;
  group.kernels = welcome.kernels;
  if (!kernels::find_profile(welcome.profile))
    throw JoinRefused("this motley has no profile " + welcome.profile + ", which the run's group has");
  options.profile = experiment.group_profile(group);
  if (const std::string mine = kernels::describe(options.profile); mine != welcome.profile_text)
    throw JoinRefused("profile " + welcome.profile + " is \"" + mine + "\" here and \"" + welcome.profile_text +
                      "\" in the run: build both of one source");
  options.decoder = {.max_sequences = static_cast<int64_t>(std::clamp<uint64_t>(welcome.max_sequences, 1, 65536)),
                     .graphs = welcome.graphs,
                     .kv_on_swap = welcome.recompute_kv ? KvOnSwap::recompute : KvOnSwap::keep};
  options.device = request.device;
  options.session = links.session;
  options.fetch_endpoint = links.endpoint(welcome.fetch_port);
  options.announce_endpoint = links.endpoint(welcome.announce_port);
  options.secure = links.secure;
  return options;
}

}  // namespace

JoinEnd run_sampler(const JoinRequest& request, const std::function<void(const std::string&)>& say, StopRequest& stop) {
  const Joining joining{
      .address = request.address,
      .keys = request.keys,
      .patience = request.patience,
      .hello = {.role = "sampler",
                .group = request.group,
                .hardware = request.hardware,
                .model = request.model,
                .instance = request.instance},
      .begin = [&](const Welcome& welcome, const Links& links) -> std::unique_ptr<Stay> {
        say("joined as sampler " + welcome.group + "/" + std::to_string(welcome.replica) + ": " + welcome.profile_text);
        return std::make_unique<Membership>(links.context, membership_options(request, welcome, links));
      }};
  return join_run(joining, say, stop);
}

}  // namespace motley::actors

#include "actors/remote/join_worker.h"

#include <algorithm>

#include "actors/remote/join_loop.h"
#include "actors/remote/work_wire.h"
#include "actors/remote/worker_stay.h"

namespace motley::actors {

JoinEnd run_worker(const WorkerRequest& request, const std::function<void(const std::string&)>& say,
                   StopRequest& stop) {
  const Joining joining{.address = request.address,
                        .keys = request.keys,
                        .patience = request.patience,
                        .hello = {.role = "worker"},
                        .begin = [&](const Welcome&, const Links& links) -> std::unique_ptr<Stay> {
                          say("joined as a worker");
                          return std::make_unique<WorkerStay>(
                              links.context, links.session,
                              std::min<int64_t>(worker_threads(request.slots), kMostSlots), request.parse, say);
                        }};
  return join_run(joining, say, stop);
}

}  // namespace motley::actors

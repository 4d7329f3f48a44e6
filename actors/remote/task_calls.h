// A worker's calls into tasks, in another process than the run: the interactions that live here, and threads that wait
// for what tasks do. Free of CAF and ZeroMQ.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "actors/experiment.h"
#include "actors/remote/setting.h"
#include "actors/remote/wire.h"

namespace motley::actors {

class TaskCalls {
 public:
  /// Called on its threads, never at once; not after its end.
  struct Events {
    std::function<void(FrameKind kind, std::string body)> send;
    std::function<void(const std::string& tasks)> ready;  // their names
    std::function<void()> left;                           // everything is answered
    std::function<void(std::exception_ptr)> failed;       // what the run asks for cannot be had here
  };
  /// From the TOML text of a run.
  using Parse = std::function<Experiment(const std::string&)>;
  /// So many calls at once.
  TaskCalls(int64_t slots, Parse parse, Events events);
  /// Ends the interactions that live here. A call that does not end within a moment is left to itself.
  ~TaskCalls();
  TaskCalls(const TaskCalls&) = delete;
  TaskCalls& operator=(const TaskCalls&) = delete;

  // From one thread; none blocks. They throw WireError for what no run asks for.
  /// Makes the tasks, asks them what they need, and says that they are ready.
  void set(Setting setting);
  void work(std::string_view body);
  /// Takes no more work, and finishes what is under way.
  void leave();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace motley::actors

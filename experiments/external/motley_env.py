"""Serves an environment to motley (env = "external"): docs/external-environments.md is the protocol.

An environment is any object with some of these; all texts are str.

    name, version       of the environment; version may be left out
    symbols             texts that its prompts and replies are made of; or bytes = True: any text
    training, held_out  numbers of problems; left out or None: endless
    reward_range        (low, high); left out: (0, 1)
    demonstrations      True if it can show perfect replies

    problem(seed, index, held_out) -> prompt, or {"prompt": ..., "answer": ..., "demonstration": ...}
    score(prompt, answer, reply, ended) -> reward        episodes of one reply
    begin(prompt, answer) -> episode                     episodes of several; an object with
        reply(text, ended) -> Observation or Reward
        end(reason) -> reward                            a limit of motley's ended it
        demonstration() -> text                          the perfect reply now

A reward is a number, or Reward(value, parts={"name": number}, format_error=False, end="word").
Needs Debian's python3-zmq and python3-msgpack.
"""

import collections
import dataclasses
import sys
import traceback

import msgpack
import zmq

PROTOCOL = 1
MOST_EPISODES = 10000  # what a motley that was killed has left open goes, oldest first
MOST_BYTES = 1 << 20


@dataclasses.dataclass
class Reward:
    value: float
    parts: dict = dataclasses.field(default_factory=dict)
    format_error: bool = False
    end: str = ""  # of an episode of several replies: how it ended


@dataclasses.dataclass
class Observation:
    text: str
    format_error: bool = False


def _reward(given):
    reward = given if isinstance(given, Reward) else Reward(float(given))
    answer = {"reward": float(reward.value), "parts": reward.parts, "format_error": reward.format_error}
    return answer | ({"end": reward.end} if reward.end else {})


class _Server:
    def __init__(self, env):
        self.env = env
        self.episodes = collections.OrderedDict()  # by id: [episode, turn that was answered last, its answer]

    def hello(self, _):
        answer = {"motley": PROTOCOL, "name": self.env.name, "interacts": hasattr(self.env, "begin")}
        for key in ("version", "symbols", "bytes", "demonstrations", "training", "held_out", "reward_range"):
            if getattr(self.env, key, None) is not None:
                answer[key] = getattr(self.env, key)
        return answer

    def problem(self, ask):
        given = self.env.problem(ask["seed"], ask["index"], ask["held_out"])
        return given if isinstance(given, dict) else {"prompt": given}

    def score(self, ask):
        return _reward(self.env.score(ask["prompt"], ask["answer"], ask["reply"], ask["ended"]))

    def _with_demonstration(self, answer, episode):
        if getattr(self.env, "demonstrations", False):
            answer["demonstration"] = episode.demonstration()
        return answer

    def begin(self, ask):
        episode = self.env.begin(ask["prompt"], ask["answer"])
        self.episodes[ask["episode"]] = [episode, -1, None]
        while len(self.episodes) > MOST_EPISODES:
            self.episodes.popitem(last=False)
        return self._with_demonstration({}, episode)

    def _of(self, ask):
        if ask["episode"] not in self.episodes:
            raise LookupError("no such episode: it has ended, or the server was started anew since it began")
        return self.episodes[ask["episode"]]

    def reply(self, ask):
        kept = self._of(ask)
        if ask["turn"] == kept[1]:  # asked again, since the answer was lost
            return kept[2]
        result = kept[0].reply(ask["reply"], ask["ended"])
        if isinstance(result, str):
            result = Observation(result)
        if isinstance(result, Observation):
            answer = {"observation": result.text, "format_error": result.format_error}
            kept[1:] = ask["turn"], self._with_demonstration(answer, kept[0])
        else:
            kept[1:] = ask["turn"], _reward(result)
        return kept[2]

    def end(self, ask):
        return _reward(self._of(ask)[0].end(ask["reason"]))

    def close(self, ask):
        self.episodes.pop(ask["episode"], None)
        return {}


def _text(value):
    """Bytes that are no UTF-8 arrive as msgpack bin and are a str here all the same."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _plain(value):
    if isinstance(value, str):
        try:
            value.encode()
            return value
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogateescape")
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def answer(server, message):
    """The answer to one request, as bytes. What goes wrong in the environment becomes an error of that request."""
    ask = {}
    try:
        ask = {key: _text(value) for key, value in msgpack.unpackb(message).items()}
        if ask["motley"] != PROTOCOL:
            raise ValueError(f"this server speaks version {PROTOCOL} of the protocol, motley {ask['motley']}")
        if ask["do"] not in ("hello", "problem", "score", "begin", "reply", "end", "close"):
            raise ValueError(f"no request of the name {ask['do']}")
        result = getattr(server, ask["do"])(ask)
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        result = {"error": f"{type(error).__name__}: {error}"}
    return msgpack.packb(_plain({"id": ask.get("id", 0)} | result))


def serve(env, address):
    """Answers one request after another, until the process is told to end."""
    socket = zmq.Context.instance().socket(zmq.REP)
    socket.setsockopt(zmq.MAXMSGSIZE, 2 * MOST_BYTES)
    socket.bind(address)
    server = _Server(env)
    while True:
        socket.send(answer(server, socket.recv()))

#!/usr/bin/python3
"""Lets an engine that is reached over HTTP sample for a motley run (docs/sampler-protocol.md).

    http_engine.py HOST:PORT GROUP URL

HOST:PORT is the sessions' socket of the run, the port after that of --listen. The engine answers

    POST URL/load      {"version": 3, "config": "...", "parts": [...], "image": "a file with their bytes"}  ->  {}
    POST URL/generate  {"tokens": [...], "max_new_tokens": 8, "stop_tokens": [...], "temperature": 1.0, "seed": 1}
                       ->  {"tokens": [...], "log_probs": [...]}
"""

import json
import os
import sys
import tempfile
import urllib.request

import motley_sampler


class HttpEngine:
    def __init__(self, url):
        self.url = url

    def call(self, path, message):
        data = json.dumps(message).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)

    def load(self, version, manifest, image):
        with tempfile.NamedTemporaryFile(suffix=".weights") as file:
            file.write(image)
            file.flush()
            self.call(
                "/load",
                {"version": version, "config": manifest["config"], "parts": manifest["parts"], "image": file.name},
            )

    def generate(self, request):
        # One seed a session, attempt and place: what is drawn again is drawn anew.
        seed = hash((request["seed"], request["session"], request["attempt"], len(request["tokens"]))) & 0x7FFFFFFF
        wanted = ("tokens", "max_new_tokens", "stop_tokens", "temperature")
        answer = self.call("/generate", {**{key: request[key] for key in wanted}, "seed": seed})
        return answer["tokens"], answer["log_probs"]


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    address, group, url = sys.argv[1:]
    try:
        sampler = motley_sampler.Sampler(address, group, f"http engine {os.getpid()}", HttpEngine(url))
        print("joined as replica", sampler.welcome["replica"], "of", sampler.welcome["group"], flush=True)
        sampler.serve()
    except motley_sampler.Refused as reason:
        print("ended:", reason, flush=True)


if __name__ == "__main__":
    main()

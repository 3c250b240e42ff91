#!/usr/bin/env python3
"""Makes a long Kineto trace of a short one, for measuring imports: `big_trace.py SMALL.json[.gz] BIG.json [MB] [RANK]`.

The events are repeated with everything shifted that a long recording would count on: times, correlations, external ids,
flow ids, step numbers, sequence numbers. What kinds of rows there are, and how long each is, stays as in the small one.
A name that ends in .gz gives a gzip file. RANK, if given, replaces the rank in the header.
"""
import gzip
import json
import re
import sys

SHIFTED = ["External id", "correlation", "Record function id", "Ev Idx", "Sequence number", "Seq"]


def main():
    source, target = sys.argv[1:3]
    wanted = float(sys.argv[3]) * 1e6 if len(sys.argv) > 3 else 500e6
    with (gzip.open if source.endswith(".gz") else open)(source) as file:
        trace = json.load(file)
    if len(sys.argv) > 4:
        trace["distributedInfo"]["rank"] = int(sys.argv[4])
    events = trace.pop("traceEvents")
    timed = [event["ts"] for event in events if event.get("ph") == "X" and event.get("cat") != "Trace"]
    span = max(timed) - min(timed) + 20_000
    marks = [int(m[1]) for e in events if (m := re.fullmatch(r"ProfilerStep#(\d+)", e.get("name", "")))]
    steps = max(marks) - min(marks) + 1 if marks else 0
    stride = 1 + max(
        max((int(event["args"].get(key, 0)) for event in events if "args" in event for key in SHIFTED), default=0),
        max((event["id"] for event in events if isinstance(event.get("id"), int)), default=0),
    )
    opened = gzip.open(target, "wb", 6) if target.endswith(".gz") else open(target, "wb")
    with opened as out:
        head = json.dumps(trace)[:-1] + ', "traceEvents": [\n'
        written = out.write(head.encode())
        copy = 0
        while written < wanted:
            lines = []
            for event in events:
                if copy and event.get("ph") == "M":
                    continue
                event = dict(event)
                event["ts"] = round(event["ts"] + copy * span, 3)
                if isinstance(event.get("id"), int):
                    event["id"] += copy * stride
                if "args" in event:
                    args = event["args"] = dict(event["args"])
                    for key in SHIFTED:
                        if isinstance(args.get(key), int) and args[key] > 0:
                            args[key] += copy * stride
                if match := re.fullmatch(r"ProfilerStep#(\d+)", event.get("name", "")):
                    event["name"] = f"ProfilerStep#{int(match[1]) + copy * steps}"
                lines.append(json.dumps(event))
            written += out.write(((",\n" if copy else "") + ",\n".join(lines)).encode())
            copy += 1
        out.write(b"\n]}\n")
    print(f"{target}: {written / 1e6:.0f} MB of JSON, {copy} times {len(events)} events, {copy * steps} steps")


main()

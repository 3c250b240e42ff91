#!/usr/bin/env python3
"""Makes a long Nsight Systems export of a short one, for measuring imports: `big_sqlite.py SMALL BIG [KERNELS]`.

All rows are repeated until there are KERNELS kernels (a million if not given), with everything shifted that a long
recording would count on: times, correlations, events and the numbers of steps. What kinds of rows there are, and how long
each is, stays as in the small one.
"""
import re
import shutil
import sqlite3
import sys

TABLES = ["KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "SYNCHRONIZATION", "CUDA_EVENT"]
NONE = 2**32 - 1


def columns(database, table):
    return [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]


def main():
    source, target = sys.argv[1:3]
    wanted = int(sys.argv[3]) if len(sys.argv) > 3 else 1_000_000
    shutil.copyfile(source, target)
    database = sqlite3.connect(target)
    database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
    tables = {}
    for table in [f"CUPTI_ACTIVITY_KIND_{kind}" for kind in TABLES] + ["NVTX_EVENTS"]:
        if names := columns(database, table):
            condition = " WHERE eventType != 75" if table == "NVTX_EVENTS" else ""
            tables[table] = names, database.execute(f'SELECT * FROM "{table}"{condition}').fetchall()

    def values(name):
        for names, rows in tables.values():
            if name in names:
                yield from (row[names.index(name)] for row in rows if row[names.index(name)] not in (None, NONE))

    span = max(values("end")) - min(values("start")) + 20_000
    correlations, events = max(values("correlationId")) + 1, max(values("eventId")) + 1
    marks = [int(found[1]) for text in values("text") if (found := re.fullmatch(r"step (\d+)", text))]
    steps = max(marks) - min(marks) + 1 if marks else 0
    kernels = len(tables["CUPTI_ACTIVITY_KIND_KERNEL"][1])
    for copy in range(1, -(-wanted // kernels)):
        for table, (names, rows) in tables.items():
            shifts = [
                {"start": span, "end": span, "correlationId": correlations, "eventId": events}.get(name, 0) * copy
                for name in names
            ]
            text = names.index("text") if "text" in names else None

            def moved(row):
                row = [
                    value + shift if shift and value not in (None, NONE) else value for value, shift in zip(row, shifts)
                ]
                if text is not None and row[text] and (found := re.fullmatch(r"step (\d+)", row[text])):
                    row[text] = f"step {int(found[1]) + copy * steps}"
                return row

            places = ", ".join("?" * len(names))
            database.executemany(f'INSERT INTO "{table}" VALUES ({places})', map(moved, rows))
    database.commit()
    print(database.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0], "kernels")


main()

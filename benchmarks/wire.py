"""The wire: decoding a delta, folding many."""

from __future__ import annotations

import timeit

import msgspec

from benchmarks.table import Table
from perdure.wire import Fold, OutputItemAdded, OutputTextDelta, assistant, decode_event

DELTA = (
    b'{"type":"response.output_text.delta","sequence_number":12,'
    b'"item_id":"msg_0123456789abcdef0123456789abcdef","output_index":1,"content_index":0,'
    b'"delta":" word","logprobs":[],"obfuscation":"Zk3nJ8sQ2"}'
)
ROUNDS = 25
NUMBER = 20_000


def decoding() -> tuple[float, float]:
    """Microseconds to decode a text delta: untyped, typed. Least of interleaved rounds."""
    untyped = msgspec.json.Decoder()
    figures = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for place, work in enumerate((lambda: untyped.decode(DELTA), lambda: decode_event(DELTA))):
            figures[place] = min(figures[place], timeit.timeit(work, number=NUMBER))
    return figures[0] / NUMBER * 1e6, figures[1] / NUMBER * 1e6


def folding(count: int) -> float:
    """Microseconds a delta to fold `count` of them and look at the response once."""
    event = decode_event(DELTA)
    assert isinstance(event, OutputTextDelta)
    opened = OutputItemAdded(output_index=1, item=assistant(()))

    def once() -> None:
        fold = Fold()
        fold.feed(opened)
        for _ in range(count):
            fold.feed(event)
        fold.response()

    return min(timeit.repeat(once, number=1, repeat=5)) / count * 1e6


def main() -> None:
    """Run them and print the tables."""
    untyped, typed = decoding()
    table = Table("decoding a text delta, microseconds", "", "untyped", "typed", "ratio")
    table.row("msgspec, perdure", untyped, typed, typed / untyped)
    table.show()
    print("bound: 1.50\n")
    table = Table("folding deltas, microseconds a delta", "deltas", "fold")
    for count in (2000, 20_000, 200_000):
        table.row(count, folding(count))
    table.show()


if __name__ == "__main__":
    main()

"""python -m bench.zookeeper_reference: the ZooKeeper backend beside kazoo's Lock.

Fifty at a time, on keys of their own and on one hot key; interleaved rounds, each in its own process on a
fresh server. Writes bench/results/zookeeper.json and zookeeper.md, in about two minutes.
"""

from bench.reference import Reference
from bench.zookeeper_subjects import HandOff, Kazoo, ZooKeeper
from harness import servers

if __name__ == "__main__":
    Reference(
        name="zookeeper",
        title="ZooKeeper: ours and kazoo's Lock",
        server=servers.zookeeper,
        subjects=(ZooKeeper, HandOff, Kazoo),
        peer=Kazoo,
        packages=("kazoo",),
        contenders=50,
    ).main(__doc__.splitlines()[0])

"""etcd: leases that expire by themselves, and a file that stays large until it is defragmented."""

import aiohttp

from harness import servers
from harness.experiments.key_space.figures import MIB, EtcdFigures, KeySpace
from harness.lab import Lab
from harness.lab.outcome import Case, Fact, compare
from harness.lab.scale.etcd_growth import Gateway, many, until_expired
from harness.report.charts import bars


async def leases_and_file(lab: Lab, leases: int, revisions: int, figures: KeySpace) -> list[Case]:
    cluster = await lab.enter(servers.etcd())
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        # Long enough that most of them are there together.
        gateway = Gateway(cluster[0], session, lease_ttl=5 if lab.quick else 15)
        sizes = {"empty": await gateway.size()}
        lab.say(f"etcd: {leases:,} leases")
        lock_rate = await many(leases, gateway.lock)
        most = await gateway.leases()
        sizes["locked"] = await gateway.size()
        gone = await until_expired(gateway, limit=90.0)
        lab.say(f"etcd: {revisions:,} revisions")
        put_rate = await many(revisions, gateway.rewrite)
        sizes["rewritten"] = await gateway.size()
        revision = int((await gateway.call("maintenance/status"))["header"]["revision"])
        await gateway.call("kv/compaction", revision=str(revision), physical=True)
        sizes["compacted"] = await gateway.size()
        await gateway.call("maintenance/defragment")
        sizes["defragmented"] = await gateway.size()
    figures.etcd = EtcdFigures(
        leases=leases,
        locks_per_s=round(lock_rate, 1),
        most_leases=most,
        expired_after_s=gone,
        puts_per_s=round(put_rate, 1),
        bytes_per_revision=round((sizes["rewritten"].in_use - sizes["locked"].in_use) / revisions, 1),
        sizes=sizes,
    )
    groups = {name: {"file": size.file / MIB, "in use": size.in_use / MIB} for name, size in sizes.items()}
    lab.chart("etcd-size", bars("What etcd keeps", groups, y_label="MiB"))
    compacted, defragmented = sizes["compacted"], sizes["defragmented"]
    file: dict[str, Fact] = {
        "file MiB": f"{compacted.file / MIB:.1f} to {defragmented.file / MIB:.1f}",
        "bytes each": figures.etcd.bytes_per_revision,
    }
    return [
        compare(
            "etcd leases",
            gone is not None,
            prediction="expire by themselves",
            **{
                "keys": f"{leases:,}",
                "per second": f"{lock_rate:,.0f}",
                "last one late": None if gone is None else f"{gone:.1f} s after",
            },
        ),
        compare(
            "etcd file",
            compacted.in_use < sizes["rewritten"].in_use
            and compacted.file >= sizes["rewritten"].file
            and defragmented.file < compacted.file,
            prediction="compaction frees, defragmentation shrinks",
            **file,
        ),
    ]

"""Accidents with etcdctl, by etcd's JSON gateway."""

import base64
from typing import cast

from harness.faults.accidents.accident import Accident, Site
from harness.servers.etcd_cluster import EtcdNode


async def _delete(site: Site) -> None:
    first, last = f"/locks/{site.key}/", f"/locks/{site.key}0"  # "0" follows "/"
    await _node(site).call("kv/deleterange", {"key": _packed(first), "range_end": _packed(last)})


async def _revoke(site: Site) -> None:
    for lease in (await _node(site).call("lease/leases")).get("leases", []):
        await _node(site).call("lease/revoke", {"ID": lease["ID"]})


async def _compact(site: Site) -> None:
    status = await _node(site).call("maintenance/status")
    await _node(site).call("kv/compaction", {"revision": status["header"]["revision"]})


async def _defragment(site: Site) -> None:
    await _node(site).call("maintenance/defragment")


def _node(site: Site) -> EtcdNode:
    return cast(EtcdNode, site.node)


def _packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


ALL = (
    Accident("etcd: lock deleted", _delete, frees="one"),
    Accident("etcd: leases revoked", _revoke, frees="all"),
    Accident("etcd: compaction", _compact),
    Accident("etcd: defragmentation", _defragment),
)

"""A Ray cluster of two nodes on loopback, for tests: prints its address; a line on standard input
removes the second node, or adds one."""

from __future__ import annotations

import sys
from typing import Any

SETTINGS: dict[str, Any] = {
    "num_cpus": 1,
    "object_store_memory": 80 * 2**20,
    "include_dashboard": False,
}


def main() -> None:
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster(initialize_head=True, head_node_args=SETTINGS)
    try:
        second = cluster.add_node(**SETTINGS)
        sys.stdout.write(f"{cluster.address}\n")
        sys.stdout.flush()
        for line in sys.stdin:
            if line.strip() == "remove":
                cluster.remove_node(second, allow_graceful=False)
            else:
                second = cluster.add_node(**SETTINGS)
            sys.stdout.write("done\n")
            sys.stdout.flush()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()

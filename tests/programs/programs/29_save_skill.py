from toolfold import save_skill

save_skill("orders_by_status", '''
from servers.shop import list_orders

async def orders_by_status() -> dict[str, int]:
    """How many orders there are in each status."""
    counts = {}
    for order in await list_orders():
        counts[order["status"]] = counts.get(order["status"], 0) + 1
    return counts
''')

from skills import orders_by_status
print(await orders_by_status())

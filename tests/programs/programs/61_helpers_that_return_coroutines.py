import asyncio
from servers.shop import list_orders as shop_list_orders, get_order

def fetch(order_id: str):
    return get_order(order_id=order_id)

latest = lambda customer: shop_list_orders(customer=customer, limit=1)

async def list_orders(min_total: float):
    """My own helper, with the name of the tool."""
    return [o for o in await shop_list_orders() if o["total"] >= min_total]

order = await fetch("O-1002")
first = await latest("Grace Hopper")
big = await list_orders(min_total=90)
print(order["id"] == first[0]["id"], [o["id"] for o in big])

import asyncio
from servers.shop import get_order

def order_total(order_id):
    # a plain helper, so it starts a loop of its own
    return asyncio.run(get_order(order_id=order_id))["total"]

async def main():
    totals = [order_total(order_id) for order_id in ("O-1001", "O-1002")]
    print(sum(totals))

await main()

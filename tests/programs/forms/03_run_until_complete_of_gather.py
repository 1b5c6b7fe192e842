import asyncio
from servers.shop import get_order, count_orders

loop = asyncio.get_event_loop()
orders = loop.run_until_complete(asyncio.gather(get_order("O-1001"), get_order("O-1004")))
loop.close()
print([order["status"] for order in orders], await count_orders())

import asyncio
from servers.shop import export_orders, get_order

def summarize(orders):
    # CPU-bound work in a worker thread
    return max(orders, key=lambda o: o["total"])["id"]

loop = asyncio.get_running_loop()

def fetch_from_thread(order_id):
    future = asyncio.run_coroutine_threadsafe(get_order(order_id), loop)
    return future.result(timeout=10)

import json
orders = json.loads(await export_orders())
largest = await asyncio.to_thread(summarize, orders)
detail = await asyncio.to_thread(fetch_from_thread, largest)
print(largest, detail["customer"]["email"])

import asyncio
from servers.shop import get_order

loop = asyncio.get_event_loop()

def fetch(order_id):
    return asyncio.run_coroutine_threadsafe(get_order(order_id), loop).result(timeout=10)

print(fetch("O-1003")["total"])

async def main():
    return fetch("O-1001")["total"]

print(await main())

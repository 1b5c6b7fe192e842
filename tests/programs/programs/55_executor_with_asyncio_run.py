import asyncio
from concurrent.futures import ThreadPoolExecutor

from servers.shop import track_shipment

def fetch(order_id):
    return asyncio.run(track_shipment(order_id=order_id))

order_ids = ["O-1001", "O-1002", "O-1005"]

async def main():
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(max_workers=3) as pool:
        shipments = await asyncio.gather(*(loop.run_in_executor(pool, fetch, oid) for oid in order_ids))
    for s in shipments:
        print(f"{s['order_id']} via {s['carrier']}: {s['state']}")

asyncio.run(main())

import asyncio
import time

from servers.shop import list_orders, track_shipment

orders = await list_orders()

start = time.perf_counter()
shipments = await asyncio.gather(*[track_shipment(order["id"]) for order in orders])
elapsed = time.perf_counter() - start

for shipment in shipments:
    print(f"{shipment['order_id']}: {shipment['state']}")
print("ran in parallel" if elapsed < 0.2 * len(orders) else f"ran one by one ({elapsed:.1f}s)")

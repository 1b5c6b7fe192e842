import asyncio
from servers.shop import get_order, in_stock

tasks = [asyncio.create_task(get_order(f"O-{n}")) for n in range(1001, 1007)]
done = []
for finished in asyncio.as_completed(tasks):
    order = await finished
    done.append(order["id"])
print(sorted(done))

async with asyncio.TaskGroup() as group:
    lamp = group.create_task(in_stock("HM-01", 5))
    kettle = group.create_task(in_stock("HM-02", 5))
print("lamp:", lamp.result(), "kettle:", kettle.result())

print(await asyncio.wait_for(in_stock(sku="TY-02"), timeout=10))

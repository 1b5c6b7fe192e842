import asyncio
from contextlib import asynccontextmanager
from servers.shop import create_order, delete_order, count_orders

@asynccontextmanager
async def temporary_order(customer):
    order = await create_order(customer, [{"sku": "TY-01"}])
    try:
        yield order
    finally:
        await delete_order(order["id"])

async with temporary_order("Ada Lovelace") as order, asyncio.TaskGroup() as group:
    count = group.create_task(count_orders())
print(order["id"], count.result(), await count_orders())

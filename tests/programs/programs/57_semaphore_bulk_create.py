import asyncio
from servers.shop import create_order, count_created

customers = ["Ada Lovelace", "Grace Hopper", "Alan Turing", "Edith Clarke"]
semaphore = asyncio.Semaphore(2)

async def create_one(customer):
    async with semaphore:
        return await create_order(customer=customer, items=[{"sku": "TY-01", "quantity": 1}])

created = await asyncio.gather(*map(create_one, customers))
print(f"Created {len(created)} orders worth {sum(o['total'] for o in created):.2f}")
print(f"The shop counts {await count_created()}")

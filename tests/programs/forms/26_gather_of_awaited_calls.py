import asyncio
from servers.shop import create_order

customers = ["Ada Lovelace", "Alan Turing"]
orders = await asyncio.gather(*[await create_order(customer, [{"sku": "TY-01"}]) for customer in customers])
print(orders)

import asyncio
from servers.shop import create_order

async def main():
    order = await create_order("Ada Lovelace", [{"sku": "TY-01"}])
    print(order["id"])

await asyncio.run(main())

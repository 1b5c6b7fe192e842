import asyncio
from servers.shop import count_orders

async def main():
    print(await count_orders(status="pending"))

asyncio.run(main())
await main()

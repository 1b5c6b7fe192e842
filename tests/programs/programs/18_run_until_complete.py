import asyncio
from servers.shop import stock_levels

async def low_stock(threshold):
    levels = await stock_levels()
    return {sku: units for sku, units in levels.items() if units < threshold}

loop = asyncio.get_event_loop()
result = loop.run_until_complete(low_stock(5))
print(result)

import asyncio
from servers.shop import in_stock

results = await asyncio.gather(in_stock("BK-01"), in_stock(sku=None), in_stock("XX"), return_exceptions=True)
print([type(result).__name__ for result in results])

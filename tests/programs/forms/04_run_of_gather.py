import asyncio
from servers.shop import in_stock

results = asyncio.run(asyncio.gather(in_stock("BK-01"), in_stock("BK-02")))
print(results)

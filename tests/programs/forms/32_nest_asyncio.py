import asyncio
import nest_asyncio
nest_asyncio.apply()

from servers.shop import count_orders
print(asyncio.run(count_orders()))

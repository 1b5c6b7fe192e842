import asyncio
from servers.shop import count_orders, list_categories

with asyncio.Runner() as runner:
    print(runner.run(count_orders()))
    print(runner.run(count_orders(status="shipped")))
print(asyncio.get_event_loop().run_until_complete(list_categories()))

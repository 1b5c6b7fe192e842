from contextlib import suppress
from servers.shop import get_order, count_orders

with suppress(Exception):
    await get_order(order_id=1001)
    print("a number is accepted")
print(await count_orders())

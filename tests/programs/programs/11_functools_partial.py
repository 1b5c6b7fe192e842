from functools import partial
from servers.shop import list_orders

pending_orders = partial(list_orders, status="pending")
shipped_orders = partial(list_orders, "shipped")

pending = await pending_orders()
shipped = await shipped_orders(customer="Ada Lovelace")

print("pending:", [o["id"] for o in pending])
print("shipped to Ada:", [o["id"] for o in shipped])

from concurrent.futures import ThreadPoolExecutor
from servers.shop import get_order

order_ids = ["O-1001", "O-1002", "O-1003"]
with ThreadPoolExecutor(max_workers=3) as executor:
    orders = list(executor.map(get_order, order_ids))

total = sum(order["total"] for order in orders)
print(f"Total: {total}")

import csv
from servers.shop import list_orders

orders = await list_orders()

with open("./workspace/orders.csv", "w", newline="") as f:
    writer = csv.DictWriter(f, fieldnames=["id", "customer", "status", "total"])
    writer.writeheader()
    writer.writerows(orders)

# Check what was saved
with open("./workspace/orders.csv") as f:
    lines = f.read().splitlines()
print(lines[0])
print(f"Saved {len(lines) - 1} orders to workspace/orders.csv")

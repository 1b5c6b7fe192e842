import json
from servers.shop import list_orders

orders = await list_orders()
with open("orders_report.json", "w") as f:
    json.dump(orders, f, indent=2)
print("Report written")
